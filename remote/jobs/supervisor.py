"""Standalone program: runs the commands of one job on this node and writes their exit status.

`write_program` copies it and the modules that it needs into the job's folder, where it is started detached: it needs
neither the agent, nor the cache, nor the console any more. Everything that the commands start stays below it, also what
leaves its session or loses its parent (PR_SET_CHILD_SUBREAPER).
"""

import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import time

from ..kernel.log import KernelLog
from ..proc.procfs import ProcFs, read_text
from . import terminate_processes, write_times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable

#: linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
#: Seconds. Processes that a command leaves behind may finish by themselves (a logger that uploads) within LINGER_S;
#: then they get SIGTERM, and GRACE_S later SIGKILL.
LINGER_S, GRACE_S = 5.0, 5.0
#: The modules that the program consists of; packages first, as {name below the agent's package: is a package}.
_MODULES = (
    ("", True), ("jobs", True), ("kernel", True), ("proc", True),
    ("jobs.terminate_processes", False), ("jobs.write_times", False), ("jobs.supervisor", False),
    ("kernel.log", False), ("proc.procfs", False),
)  # fmt: skip
_MAIN = """import os
import sys

folder = os.path.dirname(os.path.abspath(sys.argv[0]))
sys.path.insert(0, os.path.join(folder, "lib"))
from %s import main

main(folder)
"""


def write_program(folder: str, source_of: "Callable[[str], str]") -> None:
    """Write `supervisor.py` and its modules to the folder of a job. Raises OSError.

    `source_of` gives the source of a module by its full name.
    """
    package = __name__.rpartition(".jobs.")[0]
    for name, is_package in _MODULES:
        module = ".".join(filter(None, (package, name)))
        path = os.path.join(folder, "lib", *module.split("."))
        if is_package:
            os.makedirs(path, 0o700)
            path = os.path.join(path, "__init__")
        _create(path + ".py", source_of(module))
    _create(os.path.join(folder, "supervisor.py"), _MAIN % __name__)


def _create(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
        f.write(text)


def main(folder: str) -> None:
    """Run the job in `folder` to its end; the outcome is `exit.json`."""
    with open(os.path.join(folder, "spec.json")) as f:
        spec = json.load(f)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # it ends with the job, and only `gconsole run stop` ends the job
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    oom_kills = _oom_kills()
    began = time.monotonic()
    commands = Commands()
    for command in spec["commands"]:
        try:
            commands.start(folder, spec, command)
        except OSError as error:
            commands.terminate(GRACE_S)
            reason = "%s: %s" % (error.filename or command["argv"][0], error.strerror)
            _write(folder, "exit.json", _ending(127, None, command, [reason]))
            return
    _write(folder, "supervisor.json", {
        "pid": os.getpid(), "start_ticks": ProcFs().stat(os.getpid()).start_ticks, "started": int(time.time() * 1e9),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
    })  # fmt: skip
    writes = write_times.WriteTimes(folder)  # a thread: only after the last fork with a preexec_fn
    first = commands.wait()
    ended = time.time()
    _terminate_leftovers(commands)
    writes.close()
    code = first.returncode if first.returncode >= 0 else None
    killed_by = -first.returncode if first.returncode < 0 else None
    reasons = [] if code == 0 else _failed_rank(folder, first.order) + _kernel_reasons(oom_kills, began)
    _write(folder, "exit.json", _ending(code, killed_by, first.order, reasons, ended))


class Command(object):
    """A started command of the job; `order` is its entry in spec.json."""

    def __init__(self, order: "dict[str, Any]", process: "subprocess.Popen[bytes]") -> None:
        self.order, self.process = order, process
        self.returncode = 0


class Commands(object):
    """The commands of the job; `decisive` is the first that failed, else the last that ended."""

    def __init__(self) -> None:
        self.running: dict[int, Command] = {}  # by pid
        self.decisive: Command | None = None

    def start(self, folder: str, spec: "dict[str, Any]", order: "dict[str, Any]") -> None:
        """Start one command. Raises OSError."""
        output = os.path.join(folder, order["output"])
        errors = os.path.join(folder, order.get("errors") or order["output"])  # O_APPEND: one file may have both
        os.makedirs(os.path.dirname(output), 0o700, exist_ok=True)
        environment = dict(os.environ)
        for added in (spec["env"], order["env"]):
            environment.update((name, value.replace("$GCONSOLE_JOB_DIR", folder)) for name, value in added.items())
        environment["GCONSOLE_JOB_DIR"] = folder
        argv = [word.replace("$GCONSOLE_JOB_DIR", folder) for word in order["argv"]]
        with _appended(output) as stream, _appended(errors) as error_stream:
            process = subprocess.Popen(
                argv, cwd=spec["workdir"] or os.path.expanduser("~"), env=environment, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=error_stream, close_fds=True, start_new_session=True,
                preexec_fn=_reset_signals,
            )  # fmt: skip
        self.running[process.pid] = Command(order, process)

    def wait(self) -> "Command":
        """Wait for all commands; the decisive one. When one fails, the others are terminated."""
        while self.running:
            self.reap(block=True)
            if self.decisive is not None and self.decisive.returncode != 0 and self.running:
                self.terminate(GRACE_S)
        assert self.decisive is not None
        return self.decisive

    def reap(self, block: bool = False) -> bool:
        """Collect the exit status of one child, also of an adopted one; False when none has ended."""
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return False
        command = self.running.pop(pid, None)
        if command is not None:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            command.returncode = command.process.returncode = code
            if self.decisive is None or (self.decisive.returncode == 0 and code != 0):
                self.decisive = command
        return pid != 0

    def processes(self) -> "dict[int, int]":
        """{pid: start_ticks} of everything below this process, after reaping."""
        while self.reap():
            pass
        return terminate_processes.descendants(os.getpid())

    def terminate(self, grace_s: float) -> None:
        """Terminate the process groups of the commands that still run."""
        terminate_processes.terminate(self._group_members, grace_s, grace_s)

    def _group_members(self) -> "dict[int, int]":
        processes = self.processes()
        return {pid: ticks for pid, ticks in processes.items() if _process_group(pid) in self.running}


def _appended(path: str) -> "IO[bytes]":
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _process_group(pid: int) -> "int | None":
    try:
        return os.getpgid(pid)
    except OSError:
        return None  # gone


def _reset_signals() -> None:
    """Give the commands the signal handling of a shell, not that of this process."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _terminate_leftovers(commands: "Commands") -> None:
    """Wait LINGER_S for what the ended commands left running, then terminate it."""
    deadline = time.monotonic() + LINGER_S
    while commands.processes() and time.monotonic() < deadline:
        time.sleep(terminate_processes.POLL_S)
    terminate_processes.terminate(commands.processes, GRACE_S, GRACE_S)


# -- why it failed ----------------------------------------------------------------------------------------------------


def _failed_rank(folder: str, order: "dict[str, Any]") -> "list[str]":
    """The rank that torchrun's report at the end of the output names, and the last line that this rank wrote."""
    local_rank = order.get("local_rank")
    reasons: list[str] = []
    if local_rank is None:
        report = _tail(os.path.join(folder, order["output"])).rpartition("Root Cause")[2]
        # torch/distributed/elastic/multiprocessing/errors: rank, local rank, exit code
        match = re.search(r"rank\s*: (\d+) \(local_rank: (\d+)\)\s*exitcode\s*: (-?\d+)", report)
        if match is None:
            return []
        rank, local_rank, code = (int(number) for number in match.groups())
        how = "exit code %d" % code if code >= 0 else "signal %d" % -code
        reasons.append("rank %d (local rank %d) ended with %s" % (rank, local_rank, how))
    paths = glob.glob(os.path.join(folder, "ranks", "*", "attempt_*", str(local_rank), "*.log"))
    for path in sorted(paths, key=lambda path: (os.path.dirname(path), "stderr" in path), reverse=True):
        lines = _tail(path).strip().splitlines()
        if lines:
            reasons.append("its last line: " + lines[-1][:500])
            break
    return reasons


def _tail(path: str, limit: int = 32768) -> str:
    """The last `limit` bytes of a file as text; "" if it cannot be read."""
    try:
        with open(path, "rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - limit))
            return f.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def _kernel_reasons(before: "dict[str, int | None]", began: float) -> "list[str]":
    """OOM kills since the counts `before`, and kernel log lines on OOM and XIDs since `began` (CLOCK_MONOTONIC, s)."""
    kills = {}
    for name, count in _oom_kills().items():
        count_before = before[name]
        if count is not None and count_before is not None:
            kills[name] = count - count_before
    reasons = []
    if kills.get("cgroup"):
        reasons.append("the OOM killer ended %d process(es) of the job's cgroup" % kills["cgroup"])
    elif kills.get("node"):
        reasons.append("the OOM killer ended %d process(es) on this node during the job" % kills["node"])
    return reasons + _kernel_lines(began)


def _oom_kills() -> "dict[str, int | None]":
    """OOM kills so far in this cgroup and on the node; None where the kernel does not count them."""
    return {"cgroup": _cgroup_oom_kills(), "node": _counter("/proc/vmstat", "oom_kill")}


def _cgroup_oom_kills() -> "int | None":
    """From cgroup v1 if that has the memory controller, else from v2."""
    lines = [line.split(":", 2) for line in (read_text("/proc/self/cgroup") or "").splitlines()]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return _counter("/sys/fs/cgroup/memory%s/memory.oom_control" % path, "oom_kill")
    for _, controllers, path in lines:
        if not controllers:
            return _counter("/sys/fs/cgroup%s/memory.events" % path, "oom_kill")
    return None


def _kernel_lines(began: float) -> "list[str]":
    """The last three lines of the kernel log since `began` (CLOCK_MONOTONIC, s) about an OOM kill or an XID."""
    log = KernelLog(is_whole=True)
    since = (text for at_s, text in log.messages() if at_s >= began)
    lines = ["kernel: " + text for text in since if re.search(r"Killed process \d+|NVRM: Xid", text)]
    log.close()
    return lines[-3:]


# -- files ------------------------------------------------------------------------------------------------------------


def _ending(
    code: "int | None",
    number: "int | None",
    order: "dict[str, Any]",
    reasons: "list[str]",
    ended_s: "float | None" = None,
) -> "dict[str, Any]":
    return {
        "code": code, "signal": number, "local_rank": order.get("local_rank"), "reasons": reasons,
        "ended": int((ended_s or time.time()) * 1e9),
    }  # fmt: skip


def _write(folder: str, name: str, value: "Any") -> None:
    path = os.path.join(folder, name)
    with open(os.open(path + ".draft", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        json.dump(value, f)
    os.rename(path + ".draft", path)


def _counter(path: str, name: str) -> "int | None":
    for line in (read_text(path) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
