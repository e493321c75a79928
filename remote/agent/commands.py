"""The commands that the agent may run; it starts no other program."""

import importlib
import os
import queue
import signal
import subprocess
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: name → the arguments; `{blob}` is replaced by the path of a verified program, `{pid}` by a number.
COMMANDS = {
    "chrony_tracking": ["chronyc", "-c", "-n", "tracking"],
    "ntpd_variables": ["ntpq", "-n", "-c", "rv 0 leap,stratum,rootdelay,rootdisp,refid,offset,frequency"],
    "ptp_status": ["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP"],
    "sudo_probe": ["sudo", "-n", "true"],
    "timesyncd_state": ["timedatectl", "show-timesync"],
    "py_spy_version": ["{blob}", "--version"],
    "py_spy_dump": ["{blob}", "dump", "--json", "--nonblocking", "--pid", "{pid}"],
    "py_spy_locals": ["{blob}", "dump", "--json", "--nonblocking", "--locals", "--pid", "{pid}"],
    "py_spy_native": ["{blob}", "dump", "--json", "--native", "--pid", "{pid}"],
    # runs the commands of a job of `gconsole run start`
    "job_supervisor": ["{python}", "-I", "-B", "{program}"],
    # reads the source of clocks/gpu_timer from stdin: CUDA is loaded in a short-lived process
    "gpu_clock": ["{python}", "-I", "-B", "-"],
    "pystack_dump": ["{blob}", "remote", "--no-color", "--no-block", "{pid}"],
    "pystack_locals": ["{blob}", "remote", "--no-color", "--no-block", "--locals", "{pid}"],
}

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
        stderr=subprocess.PIPE, close_fds=True,
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
