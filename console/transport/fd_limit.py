"""File descriptor limit: each connection takes a few descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from .errors import NoDescriptors


def raise_limit(nodes: int) -> None:
    """Raise the soft limit for `nodes` connections; the default (1,024; 256 on macOS) is too small for a fleet."""
    wanted = 256 + 4 * nodes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(
            ValueError, OSError
        ):  # macOS has a lower limit; connections then fail with NoDescriptors
            resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def require_some() -> None:
    """Raise NoDescriptors where none is left.

    Checked before connecting: otherwise an unrelated error shows first (even the user name lookup fails).
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise NoDescriptors(
            f"no file descriptor left for another connection (limit {limit})",
            "raise the limit with ulimit -n before starting; each node takes three",
        ) from error
