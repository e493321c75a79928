"""The commands that the agent may run; it starts no other program."""

import importlib
import os
import queue
import resource
import select
import signal
import subprocess
import threading
import time

from ..proc.threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.user_files import RightsOf

#: Raw stacks of all threads for two seconds; the rate follows.
_RECORD = ["{blob}", "record", "--nonblocking", "--idle", "--threads", "--full-filenames", "-f", "raw"]
_RECORD += ["-o", "/dev/stdout", "-d", "2", "-r"]

#: gdb without start files, files that a process names, symbols and libraries.
_GDB = [
    "/usr/bin/gdb",
    "-nx",
    "-nh",
    "-q",
    "-iex",
    "set auto-load off",
    "-iex",
    "set auto-solib-add off",
    "-iex",
    "set libthread-db-search-path /nonexistent",
    "-iex",
    "set sysroot /nonexistent",
]
#: name → the arguments; `{blob}` is replaced by the path of a verified program, `{pid}` by a number.
COMMANDS = {
    "chrony_tracking": ["chronyc", "-c", "-n", "tracking"],
    "ntpd_variables": ["ntpq", "-n", "-c", "rv 0 leap,stratum,rootdelay,rootdisp,refid,offset,frequency"],
    "ptp_status": ["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"],
    "sudo_probe": ["sudo", "-n", "true"],
    "timesyncd_state": ["timedatectl", "show-timesync"],
    # the journal, from its newest entry on, and after one entry: --reverse --after-cursor would read older ones
    "journal": ["journalctl", "-q", "--no-pager", "--output=json", "--reverse", "{fields}", "{since}", "{matches}"],
    "journal_after": ["journalctl", "-q", "--no-pager", "--output=json", "{fields}", "{since}", "{matches}"],
    # tools of vendors, of root: without the counter of xGMI errors, which is cleared when it is read
    "amd_smi_static": ["{program}", "static", "--json"],
    "amd_smi_metric": ["{program}", "metric", "-m", "-u", "-p", "-t", "-e", "--json"],
    "amd_smi_metric_guest": ["{program}", "metric", "-m", "-u", "-p", "-t", "--json"],
    "hl_smi_query": ["{program}", "{query}", "--format=csv,noheader"],
    "slurm_node": ["scontrol", "--oneliner", "show", "node", "{node}"],
    "slurm_job": ["scontrol", "show", "job", "{job}"],
    "py_spy_version": ["{blob}", "--version"],
    "py_spy_dump": ["{blob}", "dump", "--json", "--nonblocking", "--pid", "{pid}"],
    "py_spy_locals": ["{blob}", "dump", "--json", "--nonblocking", "--locals", "--pid", "{pid}"],
    "py_spy_native": ["{blob}", "dump", "--json", "--native", "--pid", "{pid}"],
    "py_spy_record": _RECORD + ["20", "--pid", "{pid}"],
    "py_spy_record_slowly": _RECORD + ["10", "--pid", "{pid}"],
    # runs the commands of a job of `gconsole run start`
    "job_supervisor": ["{python}", "-I", "-S", "-B", "{program}"],
    # reads the source of clocks/gpu_timer from stdin: CUDA is loaded in a short-lived process
    "gpu_clock": ["{python}", "-I", "-B", "-"],
    # reads the source of jobs/python_facts from stdin: {python} is the interpreter that the user wants a job to run
    "python_facts": ["{python}", "-B", "-"],
    # both read their commands from stdin; those of `gdb_call` are numbers
    "gdb_call": _GDB + ["-p", "{pid}"],
    "gdb_check": _GDB,
    # reads stacks/remote_exec_program from stdin: as the user of a rank, which may have another Python than that user
    "remote_exec": ["{python}", "-I", "-B", "-"],
    "pystack_dump": ["{blob}", "remote", "--no-color", "--no-block", "{pid}"],
    "pystack_locals": ["{blob}", "remote", "--no-color", "--no-block", "--locals", "{pid}"],
}

#: Bytes of output that are read of a command; py-spy writes 100 to 400 of each frame.
MAX_OUTPUT = 16 << 20
#: Of a command that runs as another user: bytes of memory and of a core dump, and descriptors.
_LIMITS_OF_USER = ((resource.RLIMIT_DATA, 4 << 30), (resource.RLIMIT_CORE, 0),
                   (resource.RLIMIT_NOFILE, 4096))  # fmt: skip
#: Bytes of a file that such a command may write.
_WRITES = {"remote_exec": 1 << 20}
#: Its environment, without the variables of root: with those, Python would load modules of that user's home.
_ENVIRONMENT_OF_USER = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
#: Times that such a limit is tried, a millisecond apart.
_ATTEMPTS = 50
_BY_DESCRIPTOR = frozenset(name for name in COMMANDS if name.startswith("py_spy"))
#: CPU time in seconds after which the kernel ends a command whose output is streamed.
CPU_S = 5
#: Bytes. Longer lines of streamed output are left out.
MAX_LINE = 1 << 16
#: Seconds to wait for a killed command; one that hangs in the kernel is left to a thread.
REAP_S = 0.5

_running: "set[subprocess.Popen[bytes]]" = set()
_lock = threading.Lock()


class CommandTimeout(Exception):
    """A command timed out; its process group was killed."""


class OutputTooLong(Exception):
    """A command wrote more than MAX_OUTPUT; its process group was killed."""


def run(name: str, timeout_s: float, blob: "str | None" = None) -> "tuple[int | None, str]":
    """(exit status, output) of a listed command; the status is None if it failed to start or timed out."""
    try:
        status, out, err = run_apart(name, timeout_s, blob)
    except OSError as error:
        return None, str(error)
    except CommandTimeout as error:
        return None, str(error)
    return status, (out + err).decode("utf-8", "backslashreplace").strip()


def run_apart(
    name: str,
    timeout_s: float,
    blob: "str | None" = None,
    pid: "int | None" = None,
    python: "str | None" = None,
    given: "bytes | None" = None,
    user: "RightsOf | None" = None,
    env: "dict[str, str] | None" = None,
    may_trace: bool = True,
) -> "tuple[int, bytes, bytes]":
    """(exit status, stdout, stderr) of a listed command, which reads `given`; it runs as `user`, if given.

    `env` is for commands that run as the user of the agent. A command of another user keeps the capability
    to trace, where the kernel requires it, only with `may_trace`.

    Raises OSError if it does not start, CommandTimeout and OutputTooLong.
    """
    words = {"{blob}": blob or "", "{pid}": str(pid), "{python}": python or ""}
    argv = [words.get(word, word) for word in COMMANDS[name]]
    if user is not None and user.is_other:
        process = _start_as(
            user, argv, timeout_s, blob if name in _BY_DESCRIPTOR else None, pid if may_trace else None,
            has_input=given is not None, file_bytes=_WRITES.get(name, 0),
        )  # fmt: skip
    else:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, close_fds=True, cwd="/", env=env,
            start_new_session=True,  # a process group of its own, which can be ended as a whole
        )  # fmt: skip
    with _lock:
        _running.add(process)
    try:
        out, err = _output(process, time.monotonic() + timeout_s, given)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        _kill(process)
        _reap(process)
        raise CommandTimeout("timed out after %.1f s" % timeout_s)
    except OutputTooLong:
        _kill(process)
        _reap(process)
        raise
    finally:
        with _lock:
            _running.discard(process)


def _start_as(
    user: "RightsOf",
    argv: "list[str]",
    timeout_s: float,
    blob: "str | None",
    pid: "int | None",
    has_input: bool,
    file_bytes: int,
) -> "subprocess.Popen[bytes]":
    """Start a command as another user; `blob` is a binary of ours, in a folder that this user may not enter."""
    program = os.open(blob, os.O_PATH | os.O_CLOEXEC) if blob is not None and _is_binary(blob) else None
    limits = _LIMITS_OF_USER + ((resource.RLIMIT_CPU, int(timeout_s) + 2), (resource.RLIMIT_FSIZE, file_bytes))

    def start() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            argv, executable=None if program is None else "/proc/self/fd/%d" % program,
            pass_fds=() if program is None else (program,),
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd="/", env=_ENVIRONMENT_OF_USER, start_new_session=True,
        )  # fmt: skip
        for kind, most in limits:
            _limit(process.pid, kind, most)
        return process

    try:
        return user.call(start, traced=pid)
    finally:
        if program is not None:
            os.close(program)


def _limit(pid: int, kind: int, most: int) -> None:
    """Limit a process of the calling thread's user, which has just been started."""
    for _ in range(_ATTEMPTS):
        try:
            resource.prlimit(pid, kind, (most, most))
            return
        except PermissionError:
            time.sleep(0.001)  # its exec has closed our pipe, and replaces its user ids only after that
        except (OSError, ValueError):
            return  # it has ended already, or has less


def _is_binary(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"  # the interpreter of a script opens its path itself


def _output(process: "subprocess.Popen[bytes]", deadline: float, given: "bytes | None" = None) -> "tuple[bytes, bytes]":
    """(stdout, stderr) until the command has ended; it reads `given`. Raises TimeoutExpired and OutputTooLong."""
    assert process.stdout is not None and process.stderr is not None
    parts: "dict[int, list[bytes]]" = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    poller, open_, left = select.poll(), set(parts), MAX_OUTPUT
    for fd in open_:
        poller.register(fd, select.POLLIN | select.POLLHUP)
    rest = memoryview(given or b"")
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        poller.register(process.stdin.fileno(), select.POLLOUT)
    while open_:
        wait_s = deadline - time.monotonic()
        ready = poller.poll(max(0.0, 1000 * wait_s))
        if wait_s <= 0 or not ready:
            raise subprocess.TimeoutExpired(process.args, 0.0)
        for fd, _ in ready:
            if fd not in parts:
                rest = _fed(process, poller, rest)
                continue
            data = os.read(fd, 1 << 16)
            if not data:
                poller.unregister(fd)
                open_.remove(fd)
            left -= len(data)
            if left < 0:
                raise OutputTooLong("more than %d MiB of output" % (MAX_OUTPUT >> 20))
            parts[fd].append(data)
    process.wait(max(0.0, deadline - time.monotonic()))
    out, err = (b"".join(part) for part in parts.values())
    process.stdout.close()
    process.stderr.close()
    return out, err


def _fed(process: "subprocess.Popen[bytes]", poller: "select.poll", rest: memoryview) -> memoryview:
    """What is left of the input after as much as fits was written; stdin is closed after the last of it."""
    assert process.stdin is not None
    try:
        rest = rest[os.write(process.stdin.fileno(), rest[: 1 << 16]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        rest = rest[:0]  # it reads no more
    if not rest:
        poller.unregister(process.stdin.fileno())
        process.stdin.close()
        process.stdin = None  # communicate() of one that is killed later would flush it
    return rest


class LineStream(object):
    """The output of a listed command, line by line, limited in time, bytes and CPU; `words` replace placeholders.

    `reason` says afterwards why it is incomplete: the limit, or its exit status and error; "" if it is complete.
    """

    def __init__(
        self,
        name: str,
        words: "dict[str, list[str]]",
        timeout_s: float,
        max_bytes: int,
        env: "dict[str, str] | None" = None,
    ) -> None:
        """`env` replaces the environment of the agent."""
        self._argv = [part for word in COMMANDS[name] for part in words.get(word, [word])]
        self._timeout_s, self._max_bytes, self._env = timeout_s, max_bytes, env
        self.reason = ""
        self.cpu_s = 0.0
        self._is_at_end = False

    def __iter__(self) -> "Iterator[bytes]":
        """Each line without its end. Raises OSError if the command does not start."""
        process = subprocess.Popen(
            self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=True,
            start_new_session=True, bufsize=0, cwd="/", env=self._env,
        )  # fmt: skip
        with _lock:
            _running.add(process)
        try:
            limit_cpu(process.pid)
            for line in self._lines(process):
                yield line
        finally:
            self._end(process)

    def _lines(self, process: "subprocess.Popen[bytes]") -> "Iterator[bytes]":
        assert process.stdout is not None
        fd, deadline, left, rest = process.stdout.fileno(), time.monotonic() + self._timeout_s, self._max_bytes, b""
        while left > 0:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0 or not select.select([fd], [], [], wait_s)[0]:
                self.reason = "timed out after %.0f s" % self._timeout_s
                return
            data = os.read(fd, 65536)
            if not data:
                self._is_at_end = True
                if rest:
                    yield rest
                return
            left -= len(data)
            lines = (rest + data).split(b"\n")
            rest = lines.pop()[: MAX_LINE + 1]  # too long either way
            for line in lines:
                if len(line) <= MAX_LINE:
                    yield line
        self.reason = "more than %d MiB" % (self._max_bytes >> 20)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        is_complete = self._is_at_end
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if is_complete and select.select([process.stderr], [], [], 0)[0]:
            self.reason = os.read(process.stderr.fileno(), 4096).decode("utf-8", "replace").strip()[:300]
        if is_complete:
            try:
                process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                pass
        _kill(process)
        _reap(process)
        with _lock:
            _running.discard(process)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        if is_complete and process.returncode and not self.reason:
            self.reason = "exit status %d" % process.returncode
        elif is_complete and not process.returncode:
            self.reason = ""


def limit_cpu(pid: int) -> None:
    """Limit the CPU time of a command that was just started."""
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    except (OSError, ValueError):
        pass  # it has ended already


def source_of(module: str) -> str:
    """The source of one of the agent's modules, for a command that runs it in a process of its own."""
    loader: Any = importlib.import_module(module).__loader__
    source: str = loader.get_source(module)
    return source


def detach(name: str, words: "dict[str, str]", log: str) -> None:
    """Start a listed command that outlives the agent; its output goes to the file `log`. Raises OSError."""
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stream:
        process = subprocess.Popen(
            [words.get(word, word) for word in COMMANDS[name]], cwd="/",
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, close_fds=True, start_new_session=True,
        )  # fmt: skip
    Thread(target=process.wait, name="gconsole-reap").start()


def end_all() -> None:
    """SIGKILL all running commands, when the agent ends."""
    with _lock:
        for process in _running:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # already ended


def _reap(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.communicate(timeout=REAP_S)
    except subprocess.TimeoutExpired:
        Thread(target=process.communicate, name="gconsole-reap").start()


class DetachedStarter(object):
    """A thread that starts jobs, created before the agent raises its niceness, which a job must not inherit.

    On Linux each thread has its own niceness, and only root may lower it.
    """

    def __init__(self) -> None:
        self._orders: queue.Queue[Any] = queue.Queue()
        Thread(target=self._run, name="gconsole-starter").start()

    def start(self, name: str, words: "dict[str, str]", log: str) -> None:
        """Start a listed command, detached; its output goes to the file `log`. Raises OSError."""
        answer: queue.Queue[Exception | None] = queue.Queue()
        self._orders.put((name, words, log, answer))
        error = answer.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            try:
                name, words, log, answer = self._orders.get()
                try:
                    detach(name, words, log)
                    answer.put(None)
                except Exception as error:  # noqa: BLE001 - raised by `start`
                    answer.put(error)
            except Exception:  # noqa: BLE001 - without memory, even a wait fails
                time.sleep(REAP_S)
