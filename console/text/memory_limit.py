"""The memory limit of a process that reads files of other people."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

#: Bytes. DuckDB limits its own buffers, but not what one call allocates at once (`repeat('x', 4e9)`); that fails at
#: this limit, and DuckDB reports the error. Its threads, one per CPU, have stacks and pools beside that.
LIMIT_BYTES: Final = (4 << 30) + (os.cpu_count() or 1) * (16 << 20)


def limit_memory(limit: int = LIMIT_BYTES) -> None:
    """Limit what this process allocates from now on to `limit` bytes beyond what it has, where supported.

    Only for a process that exists for one command or for queries alone: the limit holds for all its threads.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [bound for bound in (*before, _data_bytes() + limit) if bound != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))


def _data_bytes() -> int:
    """Data segment of this process in bytes, which RLIMIT_DATA counts; 0 where /proc is not mounted."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
