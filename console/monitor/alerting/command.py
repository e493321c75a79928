"""Runs the command of a rule: no shell, a minimal environment, a time limit, bounded output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from .payload import clean

#: Bytes of output that are kept; the rest is read and dropped.
_MOST_OUTPUT: Final = 16_384
#: Lines of output in a result.
_MOST_LINES: Final = 20
#: Seconds from SIGTERM to SIGKILL of a command that exceeds its time limit.
_GRACE_S: Final = 2.0
#: Seconds for which output is read after a command has ended.
_LEFT_S: Final = 1.0
#: Variables that every command gets, if they are set.
_PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended. `text` is one sentence; `output` the first lines of stdout and stderr, without secrets."""

    is_ok: bool
    text: str
    output: tuple[str, ...] = ()


def environment(names: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a command: the usual variables and those of `names`."""
    return {name: environ[name] for name in (*_PASSED, *names) if name in environ}


async def run(argv: Sequence[str], stdin: bytes, timeout_s: float, env: Mapping[str, str]) -> CommandResult:
    """Run a command in a process group of its own, which is killed when its time is over."""
    kept = bytearray()
    reading, writing = os.pipe()
    drained = await _drain_into(kept, reading)
    try:
        with tempfile.TemporaryFile() as document:
            document.write(stdin)
            document.seek(0)
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=document, stdout=writing, stderr=writing, env=dict(env), cwd="/", start_new_session=True
            )
    except (OSError, ValueError) as error:
        drained.transport.close()
        return CommandResult(False, clean(f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}"))
    finally:
        os.close(writing)
    try:
        async with asyncio.timeout(timeout_s):
            status = await process.wait()
    except TimeoutError:
        return CommandResult(False, clean(f"{argv[0]} was ended after {timeout_s:g} s"), _lines(kept))
    finally:
        await _end(process)
        await asyncio.wait({drained.ended}, timeout=_LEFT_S)  # a child in the background may hold its output open
        drained.transport.close()
    ended = f"exit code {status}" if status >= 0 else f"signal {-status}"
    return CommandResult(status == 0, clean(f"{argv[0]} ended with {ended}"), _lines(kept))


class _Output(asyncio.Protocol):
    """Reads a pipe to its end and keeps its beginning."""

    def __init__(self, kept: bytearray, ended: asyncio.Future[None]) -> None:
        self._kept, self.ended = kept, ended
        self.transport: asyncio.ReadTransport

    def data_received(self, data: bytes) -> None:
        """Keep what fits."""
        self._kept += data[: max(0, _MOST_OUTPUT - len(self._kept))]

    def connection_lost(self, exc: Exception | None) -> None:
        """The last writer closed the pipe, or it was closed here."""
        if not self.ended.done():
            self.ended.set_result(None)


async def _drain_into(kept: bytearray, fd: int) -> _Output:
    loop = asyncio.get_running_loop()
    output = _Output(kept, loop.create_future())
    output.transport, _ = await loop.connect_read_pipe(lambda: output, os.fdopen(fd, "rb", buffering=0))
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a command that still runs, with its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        except TimeoutError:
            continue


def _lines(output: bytearray) -> tuple[str, ...]:
    lines = output.decode(errors="replace").splitlines()
    return tuple(clean(line, 500) for line in lines[:_MOST_LINES])
