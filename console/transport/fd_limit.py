"""File descriptors: every connection takes a few, and without any nothing else works as it says it does."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from .errors import NoDescriptors


def raise_limit(nodes: int) -> None:
    """A connection takes a few descriptors; the usual soft limit of 1,024 (256 on macOS) is small for a fleet."""
    wanted = 256 + 4 * nodes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit of its own; connections then say so
            resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def require_some() -> None:
    """Raises NoDescriptors where there is none left.

    Asked before a connection is made: without one, even the name of this user is "not found", and what would be said
    were the last thing that went wrong for it.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise NoDescriptors(
            f"this console has no file descriptor left for another connection (its limit is {limit})",
            "ulimit -n, before it is started; each node takes three",
        ) from error
