"""Lists processes from /proc, and ends them."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.5
KILL_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Process:
    """One process of a node: its pid on the node, and its pid in the test's namespace (equal without namespaces)."""

    pid: int
    outer: int


def start_ticks(pid: int) -> int | None:
    """Start time of a process, in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def all_pids() -> Iterator[int]:
    return (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())


def in_pid_namespace(inode: int) -> list[Process]:
    """Every process whose PID namespace is `inode`, its init and zombies included."""
    processes = []
    for pid in all_pids():
        try:
            if Path(f"/proc/{pid}/ns/pid").stat().st_ino != inode:
                continue
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it ended after the listing
        inner = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
        processes.append(Process(int(inner), pid))
    return processes


def with_variable(name: str, value: str, exact: bool = True) -> list[Process]:
    """Every readable process with NAME=VALUE in its environment; `exact=False` matches VALUE as a prefix."""
    wanted = f"{name}={value}".encode()
    processes = []
    for pid in all_pids():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(text == wanted or (not exact and text.startswith(wanted)) for text in variables):
            processes.append(Process(pid, pid))
    return processes


def descendants(root: int) -> list[int]:
    """All descendants of `root`, without `root`."""
    pids, waiting = [], [root]
    while waiting:
        below = _children(waiting.pop())
        pids += below
        waiting += below
    return pids


def _children(pid: int) -> list[int]:
    # Not a scan of /proc: benchmarks keep thousands of processes alive beside a rig.
    pids = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += [int(child) for child in children.read_text().split()]
        except OSError:
            continue  # that thread has ended
    return pids


def name_of(pid: int) -> str:
    """The short name of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end(pids: Iterable[int], grace_s: float = GRACE_S) -> None:
    """SIGTERM, after `grace_s` SIGKILL (at once if 0); TimeoutError if a process does not end even then."""
    alive = {pid: start_ticks(pid) for pid in pids}
    alive = {pid: ticks for pid, ticks in alive.items() if ticks is not None}
    kill_at = time.monotonic() + grace_s
    for pid in alive if grace_s else ():
        _send(pid, signal.SIGTERM)
        _send(pid, signal.SIGCONT)  # a stopped process does not handle SIGTERM
    while alive:
        alive = {pid: ticks for pid, ticks in alive.items() if start_ticks(pid) == ticks}
        if time.monotonic() >= kill_at:
            for pid in alive:
                _send(pid, signal.SIGKILL)
        if alive and time.monotonic() > kill_at + KILL_DEADLINE_S:
            raise TimeoutError(f"still alive {KILL_DEADLINE_S} s after SIGKILL: {sorted(alive)}")
        time.sleep(0.01)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself
