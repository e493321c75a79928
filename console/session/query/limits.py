"""What a process that answers questions may take of this machine, whatever the question."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from typing import Final

#: DuckDB counts what it keeps in its own buffers, and not what one call makes at once (`repeat('x', 4e9)`): that
#: ends here, as an allocation that fails, which DuckDB turns into an error of its own. Its threads, one a CPU, have
#: stacks and pools beside that.
MOST_BYTES: Final = (4 << 30) + (os.cpu_count() or 1) * (16 << 20)


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Meanwhile this process gets no more. Where the system knows no such limit, DuckDB's own has to do."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (*before, MOST_BYTES) if limit != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(known), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, before)
