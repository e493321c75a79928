"""One browser session: a console process whose output is sent to the browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

#: Seconds. Grace period of the console after a quit request (its fleet needs up to 2.5 s), then after SIGTERM.
LEAVE_S, TERM_S = 6.0, 2.0
#: Characters of stderr that are kept.
STDERR_LIMIT: Final = 8000
DRIVER: Final = "gconsole.web.terminal.driver:BrowserDriver"
#: Line that Textual's web driver writes before its first packet.
_PREAMBLE: Final = b"__GANGLION__\n"
#: Allowed terminal sizes in cells, both ends included; other sizes are clamped.
WIDTHS, HEIGHTS = (20, 1000), (5, 500)


class BrowserSession:
    """A console process. `write` receives its output, `leaving` is set when it starts to end, `gone` when it has ended.

    `argv` is executed without a shell. Packets in both directions, as Textual's web driver has them: one byte of type
    ("D" data, "M" JSON), four bytes of length (big endian), the content.
    """

    def __init__(self, argv: Sequence[str], write: Callable[[bytes], Awaitable[None]]) -> None:
        self._argv, self._write = argv, write
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._stderr = b""
        self.leaving, self.gone = asyncio.Event(), asyncio.Event()

    @property
    def stderr(self) -> str:
        """End of what the process wrote to stderr."""
        return self._stderr.decode(errors="replace")[-STDERR_LIMIT:].strip()

    async def start(self, width: int, height: int) -> None:
        """Start the process with a clamped terminal size. Raises OSError.

        It leads a session of its own, so that Ctrl-C in the terminal of the server reaches only the server.
        """
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment(width, height),
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            self.gone.set()
            raise
        self._task = asyncio.create_task(self._run(self._process))

    async def send_input(self, data: bytes) -> None:
        """Send keys, pasted text or mouse reports."""
        await self._send(b"D", data)

    async def send_event(self, kind: str, **values: int) -> None:
        """Send an event of Textual's web driver: focus, blur or quit."""
        await self._send(b"M", json.dumps({"type": kind, **values}).encode())

    async def resize(self, width: int, height: int) -> None:
        """Resize the terminal, clamped to the allowed sizes."""
        await self.send_event("resize", width=clamp(width, WIDTHS), height=clamp(height, HEIGHTS))

    async def _send(self, kind: bytes, data: bytes) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(ConnectionError, RuntimeError):  # the process has ended, which `ended` reports
            self._process.stdin.write(kind + len(data).to_bytes(4, "big") + data)
            await self._process.stdin.drain()

    async def _run(self, process: Process) -> None:
        """Forward output until the process ends, then kill what is left of its group."""
        assert process.stdout is not None and process.stderr is not None
        reading_stderr = asyncio.create_task(self._read_stderr(process.stderr))
        try:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while await process.stdout.readline() not in (_PREAMBLE, b""):
                    pass
                while True:
                    await self._forward_packet(process.stdout)
            await process.wait()
        finally:
            self.leaving.set()
            _signal_group(process, signal.SIGKILL)
            await process.wait()
            await reading_stderr
            self.gone.set()

    async def _forward_packet(self, stdout: asyncio.StreamReader) -> None:
        kind = await stdout.readexactly(1)
        payload = await stdout.readexactly(int.from_bytes(await stdout.readexactly(4), "big"))
        if kind == b"D":
            await self._write(payload)

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4096):
            self._stderr = (self._stderr + data)[-4 * STDERR_LIMIT :]

    async def ended(self) -> None:
        """Wait until the process has ended. Raises what failed in forwarding."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Request the end of the process; send SIGTERM, then SIGKILL to its group if it does not end in time."""
        self.leaving.set()
        if self._task is None or self._process is None:
            return
        await self.send_event("quit")
        for grace_s, number in ((LEAVE_S, signal.SIGTERM), (TERM_S, signal.SIGKILL)):
            done, _ = await asyncio.wait({self._task}, timeout=grace_s)
            if done:
                break
            _signal_group(self._process, number)
        await asyncio.wait({self._task})


def clamp(value: int, bounds: tuple[int, int]) -> int:
    """The value, or the bound that it exceeds."""
    return max(bounds[0], min(value, bounds[1]))


def _environment(width: int, height: int) -> Mapping[str, str]:
    return {
        **os.environ, "TEXTUAL_DRIVER": DRIVER, "TEXTUAL_FPS": "60", "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color", "TERM_PROGRAM": "gconsole", "COLUMNS": str(clamp(width, WIDTHS)),
        "ROWS": str(clamp(height, HEIGHTS)),
    }  # fmt: skip


def _signal_group(process: Process, number: int) -> None:
    """Signal the process group, unless its leader has been reaped: its number may belong to another process by then."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
