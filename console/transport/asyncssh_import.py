"""asyncssh, imported without starting other programs.

asyncssh searches for libraries of further algorithms with `ctypes.util.find_library`, which runs ldconfig, gcc and ld:
0.02 to 0.1 s of each start. The loader's cache answers the same: a library that is not in it cannot be loaded by the
name that they find.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["asyncssh"]

CACHE = Path("/etc/ld.so.cache")


def find_library(name: str, cache: Path = CACHE) -> str | None:
    """The name by which the loader loads lib`name`, as from `ctypes.util.find_library`; None if it cannot."""
    if os.environ.get("LD_LIBRARY_PATH"):
        return _search(name)
    try:
        listed = cache.read_bytes()
    except OSError:
        return _search(name)  # another loader
    names = re.findall(rb"[/\0](lib%s\.so[^/\0]*)\0" % re.escape(name.encode()), listed)
    newest_first = map(os.fsdecode, sorted(names, key=_version, reverse=True))
    return next(filter(_is_loadable, newest_first), None)


def _version(name: bytes) -> list[int]:
    return [int(number) for number in re.findall(rb"[0-9]+", name.partition(b".so")[2])]


def _is_loadable(name: str) -> bool:
    """Whether the loader loads it: one for another processor is listed, too."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


_search = ctypes.util.find_library


@contextmanager
def _searching_in_cache() -> Iterator[None]:
    ctypes.util.find_library = find_library
    try:
        yield
    finally:
        ctypes.util.find_library = _search


with _searching_in_cache():
    import asyncssh
