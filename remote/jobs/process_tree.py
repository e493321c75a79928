"""All processes of a job on this node, also those that have left their session or their parent, and ending them."""

import os
import signal
import time

from ..proc.procfs import GONE, ProcFs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

#: Between two looks while processes are ending.
LOOK_S = 0.05


def marked(job: str, index: int, proc: "ProcFs | None" = None) -> "dict[int, int]":
    """{pid: start_ticks} of the living processes that carry the job's mark in their environment."""
    proc = proc or ProcFs()
    wanted = {b"GCONSOLE_JOB=" + job.encode(), b"GCONSOLE_NODE_RANK=%d" % index}
    found = {}
    for name in proc.names():
        if not name.isdigit():
            continue
        try:
            if not wanted.issubset(proc.read(name, "environ").split(b"\0")):
                continue
            stat = proc.stat(name)
        except (OSError, ValueError, IndexError):
            continue  # gone, or of somebody else: a job's processes are our own
        if not stat.dead:
            found[int(name)] = stat.start_ticks
    return found


def below(pid: int, proc: "ProcFs | None" = None) -> "dict[int, int]":
    """{pid: start_ticks} of the living descendants of a process, itself not among them."""
    proc = proc or ProcFs()
    children: dict[int, list[int]] = {}
    ticks = {}
    for name in proc.names():
        if not name.isdigit():
            continue
        try:
            stat = proc.stat(name)
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(stat.ppid, []).append(int(name))
        if not stat.dead:
            ticks[int(name)] = stat.start_ticks
    found = {}
    waiting = list(children.get(pid, ()))
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, ())
        if one in ticks:
            found[one] = ticks[one]
    return found


def members(job: str, index: int, watcher: "int | None") -> "dict[int, int]":
    """All living processes of the job here: by their mark, and by their descent from what watches it."""
    proc = ProcFs()
    found = marked(job, index, proc)
    if watcher is not None:
        found.update(below(watcher, proc))
        found.pop(watcher, None)
    found.pop(os.getpid(), None)
    return found


def end(
    list_members: "Callable[[], dict[int, int]]", grace_s: float, kill_s: float = 5.0
) -> "tuple[int, dict[int, int]]":
    """TERM to every process, KILL to those that are there after the grace; (how many at first, who is left).

    `list_members` gives {pid: start_ticks}; it is asked again and again, for those that were born meanwhile.
    """
    first = list_members()
    told: set[tuple[int, int]] = set()
    deadline = time.monotonic() + grace_s
    left = first
    while left and time.monotonic() < deadline:
        fresh = {one: ticks for one, ticks in left.items() if (one, ticks) not in told}
        _send(fresh, signal.SIGTERM)
        _send(fresh, signal.SIGCONT)  # a stopped process hears of its end only when it goes on
        told.update(fresh.items())
        time.sleep(LOOK_S)
        left = list_members()
    deadline = time.monotonic() + kill_s
    while left and time.monotonic() < deadline:
        _send(left, signal.SIGKILL)
        time.sleep(LOOK_S)
        left = list_members()
    return len(first), left


def _send(processes: "dict[int, int]", number: int) -> None:
    proc = ProcFs()
    for pid, ticks in processes.items():
        try:
            if pid > 1 and proc.stat(pid).start_ticks == ticks:  # that very process, not one that got its number
                os.kill(pid, number)
        except GONE:
            pass
        except PermissionError:
            pass  # it took another identity: it stays in the list of those that are left
