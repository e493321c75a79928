"""Every command the agent may run, in one list; nothing else is ever started."""

import importlib
import os
import signal
import subprocess
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: name → the arguments; `{blob}` is replaced by the path of a program whose content or place was checked, `{pid}` by a
#: number.
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
    # what watches a job that `gconsole run start` ordered; the job's own commands are its children
    "job_supervisor": ["{python}", "-I", "-B", "{program}"],
    # `gputimer`, whose text it reads: the CUDA driver is loaded in a process that goes away
    "gpu_clock": ["{python}", "-I", "-B", "-"],
    "pystack_dump": ["{blob}", "remote", "--no-color", "--no-block", "{pid}"],
    "pystack_locals": ["{blob}", "remote", "--no-color", "--no-block", "--locals", "{pid}"],
}

#: A killed command that is not gone after this (it hangs in the kernel) is left to a thread that waits for it.
REAP_S = 0.5

_running: "set[subprocess.Popen[bytes]]" = set()
_lock = threading.Lock()


class NoAnswer(Exception):
    """A command did not end in time; it and all it started were killed."""


def run(name: str, timeout_s: float, blob: "str | None" = None) -> "tuple[int | None, str]":
    """(exit status, what it wrote) of a listed command; the status is None where it could not be run in time."""
    try:
        status, out, err = run_apart(name, timeout_s, blob)
    except OSError as error:
        return None, str(error)
    except NoAnswer as error:
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
    """(exit status, stdout, stderr) of a listed command, which reads `given`. Raises OSError where it does not start,
    NoAnswer."""
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
        raise NoAnswer("no answer within %.1f s" % timeout_s)
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
    """Kill whatever still runs; for an agent that ends."""
    with _lock:
        for process in _running:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended by itself


def _reap(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.communicate(timeout=REAP_S)
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.communicate, name="gconsole-reap", daemon=True).start()
