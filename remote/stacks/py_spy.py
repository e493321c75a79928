"""Stacks of one process by py-spy, read from outside without stopping it (`--nonblocking`), except native frames.

Reads of a running process may be torn: inconsistent ones are repeated.
"""

import json
import os
import signal
import time

from ..agent import commands
from ..proc import apart, limited
from ..proc.procfs import GONE, ProcFs, printable, read_number
from ..proc.user_files import RightsOf
from .tasks import MAX_VARIABLES, loop_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    Frame = tuple[str, str, int, bool]  # (function, file, line, native)
    Local = tuple[int, str, str]  # (index of the frame, name, value as text)
    Object = tuple[int, str, str, int]  # (index of the frame, name, type, address)

ENGINE, MODE, NATIVE_MODE = "py-spy", "nonblocking", "blocking"
#: Repetitions of a torn read.
RETRIES = 2
#: Deeper stacks lose their middle frames; Python's default recursion limit is 1000.
MAX_FRAMES = 1024
MAX_THREADS = 1024
#: Seconds. Native frames need the symbols of large libraries, which takes seconds the first time.
NATIVE_TIMEOUT_S = 6.0
#: Seconds for which a process may still appear traced after py-spy has ended.
RESUME_S = 1.0
_MAX_NAME, _MAX_FILE, _MAX_VALUE = 256, 512, 80
#: Variables kept per thread: of those named, and with ALL.
MAX_LOCALS, MAX_ALL_LOCALS = 64, 512
#: File of a native frame that belongs to no library: code made at run time.
_UNRESOLVED = "?"
#: Selects every variable.
ALL = "*"
_INT64 = 2**63

#: Error message of py-spy → status; it has no error codes.
_STATUS_BY_MESSAGE = (
    ("Permission Denied", "no_permission"),
    ("Operation not permitted", "no_permission"),
    ("Unsupported version of Python", "unsupported_python"),
    ("Failed to find python version", "not_python"),
    ("Failed to find a python interpreter", "not_python"),
    ("Check that the process is running", "gone"),
    ("No such process", "gone"),
)


class StackError(Exception):
    """A stack cannot be read: `status` as in the `stack` record, `text` the problem, `try_` the remedy."""

    def __init__(self, status: str, text: str, try_: str = "") -> None:
        super(StackError, self).__init__(text)
        self.status, self.text, self.try_ = status, text, try_


class PythonThread(object):
    """One Python thread; `frames` outermost first, `locals` of variables in `names`: NAME, FUNCTION:NAME or ALL.

    `objects`: every variable that is an object or a dict, where a name in `names` has attributes: NAME.ATTRIBUTE.
    `loop`: the variables that lead to the tasks of an event loop, if it runs one and variables were read; `tasks` are
    the fields of these, if they were read.
    """

    __slots__ = ("active", "frames", "gil", "locals", "loop", "name", "objects", "os_thread_id", "tasks", "thread_id")

    def __init__(self, fields: "dict[str, Any]", names: "frozenset[str]" = frozenset()) -> None:
        self.thread_id = _number(fields.get("thread_id"))
        self.os_thread_id = _number(fields.get("os_thread_id"))
        name = fields.get("thread_name")
        self.name = printable(name, _MAX_NAME) if isinstance(name, str) else None
        self.active = bool(fields["active"])
        self.gil = bool(fields["owns_gil"])
        frames = list(reversed(fields["frames"]))
        self.frames = _cut([_frame(frame) for frame in frames])
        readable = frames if len(frames) <= MAX_FRAMES else []
        self.locals = _locals(readable, names) if names else []
        self.loop = loop_variables(readable) if names else []
        self.tasks: "list[dict[str, Any]] | None" = None
        self.objects = _objects(readable) if any("." in name for name in names) else []


def read_threads(
    blob: str,
    pid: int,
    timeout_s: float,
    names: "frozenset[str]" = frozenset(),
    command: str = "",
    parsers: "limited.Parsers | None" = None,
) -> "list[PythonThread]":
    """The Python threads of a process, with the variables in `names`. Raises StackError.

    `parsers` parse the output about processes of other users; without, a child is started for each.
    """
    command = command or ("py_spy_locals" if names else "py_spy_dump")
    try_ = "gconsole doctor shows details"
    return run_tool(ENGINE, command, blob, pid, timeout_s, names, classify_error, try_, parsers)


def run_tool(
    tool: str,
    command: str,
    path: str,
    pid: int,
    timeout_s: float,
    names: "frozenset[str]",
    classify: "Callable[[str, int], StackError]",
    missing_try: str = "",
    parsers: "limited.Parsers | None" = None,
) -> "list[PythonThread]":
    """The threads in the output of a listed command; torn reads are repeated. Raises StackError.

    `classify` maps an error message and exit status to a StackError.
    """
    deadline = time.monotonic() + timeout_s
    user = user_of(pid)
    problem: "StackError | None" = None
    for _ in range(1 + RETRIES):
        left = deadline - time.monotonic()
        if left <= 0.01:
            break
        try:
            status, out, err = commands.run_apart(command, left, blob=path, pid=pid, user=user)
        except commands.CommandTimeout:
            raise StackError("timed_out", "%s took longer than %.1f s" % (tool, timeout_s))
        except commands.OutputTooLong as error:
            raise StackError("unreadable", "%s: %s" % (tool, error))
        except OSError as error:
            raise StackError("tool_missing", "%s cannot be run: %s" % (tool, error), missing_try)
        if status == 0:
            try:
                return _parsed(tool, pid, names, out, user, parsers, deadline)
            except ValueError as error:
                problem = StackError("unreadable", "invalid data from %s: %s" % (tool, error))
        else:
            problem = classify(err.decode("utf-8", "backslashreplace"), status)
            if problem.status != "unreadable":
                raise problem
    raise problem or StackError("timed_out", "%s took longer than %.1f s" % (tool, timeout_s))


def user_of(pid: int) -> "RightsOf | None":
    """The user as whom a process is read; None where /proc does not tell. Raises StackError."""
    try:
        return RightsOf.of_process(ProcFs(), pid)
    except GONE:
        raise StackError("gone", "ended before it was read")
    except (OSError, KeyError, ValueError):
        return None


def read_native(blob: str, pid: int, left_s: float, parsers: "limited.Parsers | None" = None) -> "list[PythonThread]":
    """The threads of a process with native frames, which stops it for 0.1 to 4 s. Raises StackError."""
    if left_s <= 0:
        raise StackError("timed_out", "not read before the capture's deadline")
    return read_threads(blob, pid, min(NATIVE_TIMEOUT_S, left_s), command="py_spy_native", parsers=parsers)


def resume(procfs: "ProcFs", pid: int, start_ticks: int) -> None:
    """Continue a process that a killed py-spy may have left stopped."""
    deadline = time.monotonic() + RESUME_S
    while time.monotonic() < deadline:
        try:
            stat = procfs.stat(pid)
        except GONE:
            return
        if stat.start_ticks != start_ticks or stat.state not in "Tt":
            return
        if stat.state == "T":
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)


class ThreadValues(object):
    """Threads as JSON has them."""

    def __init__(self, threads: "list[PythonThread]") -> None:
        self.values = [[_plain(getattr(thread, name)) for name in PythonThread.__slots__] for thread in threads]

    @classmethod
    def restored(cls, values: "Any") -> "ThreadValues":
        """Of the values of another one."""
        made = cls([])
        made.values = values
        return made

    def threads(self) -> "list[PythonThread]":
        """The same as objects, checked. Raises ValueError."""
        values = vars(self).get("values")  # none in the answer of a child that was taken over
        if not isinstance(values, list) or not 0 < len(values) <= MAX_THREADS:
            raise ValueError("invalid answer")
        return [self._thread(dict(zip(PythonThread.__slots__, apart.as_fields(thread, 10)))) for thread in values]  # noqa: B905

    @staticmethod
    def _thread(values: "dict[str, Any]") -> "PythonThread":
        thread = PythonThread.__new__(PythonThread)
        thread.active, thread.gil, thread.tasks = values["active"] is True, values["gil"] is True, None
        thread.name = None if values["name"] is None else apart.as_text(values["name"], _MAX_NAME)
        for name in ("thread_id", "os_thread_id"):
            setattr(thread, name, None if values[name] is None else apart.as_number(values[name]))
        frames = [apart.as_fields(frame, 4) for frame in apart.as_list(values["frames"], MAX_FRAMES + 1)]
        thread.frames = tuple(
            (apart.as_text(name, _MAX_NAME), apart.as_text(file, _MAX_FILE), apart.as_number(line), native is True)
            for name, file, line, native in frames
        )
        variables = [apart.as_fields(local, 3) for local in apart.as_list(values["locals"], MAX_ALL_LOCALS)]
        thread.locals = [
            (apart.as_number(index, len(frames)), apart.as_text(name, _MAX_NAME), apart.as_text(text, _MAX_VALUE))
            for index, name, text in variables
        ]
        entries = [apart.as_fields(entry, 4) for entry in apart.as_list(values["objects"], MAX_ALL_LOCALS)]
        thread.objects = [
            (apart.as_number(index, len(frames)), apart.as_text(name, _MAX_NAME), apart.as_text(kind, _MAX_NAME),
             apart.as_number(address))
            for index, name, kind, address in entries
        ]  # fmt: skip
        leads = [apart.as_fields(lead, 2) for lead in apart.as_list(values["loop"], MAX_VARIABLES)]
        thread.loop = [(apart.as_text(name, _MAX_NAME), apart.as_number(address)) for name, address in leads]
        return thread


def _plain(value: "Any") -> "Any":
    """A value with lists in place of tuples, as JSON has them."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


#: Parsers of output by the tool that wrote it: (output, pid, names of variables) → threads.
PARSERS: "dict[str, Callable[[bytes, int, frozenset[str]], list[PythonThread]]]" = {}


def _parsed(
    tool: str,
    pid: int,
    names: "frozenset[str]",
    out: bytes,
    user: "RightsOf | None",
    parsers: "limited.Parsers | None",
    deadline: float,
) -> "list[PythonThread]":
    """The threads in output, parsed in a child if it is long or about a process of another user. Raises ValueError."""
    is_foreign = user is not None and user.is_other
    if not is_foreign and len(out) <= limited.SMALL:
        return PARSERS[tool](out, pid, names)
    data = json.dumps([tool, pid, sorted(names)]).encode("ascii") + b"\n" + out
    if parsers is None or user is None:
        return limited.parse(ThreadValues, lambda data: parse_output(data, deadline), data, True).threads()
    return parsers.parse(user.key, parse_output, ThreadValues, data, deadline).threads()


def parse_output(data: bytes, _: float) -> "ThreadValues":
    """In a child: output behind a line of the agent. Raises ValueError."""
    head, out = data.split(b"\n", 1)
    tool, pid, names = json.loads(head.decode("ascii"))
    return ThreadValues(PARSERS[tool](out, pid, frozenset(names)))


def parse(data: bytes, names: "frozenset[str]" = frozenset()) -> "list[PythonThread]":
    """The threads in py-spy's JSON, a long one in a child. Raises ValueError if it is malformed or has no thread."""
    return _parsed(ENGINE, 0, names, data, None, None, 0.0)


def _parse(data: bytes, names: "frozenset[str]") -> "list[PythonThread]":
    try:
        document = json.loads(data.decode("utf-8", "backslashreplace"))
        threads = [PythonThread(thread, names) for thread in document[:MAX_THREADS]]
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("unexpected format: %s" % type(error).__name__)
    if not threads:
        raise ValueError("no Python thread")
    return threads


PARSERS[ENGINE] = lambda data, pid, names: _parse(data, names)


def classify_error(message: str, status: int) -> "StackError":
    """The StackError for an error message of py-spy and its exit status."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    backtrace = next((index for index, line in enumerate(lines) if line.startswith("Stack backtrace")), 4)
    text = " ".join(lines[:backtrace])
    text = printable(text.replace("Error: ", "", 1), 300) or "py-spy ended with status %s" % status
    for words, meaning in _STATUS_BY_MESSAGE:
        if words in message:
            if meaning == "no_permission":
                return StackError(meaning, "permission denied by the kernel")
            return StackError(meaning, text)
    if status < 0 and not message:
        return StackError("tool_missing", "py-spy was killed by signal %d" % -status, "gconsole doctor shows details")
    return StackError("unreadable", text)


def permission_remedy(uid: "int | None") -> str:
    """How to allow this agent to read a process of that uid, from the settings of this node."""
    own = os.geteuid()
    scope = read_number("/proc/sys/kernel/yama/ptrace_scope")  # None: no Yama
    if own == 0:
        if scope == 3:
            return "kernel.yama.ptrace_scope is 3: set it to 1 or less and reboot the node"
        return "root lacks SYS_PTRACE in this container: add it (--cap-add SYS_PTRACE)"
    if uid is not None and uid != own:
        return 'owned by uid %d, the agent runs as uid %d: set run_as = "sudo", or log in as its owner' % (uid, own)
    if scope:
        return 'set run_as = "sudo"; or on the node: sysctl kernel.yama.ptrace_scope=0 (is %d)' % scope
    return 'set run_as = "sudo" (same owner as the agent, but other privileges or another container)'


def _frame(frame: "dict[str, Any]") -> "Frame":
    line = frame["line"]
    return (
        printable(str(frame["name"]), _MAX_NAME),
        printable(str(frame["filename"]), _MAX_FILE),
        _number(line) or 0,
        bool(frame.get("module")) or frame["filename"] == _UNRESOLVED,  # the module is set for native frames only
    )


def _locals(frames: "Sequence[dict[str, Any]]", names: "frozenset[str]") -> "list[Local]":
    selected: "list[Local]" = []
    limit = MAX_ALL_LOCALS if ALL in names else MAX_LOCALS
    for index in range(len(frames) - 1, -1, -1):  # the innermost frames have priority
        function = str(frames[index].get("name")).rsplit(".", 1)[-1]
        for variable in frames[index].get("locals") or ():
            name = str(variable["name"])
            is_selected = ALL in names or name in names or "%s:%s" % (function, name) in names
            if is_selected and len(selected) < limit:
                value = printable(str(variable.get("repr")), _MAX_VALUE)
                selected.append((index, printable(name, _MAX_NAME), value))
    return sorted(selected, key=lambda local: local[0])


def _objects(frames: "Sequence[dict[str, Any]]") -> "list[Object]":
    """The variables that py-spy prints as `<Type at 0x…>` or as a dict; innermost frames first."""
    selected: "list[Object]" = []
    for index in range(len(frames) - 1, -1, -1):
        for variable in frames[index].get("locals") or ():
            text, address = str(variable.get("repr")), _number(variable.get("addr"))
            kind = text[1:].partition(" at 0x")[0] if text.startswith("<") else "dict" if text.startswith("{") else ""
            if kind and address and len(selected) < MAX_ALL_LOCALS:
                selected.append(
                    (index, printable(str(variable["name"]), _MAX_NAME), printable(kind, _MAX_NAME), address)
                )
    return selected


def _cut(frames: "list[Frame]") -> "tuple[Frame, ...]":
    if len(frames) <= MAX_FRAMES:
        return tuple(frames)
    half = MAX_FRAMES // 2
    omitted: "Frame" = ("… %d frames …" % (len(frames) - 2 * half), "", 0, False)
    return tuple(frames[:half] + [omitted] + frames[-half:])


def _number(value: "Any") -> "int | None":
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64 else None
