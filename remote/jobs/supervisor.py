"""Runs the commands of one job on this node, waits for them, and writes how they ended. A program of its own.

It is copied into the job's folder and started there, detached: neither the agent nor the console has to stay. It needs
nothing but the standard library of Python 3.6. Whatever the commands start ends up below it, also what leaves its
session or loses its parent (PR_SET_CHILD_SUBREAPER), so that nothing can be left without being known.
"""

import ctypes
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

#: linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
#: What a command leaves running may finish by itself (a logger that uploads) for so long; then it is asked to end,
#: and so long after that it is killed.
LINGER_S, GRACE_S = 5.0, 5.0
LOOK_S = 0.05
#: Of torchrun's report (torch/distributed/elastic/multiprocessing/errors): rank, local rank, exit code.
_ROOT_CAUSE = re.compile(r"rank\s*: (\d+) \(local_rank: (\d+)\)\s*exitcode\s*: (-?\d+)")
_KERNEL = re.compile(r"Killed process \d+|NVRM: Xid")


def main(folder: str) -> None:
    with open(os.path.join(folder, "spec.json")) as f:
        spec = json.load(f)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # it ends when the job has ended; who wants that asks the job
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _oom_kills()
    began = time.monotonic()
    commands = Commands()
    for command in spec["commands"]:
        try:
            commands.start(folder, spec, command)
        except OSError as error:
            commands.end_all(GRACE_S)
            why = "%s: %s" % (error.filename or command["argv"][0], error.strerror)
            _write(folder, "exit.json", _ending(127, None, command, [why]))
            return
    _write(folder, "supervisor.json", {
        "pid": os.getpid(), "start_ticks": _stat(os.getpid())[1], "started": int(time.time() * 1e9),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
    })  # fmt: skip
    first = commands.wait()
    ended = time.time()
    _end_what_is_left(commands)
    code = first.returncode if first.returncode >= 0 else None
    killed_by = -first.returncode if first.returncode < 0 else None
    reasons = [] if code == 0 else _story(folder, first.order) + _reasons(before, began)
    _write(folder, "exit.json", _ending(code, killed_by, first.order, reasons, ended))


class Command(object):
    """A started command of the job; `order` is its entry in spec.json."""

    def __init__(self, order: "dict[str, Any]", process: "subprocess.Popen[bytes]") -> None:
        self.order, self.process = order, process
        self.returncode = 0


class Commands(object):
    """The commands of the job; `decides` is the first that failed, or the last to end."""

    def __init__(self) -> None:
        self.running: dict[int, Command] = {}  # by pid
        self.decides: Command | None = None

    def start(self, folder: str, spec: "dict[str, Any]", command: "dict[str, Any]") -> None:
        """Start one. Raises OSError."""
        output = os.path.join(folder, command["output"])
        os.makedirs(os.path.dirname(output), 0o700, exist_ok=True)
        environment = dict(os.environ)
        for added in (spec["env"], command["env"]):
            environment.update((name, value.replace("$GCONSOLE_JOB_DIR", folder)) for name, value in added.items())
        environment["GCONSOLE_JOB_DIR"] = folder
        argv = [word.replace("$GCONSOLE_JOB_DIR", folder) for word in command["argv"]]
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stream:
            process = subprocess.Popen(
                argv, cwd=spec["workdir"] or os.path.expanduser("~"), env=environment, stdin=subprocess.DEVNULL,
                stdout=stream, stderr=subprocess.STDOUT, close_fds=True, start_new_session=True,
                preexec_fn=_as_usual,
            )  # fmt: skip
        self.running[process.pid] = Command(command, process)

    def wait(self) -> "Command":
        """Wait for all; the one that decides. Where one fails, the others are ended, who would wait for it for ever."""
        while self.running:
            self.take(block=True)
            if self.decides is not None and self.decides.returncode != 0 and self.running:
                self.end_all(GRACE_S)
        assert self.decides is not None
        return self.decides

    def take(self, block: bool = False) -> bool:
        """Take the exit of one child, also of a process that lost its parent to us; False where none has ended."""
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return False
        command = self.running.pop(pid, None)
        if command is not None:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            command.returncode = command.process.returncode = code
            if self.decides is None or (self.decides.returncode == 0 and code != 0):
                self.decides = command
        return pid != 0

    def end_all(self, grace_s: float) -> None:
        """TERM, and after the grace KILL, to what runs; to each with its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.running:
                _kill_group(pid, number)
            deadline = time.monotonic() + grace_s
            while self.running and time.monotonic() < deadline:
                if not self.take():
                    time.sleep(LOOK_S)


def _as_usual() -> None:
    """What the commands get is what a shell would give them, not what this process ignores."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _end_what_is_left(commands: "Commands") -> None:
    """The commands have ended; what they started may linger a little, and then has to go."""
    for number, patience_s in ((None, LINGER_S), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        told = set()
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            while commands.take():
                pass
            left = _descendants()
            if not left:
                return
            for pid in left if number is not None else ():
                if number is not None and pid not in told:
                    _kill(pid, number)
                    told.add(pid)
            time.sleep(LOOK_S)


def _descendants() -> "list[int]":
    table = _table()
    children: dict[int, list[int]] = {}
    for pid, (ppid, _, _) in table.items():
        children.setdefault(ppid, []).append(pid)
    found, waiting = [], list(children.get(os.getpid(), ()))
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, ())
        if table[pid][2] not in "ZX":
            found.append(pid)
    return found


def _table() -> "dict[int, tuple[int, int, str]]":
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = _stat(int(name))
            except (OSError, IndexError, ValueError):
                pass  # gone since the listing
    return found


def _stat(pid: int) -> "tuple[int, int, str]":
    """(parent, start time in ticks, state) of a process."""
    with open("/proc/%d/stat" % pid, "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19]), fields[0].decode("ascii")


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone, or it took another identity


def _kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except OSError:
        _kill(pid, number)


# -- the ranks' own words ---------------------------------------------------------------------------------------------


def _story(folder: str, command: "dict[str, Any]") -> "list[str]":
    """Which rank it was, as torchrun's report at the end of its output has it, and the last line that rank wrote."""
    local_rank, found = command.get("local_rank"), []
    if local_rank is None:
        report = _tail(os.path.join(folder, command["output"])).rpartition("Root Cause")[2]
        match = _ROOT_CAUSE.search(report)
        if match is None:
            return []
        rank, local_rank, code = (int(number) for number in match.groups())
        how = "exit code %d" % code if code >= 0 else "signal %d" % -code
        found.append("rank %d (local rank %d) ended with %s" % (rank, local_rank, how))
    files = glob.glob(os.path.join(folder, "ranks", "*", "attempt_*", str(local_rank), "*.log"))
    for path in sorted(files, key=lambda path: (os.path.dirname(path), "stderr" in path), reverse=True):
        lines = _tail(path).strip().splitlines()
        if lines:
            found.append("its last line: " + lines[-1][:500])
            break
    return found


def _tail(path: str, most: int = 32768) -> str:
    """The end of a file as text; "" where there is none."""
    try:
        with open(path, "rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - most))
            return f.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""


# -- the kernel's word -----------------------------------------------------------------------------------------------


def _reasons(before: "dict[str, int | None]", began: float) -> "list[str]":
    """What the kernel says of the time of this job: its OOM killer, and the driver's XIDs."""
    found = []
    after = _oom_kills()
    killed = {}
    for name, count in after.items():
        count_before = before[name]
        if count is not None and count_before is not None:
            killed[name] = count - count_before
    if killed.get("cgroup"):
        found.append("the kernel's OOM killer ended %d process(es) of its cgroup" % killed["cgroup"])
    elif killed.get("node"):
        found.append("the kernel's OOM killer was at work on this node meanwhile (%d)" % killed["node"])
    return found + _kernel_lines(began)


def _oom_kills() -> "dict[str, int | None]":
    """How many processes the OOM killer has ended so far, in this cgroup and on the node; None where nobody says."""
    return {"cgroup": _cgroup_kills(), "node": _number("/proc/vmstat", "oom_kill")}


def _cgroup_kills() -> "int | None":
    """Of cgroup v1 where that has the memory, else of v2."""
    lines = [line.split(":", 2) for line in (_text("/proc/self/cgroup") or "").splitlines()]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return _number("/sys/fs/cgroup/memory%s/memory.oom_control" % path, "oom_kill")
    for _, controllers, path in lines:
        if not controllers:
            return _number("/sys/fs/cgroup%s/memory.events" % path, "oom_kill")
    return None


def _kernel_lines(began: float) -> "list[str]":
    """Lines of the kernel's log since an instant of CLOCK_MONOTONIC (s) that tell of a kill or an XID; most 3."""
    found = []
    for record in _kernel_log():
        head, _, text = record.partition(";")
        fields = head.split(",")
        if len(fields) > 2 and fields[2].isdigit() and int(fields[2]) / 1e6 >= began and _KERNEL.search(text):
            found.append("kernel: " + text.splitlines()[0])
    return found[-3:]


def _kernel_log() -> "Iterator[str]":
    """Every record of it, "priority,number,µs,flags;text"; none where it may not be read."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        while True:
            try:
                yield os.read(fd, 8192).decode("utf-8", "replace")
            except BrokenPipeError:
                continue  # the ring has overtaken us
            except OSError:
                return
    finally:
        os.close(fd)


# -- files -----------------------------------------------------------------------------------------------------------


def _ending(
    code: "int | None",
    number: "int | None",
    command: "dict[str, Any]",
    reasons: "list[str]",
    ended_s: "float | None" = None,
) -> "dict[str, Any]":
    return {
        "code": code, "signal": number, "local_rank": command.get("local_rank"), "reasons": reasons,
        "ended": int((ended_s or time.time()) * 1e9),
    }  # fmt: skip


def _write(folder: str, name: str, value: "Any") -> None:
    path = os.path.join(folder, name)
    with open(os.open(path + ".draft", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        json.dump(value, f)
    os.rename(path + ".draft", path)


def _text(path: str) -> "str | None":
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return None


def _number(path: str, name: str) -> "int | None":
    for line in (_text(path) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


if __name__ == "__main__":
    main(os.path.dirname(os.path.abspath(sys.argv[0])))
