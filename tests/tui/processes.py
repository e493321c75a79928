"""Descendants of a process, and waiting until they have ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

DEADLINE_S = 90.0


def processes_of(pid: int) -> list[int]:
    """All descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    descendants = [pid]
    for parent in descendants:
        descendants += [child for child, its_parent in parents.items() if its_parent == parent]
    return descendants[1:]


def until_none_is_left(pids: Sequence[int]) -> None:
    """Wait until these processes have ended; zombies count as ended."""
    end = time.monotonic() + DEADLINE_S
    while running := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < end, f"still there: {[_command(pid) for pid in running]}"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return str(pid)
