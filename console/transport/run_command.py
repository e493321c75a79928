"""Runs short commands without input; cancelling the wait kills them.

asyncio's subprocesses are not used: one cancelled while it starts waits for ever (Python 3.11 to 3.13 do not wake
waiters of unconnected pipes), and one cancelled later warns on the terminal when it is garbage-collected after the loop
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import subprocess
from typing import IO

from .errors import NoDescriptors

_log = logging.getLogger(__name__)

#: Seconds between two polls for the exit of a command that has closed its outputs.
_POLL_S = 0.005


async def output(*argv: str) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of a command; killed on cancellation."""
    _log.debug("running: %s", " ".join(argv))
    process = subprocess.Popen(  # noqa: ASYNC220 - it returns once the command runs, in a millisecond
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        out, err = await asyncio.gather(_read_all(process.stdout), _read_all(process.stderr))
        while process.poll() is None:  # noqa: ASYNC110 - only waitpid reports the exit
            await asyncio.sleep(_POLL_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return process.returncode, out, err


async def _read_all(pipe: IO[bytes]) -> str:
    """Read a pipe to its end."""
    loop, fd = asyncio.get_running_loop(), pipe.fileno()
    os.set_blocking(fd, False)
    received, ended = bytearray(), loop.create_future()

    def read() -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            received.extend(data)
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(fd, read)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
    return received.decode(errors="replace")


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
