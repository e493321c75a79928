"""One process's stacks by py-spy, which reads them from outside without stopping the process (`--nonblocking`).

Reading a process that runs may tear: what makes no sense is read again.
"""

import json
import os
import time

from ..agent import commands
from ..proc.procfs import printable

ENGINE, MODE = "py-spy", "nonblocking"
#: How often a read that made no sense is made anew.
AGAIN = 2
#: Of a deeper stack the middle is left out; a RuntimeError would have come at 1,000.
MOST_FRAMES = 1024
MOST_THREADS = 1024
_MOST_NAME, _MOST_FILE, _MOST_VALUE = 256, 512, 80
#: Of one thread so many variables are kept; and of one where all were asked for.
MOST_LOCALS, MOST_OF_ALL = 64, 512
#: The name that stands for every variable.
ALL = "*"
_INT64 = 2**63

#: What py-spy says → status. It knows no error codes.
_WORDS = (
    ("Permission Denied", "no_permission"),
    ("Operation not permitted", "no_permission"),
    ("Unsupported version of Python", "unsupported_python"),
    ("Failed to find python version", "not_python"),
    ("Failed to find a python interpreter", "not_python"),
    ("Check that the process is running", "gone"),
    ("No such process", "gone"),
)


class NoStack(Exception):
    """There is no stack to be had: `status` as in the `stack` record, `text` what happened, `try_` what to do."""

    def __init__(self, status, text, try_=""):
        super(NoStack, self).__init__(text)
        self.status, self.text, self.try_ = status, text, try_


class Thread(object):
    """One Python thread; `frames` are (function, file, line, native), outermost first.

    `locals` are (index of the frame, name, value as text) of the variables in `wanted`: NAME, FUNCTION:NAME, or ALL.
    """

    __slots__ = ("active", "frames", "gil", "locals", "name", "os_thread_id", "thread_id")

    def __init__(self, said, wanted=frozenset()):
        self.thread_id = _number(said.get("thread_id"))
        self.os_thread_id = _number(said.get("os_thread_id"))
        name = said.get("thread_name")
        self.name = printable(name, _MOST_NAME) if isinstance(name, str) else None
        self.active = bool(said["active"])
        self.gil = bool(said["owns_gil"])
        frames = list(reversed(said["frames"]))
        self.frames = _cut([_frame(frame) for frame in frames])
        self.locals = _locals(frames, wanted) if wanted and len(frames) <= MOST_FRAMES else []


def threads_of(blob, pid, timeout_s, wanted=frozenset(), command=None):
    """The Python threads of a process, with the variables that are `wanted` by name. Raises NoStack."""
    command = command or ("py_spy_locals" if wanted else "py_spy_dump")
    deadline = time.monotonic() + timeout_s
    problem = None
    for _ in range(1 + AGAIN):
        left = deadline - time.monotonic()
        if left <= 0.01:
            break
        try:
            status, out, err = commands.run_apart(command, left, blob=blob, pid=pid)
        except commands.NoAnswer:
            raise NoStack("timed_out", "py-spy did not read it within %.1f s" % timeout_s)
        except OSError as error:
            raise NoStack("tool_missing", "py-spy does not run here: %s" % error, "gconsole doctor says more")
        if status == 0:
            try:
                return parse(out, wanted)
            except ValueError as error:
                problem = NoStack("unreadable", "what py-spy read made no sense: %s" % error)
        else:
            problem = refusal(err.decode("utf-8", "backslashreplace"), status)
            if problem.status != "unreadable":
                raise problem
    raise problem or NoStack("timed_out", "py-spy did not read it within %.1f s" % timeout_s)


def parse(data, wanted=frozenset()):
    """The threads in py-spy's JSON. Raises ValueError where it is none, or has none."""
    try:
        said = json.loads(data.decode("utf-8", "backslashreplace"))
        threads = [Thread(one, wanted) for one in said[:MOST_THREADS]]
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("not py-spy's form: %s" % type(error).__name__)
    if not threads:
        raise ValueError("no Python thread in it")
    return threads


def refusal(said, status):
    """The NoStack that an error message of py-spy means."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = " ".join(lines[: next((at for at, line in enumerate(lines) if line.startswith("Stack backtrace")), 4)])
    text = printable(text.replace("Error: ", "", 1), 300) or "py-spy ended with status %s" % status
    for words, meaning in _WORDS:
        if words in said:
            if meaning == "no_permission":
                return NoStack(meaning, "the kernel does not let the agent read it")
            return NoStack(meaning, text)
    if status < 0 and not said:
        return NoStack("tool_missing", "py-spy was ended by signal %d" % -status, "gconsole doctor says more")
    return NoStack("unreadable", text)


def remedy(uid):
    """What would let this agent read a process of that uid, from what this node says of itself."""
    own = os.geteuid()
    scope = _ptrace_scope()
    if own == 0:
        if scope == 3:
            return "kernel.yama.ptrace_scope is 3 here: set it to 1 or less and reboot the node"
        return "root may not trace here: give its container SYS_PTRACE (--cap-add SYS_PTRACE)"
    if uid is not None and uid != own:
        return 'it belongs to uid %d, the agent is uid %d: run_as = "sudo", or log in as its owner' % (uid, own)
    if scope:
        return 'run_as = "sudo"; or on the node: sysctl kernel.yama.ptrace_scope=0 (is %d)' % scope
    return 'run_as = "sudo" (its owner is the agent\'s, but it has other privileges or is in another container)'


def _ptrace_scope():
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as f:
            return int(f.read())
    except (OSError, ValueError):
        return None  # no Yama


def _frame(said):
    line = said["line"]
    return (
        printable(str(said["name"]), _MOST_NAME),
        printable(str(said["filename"]), _MOST_FILE),
        _number(line) or 0,
        bool(said.get("module")),  # py-spy names the library of native calls only
    )


def _locals(frames, wanted):
    found = []
    most = MOST_OF_ALL if ALL in wanted else MOST_LOCALS
    for at in range(len(frames) - 1, -1, -1):  # where there are too many, the innermost calls tell
        function = str(frames[at].get("name")).rsplit(".", 1)[-1]
        for one in frames[at].get("locals") or ():
            name = str(one["name"])
            asked = ALL in wanted or name in wanted or "%s:%s" % (function, name) in wanted
            if asked and len(found) < most:
                found.append((at, printable(name, _MOST_NAME), printable(str(one.get("repr")), _MOST_VALUE)))
    return sorted(found, key=lambda one: one[0])


def _cut(frames):
    if len(frames) <= MOST_FRAMES:
        return tuple(frames)
    half = MOST_FRAMES // 2
    return tuple(frames[:half] + [("… %d calls …" % (len(frames) - 2 * half), "", 0, False)] + frames[-half:])


def _number(value):
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64 else None
