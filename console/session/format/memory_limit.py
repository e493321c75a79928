"""The memory limit of a process that reads files of other people."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Bytes. DuckDB limits its own buffers, but not what one call allocates at once (`repeat('x', 4e9)`); that fails at
#: this limit, and DuckDB reports the error. Its threads, one per CPU, have stacks and pools beside that.
LIMIT_BYTES: Final = (4 << 30) + (os.cpu_count() or 1) * (16 << 20)


_lock: Final = threading.Lock()
_before: list[tuple[int, int]] = []  # the outer limit, once for every block that is open, in any thread


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit what this process allocates meanwhile to `LIMIT_BYTES` beyond what it has now, where supported."""
    with _lock:
        before = _before[0] if _before else resource.getrlimit(resource.RLIMIT_DATA)
        if not _before:
            limit_memory(LIMIT_BYTES)
        _before.append(before)
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                _set(before)


def limit_memory(limit: int) -> None:
    """Limit what this process allocates from now on to `limit` bytes beyond what it has, where supported."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [bound for bound in (*before, _data_bytes() + limit) if bound != resource.RLIM_INFINITY]
    _set((min(limits), before[1]))


def _set(limits: tuple[int, int]) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def _data_bytes() -> int:
    """Data segment of this process in bytes, which RLIMIT_DATA counts; 0 where /proc is not mounted."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
