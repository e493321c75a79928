"""asyncssh, imported without starting other programs.

asyncssh searches for liboqs with `ctypes.util.find_library`, which runs ldconfig, gcc and ld: 0.02 to 0.1 s of each
start. The loader's cache answers the same: a library that is not in it cannot be loaded by the name that they find.
"""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["asyncssh"]

CACHE = Path("/etc/ld.so.cache")


def may_be_loadable(name: str, cache: Path = CACHE) -> bool:
    """Whether the loader may find the library lib`name`; True where that is unknown."""
    if os.environ.get("LD_LIBRARY_PATH"):
        return True
    try:
        return f"lib{name}.so".encode() in cache.read_bytes()
    except OSError:
        return True  # another loader


@contextmanager
def _searching_in_cache() -> Iterator[None]:
    search = ctypes.util.find_library

    def find_library(name: str) -> str | None:
        return search(name) if may_be_loadable(name) else None

    ctypes.util.find_library = find_library
    try:
        yield
    finally:
        ctypes.util.find_library = search


with _searching_in_cache():
    import asyncssh
