"""One browser session: a console process whose screen is sent to the browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

#: How long the console has to leave by itself (its fleet has 2.5 s), then after SIGTERM, in seconds.
LEAVE_S, TERM_S = 6.0, 2.0
#: Characters of what it said at its end that are kept for the person.
LAST_WORDS: Final = 8000
DRIVER: Final = "gconsole.web.terminal.driver:BrowserDriver"
#: The sizes that a terminal may have, in cells; a wish beyond is met at the border.
WIDTHS, HEIGHTS = (20, 1000), (5, 500)


class BrowserSession(AppService):
    """`start` it, `send_bytes` what is typed, `stop` it; `run` ends when the process has.

    `argv` is run as it is: no shell reads it. `gone` is set once no process is left.
    """

    def __init__(self, argv: Sequence[str], write: Callable[[bytes], Awaitable[None]]) -> None:
        super().__init__(
            " ".join(argv), write_bytes=write, write_str=_nothing, close=_nothing, download_manager=DownloadManager(),
        )  # fmt: skip
        self._argv = argv
        self._said = b""
        self.leaving, self.gone = asyncio.Event(), asyncio.Event()

    @property
    def last_words(self) -> str:
        """What the process wrote to stderr: why it could not start, or what it could not do at its end."""
        return self._said.decode(errors="replace")[-LAST_WORDS:].strip()

    async def start(self, width: int, height: int) -> None:
        """Start the process with a clamped terminal size. Raises OSError."""
        try:
            await super().start(within(width, WIDTHS), within(height, HEIGHTS))
        except OSError:
            self.gone.set()
            raise

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Resize the terminal, clamped to the allowed sizes."""
        await super().set_terminal_size(within(width, WIDTHS), within(height, HEIGHTS))

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        found = super()._build_environment(width, height)
        return found | {"TEXTUAL_DRIVER": DRIVER, "TERM": "xterm-256color"}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """A session of its own: Ctrl-C in our terminal is for us, who then end it in order, and with all it started."""
        self._process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._build_environment(width, height),
            start_new_session=True,
        )  # fmt: skip
        self._stdin = self._process.stdin
        return self._process

    async def run(self) -> None:
        """Pass on what it draws, until it ends."""
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        listening = asyncio.ensure_future(self._listen(process.stderr))
        try:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while await process.stdout.readline() not in (b"__GANGLION__\n", b""):
                    pass
                while True:
                    await self._pass_on(process.stdout)
            await process.wait()
        finally:
            self.leaving.set()
            _signal_all(process, signal.SIGKILL)
            await process.wait()
            await listening
            self.gone.set()

    async def _pass_on(self, stdout: asyncio.StreamReader) -> None:
        kind = await stdout.readexactly(1)
        payload = await stdout.readexactly(int.from_bytes(await stdout.readexactly(4), "big"))
        if kind == b"D":
            await self.on_data(payload)

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(4096):
            self._said = (self._said + data)[-4 * LAST_WORDS :]

    async def ended(self) -> None:
        """Wait until it has ended. Raises what went wrong in passing on."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Ask it to leave; insist; end it with everything that it started."""
        self.leaving.set()
        if self._task is None or self._process is None:
            return
        await self.send_meta({"type": "quit"})
        for patience, number in ((LEAVE_S, signal.SIGTERM), (TERM_S, signal.SIGKILL)):
            done, _ = await asyncio.wait({self._task}, timeout=patience)
            if done:
                break
            _signal_all(self._process, number)
        await asyncio.wait({self._task})


def within(wanted: int, borders: tuple[int, int]) -> int:
    """The number, or the border that it is beyond."""
    return max(borders[0], min(wanted, borders[1]))


def _signal_all(process: Process, number: int) -> None:
    """To the whole group that it leads. Nothing once it has ended: its number may be another's by then."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


async def _nothing(*_: object) -> None:
    """What the process may ask of a browser beside drawing, and the console never does."""
