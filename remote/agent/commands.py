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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: Raw stacks of all threads for two seconds; the rate follows.
_RECORD = ["{blob}", "record", "--nonblocking", "--idle", "--threads", "--full-filenames", "-f", "raw"]
_RECORD += ["-o", "/dev/stdout", "-d", "2", "-r"]

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
    "slurm_node": ["scontrol", "--oneliner", "show", "node", "{node}"],
    "slurm_job": ["scontrol", "show", "job", "{job}"],
    "py_spy_version": ["{blob}", "--version"],
    "py_spy_dump": ["{blob}", "dump", "--json", "--nonblocking", "--pid", "{pid}"],
    "py_spy_locals": ["{blob}", "dump", "--json", "--nonblocking", "--locals", "--pid", "{pid}"],
    "py_spy_native": ["{blob}", "dump", "--json", "--native", "--pid", "{pid}"],
    "py_spy_record": _RECORD + ["20", "--pid", "{pid}"],
    "py_spy_record_slowly": _RECORD + ["10", "--pid", "{pid}"],
    # runs the commands of a job of `gconsole run start`
    "job_supervisor": ["{python}", "-I", "-B", "{program}"],
    # reads the source of clocks/gpu_timer from stdin: CUDA is loaded in a short-lived process
    "gpu_clock": ["{python}", "-I", "-B", "-"],
    "pystack_dump": ["{blob}", "remote", "--no-color", "--no-block", "{pid}"],
    "pystack_locals": ["{blob}", "remote", "--no-color", "--no-block", "--locals", "{pid}"],
}

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
) -> "tuple[int, bytes, bytes]":
    """(exit status, stdout, stderr) of a listed command, which reads `given`. Raises OSError if it does not
    start, CommandTimeout."""
    words = {"{blob}": blob or "", "{pid}": str(pid), "{python}": python or ""}
    process = subprocess.Popen(
        [words.get(word, word) for word in COMMANDS[name]],
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, close_fds=True, cwd="/",
        start_new_session=True,  # a process group of its own, which can be ended as a whole
    )  # fmt: skip
    with _lock:
        _running.add(process)
    try:
        out, err = process.communicate(given, timeout=timeout_s)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        _kill(process)
        _reap(process)
        raise CommandTimeout("timed out after %.1f s" % timeout_s)
    finally:
        with _lock:
            _running.discard(process)


class LineStream(object):
    """The output of a listed command, line by line, limited in time, bytes and CPU; `words` replace placeholders.

    `reason` says afterwards why it is incomplete: the limit, or its exit status and error; "" if it is complete.
    """

    def __init__(self, name: str, words: "dict[str, list[str]]", timeout_s: float, max_bytes: int) -> None:
        self._argv = [part for word in COMMANDS[name] for part in words.get(word, [word])]
        self._timeout_s, self._max_bytes = timeout_s, max_bytes
        self.reason = ""
        self.cpu_s = 0.0
        self._is_at_end = False

    def __iter__(self) -> "Iterator[bytes]":
        """Each line without its end. Raises OSError if the command does not start."""
        process = subprocess.Popen(
            self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=True,
            start_new_session=True, bufsize=0, cwd="/",
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
    threading.Thread(target=process.wait, name="gconsole-reap", daemon=True).start()


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
        threading.Thread(target=process.communicate, name="gconsole-reap", daemon=True).start()


class DetachedStarter(object):
    """A thread that starts jobs, created before the agent raises its niceness, which a job must not inherit.

    On Linux each thread has its own niceness, and only root may lower it.
    """

    def __init__(self) -> None:
        self._orders: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._run, name="gconsole-starter", daemon=True).start()

    def start(self, name: str, words: "dict[str, str]", log: str) -> None:
        """Start a listed command, detached; its output goes to the file `log`. Raises OSError."""
        answer: queue.Queue[OSError | None] = queue.Queue()
        self._orders.put((name, words, log, answer))
        error = answer.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            name, words, log, answer = self._orders.get()
            try:
                detach(name, words, log)
                answer.put(None)
            except OSError as error:
                answer.put(error)
