"""The processes of a job on this node, also those that left their session or parent, and how to terminate them."""

import os
import signal
import time

from ..proc.procfs import GONE, ProcFs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

#: Seconds between two listings while processes terminate.
POLL_S = 0.05


def with_job_environment(job: str, index: int, procfs: "ProcFs | None" = None) -> "dict[int, int]":
    """{pid: start_ticks} of the living processes that carry the job's variables in their environment."""
    procfs = procfs or ProcFs()
    variables = {b"GCONSOLE_JOB=" + job.encode(), b"GCONSOLE_NODE_RANK=%d" % index}
    processes = {}
    for name in procfs.names():
        if not name.isdigit():
            continue
        try:
            if not variables.issubset(procfs.read(name, "environ").split(b"\0")):
                continue
            stat = procfs.stat(name)
        except (OSError, ValueError, IndexError):
            continue  # gone, or another user's: a job's processes are our own
        if not stat.dead:
            processes[int(name)] = stat.start_ticks
    return processes


def descendants(pid: int, procfs: "ProcFs | None" = None) -> "dict[int, int]":
    """{pid: start_ticks} of the living descendants of a process, without itself."""
    procfs = procfs or ProcFs()
    children: dict[int, list[int]] = {}
    living = {}
    for name in procfs.names():
        if not name.isdigit():
            continue
        try:
            stat = procfs.stat(name)
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(stat.ppid, []).append(int(name))
        if not stat.dead:
            living[int(name)] = stat.start_ticks
    processes = {}
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        waiting += children.get(child, ())
        if child in living:
            processes[child] = living[child]
    return processes


def members(job: str, index: int, supervisor: "int | None") -> "dict[int, int]":
    """{pid: start_ticks} of the job's living processes here, by environment and by descent from its supervisor."""
    procfs = ProcFs()
    processes = with_job_environment(job, index, procfs)
    if supervisor is not None:
        processes.update(descendants(supervisor, procfs))
        processes.pop(supervisor, None)
    processes.pop(os.getpid(), None)
    return processes


def terminate(
    list_processes: "Callable[[], dict[int, int]]", grace_s: float, kill_s: float = 5.0
) -> "tuple[int, dict[int, int]]":
    """SIGTERM every process, SIGKILL those that are left after `grace_s`: (how many at first, {pid: start_ticks} left).

    `list_processes` gives {pid: start_ticks}; it is called until nothing is left, because processes may fork.
    """
    first = left = list_processes()
    signalled: set[tuple[int, int]] = set()
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        fresh = {pid: ticks for pid, ticks in left.items() if (pid, ticks) not in signalled}
        _send(fresh, signal.SIGTERM)
        _send(fresh, signal.SIGCONT)  # a stopped process handles SIGTERM only when it continues
        signalled.update(fresh.items())
        time.sleep(POLL_S)
        left = list_processes()
    deadline = time.monotonic() + kill_s
    while left and time.monotonic() < deadline:
        _send(left, signal.SIGKILL)
        time.sleep(POLL_S)
        left = list_processes()
    return len(first), left


def _send(processes: "dict[int, int]", number: int) -> None:
    procfs = ProcFs()
    for pid, ticks in processes.items():
        try:
            if pid > 1 and procfs.stat(pid).start_ticks == ticks:  # not another process that reuses the pid
                os.kill(pid, number)
        except GONE:
            pass
        except PermissionError:
            pass  # it changed its uid: it stays among those that are left
