"""Short commands without input, and what they say. Whoever stops waiting leaves nothing of them behind.

asyncio's own subprocesses are not for that: one that is cancelled while it starts waits for ever (Python 3.11 to 3.13
wake nobody whose pipes were not connected yet), and one that is cancelled later is closed by the garbage collector,
which finds the loop gone and says so on the user's terminal.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import IO

#: How often it is looked whether a command that has closed its outputs is over, in seconds.
_LOOK_S = 0.005


async def output(*argv: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a command; it is killed when the wait is cancelled."""
    process = subprocess.Popen(  # noqa: ASYNC220 - it returns once the command runs, in a millisecond
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        out, err = await asyncio.gather(_until_end(process.stdout), _until_end(process.stderr))
        while process.poll() is None:  # noqa: ASYNC110 - nobody tells of its end but the kernel, when asked
            await asyncio.sleep(_LOOK_S)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    return process.returncode, out, err


async def _until_end(pipe: IO[bytes]) -> str:
    """All that comes through a pipe."""
    loop, fd = asyncio.get_running_loop(), pipe.fileno()
    os.set_blocking(fd, False)
    said, ended = bytearray(), loop.create_future()

    def read() -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            said.extend(data)
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(fd, read)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
    return said.decode(errors="replace")
