"""One run of the linear mode: the console without a screen, statements and commands on a terminal or a pipe."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ... import __version__
from ...monitor import headless
from ...runtime.console import Console
from ...text import format
from ...text.cells import clean
from ...text.sanitize import printable
from ...text.secrets import without_secrets
from ...tui.derived import DiagnosisFold, JobFold
from ...tui.snapshot import ScreenSnapshot, SnapshotBuilder
from ..live import on_signals
from ..main import EXIT_INTERRUPTED, EXIT_OK
from .changes import ChangeStatements, FindingNumbers
from .commands import CommandRunner
from .lines import LineReader, LineWriter

if TYPE_CHECKING:
    from ...config import Config

#: Seconds between two comparisons with what was stated.
REFRESH_S: Final = 0.25
#: Seconds without new stacks after which captures are judged: while one runs, its records are incomplete.
QUIET_S: Final = 2.0
#: Statements that are held back while they are paused.
MOST_HELD: Final = 1_000
#: Seconds that the end of the run waits for a terminal that does not accept output.
LAST_WRITE_S: Final = 1.0


def run_linear(config: Config) -> int:
    """Connect, print statements and carry out commands until `quit`, a signal, or the end of a terminal's input.

    Input from a pipe or a file may end before: statements go on then. Returns the exit code.
    """
    return asyncio.run(_Session(config).run())


class _Session:
    def __init__(self, config: Config) -> None:
        self._output = LineWriter()
        self._input = LineReader()
        self._console = Console(config, prompt=self._ask)
        self._frames = _Snapshots(self._console)
        self._numbers = FindingNumbers()
        self._changes = ChangeStatements(self._numbers)
        self._held: deque[str] | None = None  # statements while they are paused
        self._runner = CommandRunner(
            self._console, self._numbers, write=self._write, snapshot=self._frames.take, hold=self._hold
        )
        self._commands: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run the session; returns the exit code."""
        console, config = self._console, self._console.config
        interrupted = on_signals()
        self._input.start()
        count = format.plural(len(config.nodes), "node")
        self._write([f"gconsole {__version__}: cluster {clean(config.cluster)}, {count}. help lists the commands."])
        await console.start()
        watching = asyncio.create_task(
            headless.watch(
                console.store, console.bus, console.fleet, math.inf, headless.ProgressLine(console.store, None),
                findings=console.findings, is_over=lambda: self._is_over(interrupted), stalls=console.stalls,
            )
        )  # fmt: skip
        try:
            while not watching.done():
                self._state_changes()
                await self._carry_out_commands()
                await asyncio.wait({watching, interrupted, self._input.arrival()}, timeout=REFRESH_S,
                                   return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        finally:
            self._runner.close()
            for task in self._commands:
                task.cancel()
            await self._close(watching)
        return EXIT_INTERRUPTED if interrupted.done() else EXIT_OK

    async def _close(self, watching: asyncio.Task[None]) -> None:
        recordings = [each.name for each in self._console.recorder.active()]
        await asyncio.wait({watching})
        await self._console.stop()
        for name in recordings:
            self._write([f"recorded {clean(name)}"])
        self._output.close(LAST_WRITE_S)
        if not watching.cancelled():
            watching.result()

    def _is_over(self, interrupted: asyncio.Future[None]) -> bool:
        is_left = self._input.has_ended and self._input.is_terminal and not self._input.lines
        return interrupted.done() or self._runner.is_over or self._output.has_failed or is_left

    def _state_changes(self) -> None:
        if not self._output.is_ready:
            return  # the next look states what changed since, in one statement
        statements = self._changes.statements(self._frames.take(), time.monotonic())
        if self._held is not None:
            self._held.extend(statements)
        elif statements:
            stamp = format.clock_time(time.time_ns())
            self._write([f"{stamp} {statement}" for statement in statements])

    async def _carry_out_commands(self) -> None:
        """A person may go on typing while a capture runs; commands from a pipe follow one another."""
        while self._input.lines:
            if self._commands and not self._input.is_terminal:
                return
            task = asyncio.create_task(self._runner.run(self._input.lines.popleft()))
            self._commands.add(task)
            task.add_done_callback(self._command_ended)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _command_ended(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        if not task.cancelled():
            task.result()

    def _hold(self, is_held: bool) -> None:
        if is_held:
            self._held = self._held if self._held is not None else deque(maxlen=MOST_HELD)
        elif self._held is not None:
            held, self._held = self._held, None
            self._write([*held] or ["nothing changed"])

    async def _ask(self, login: str, prompt: str) -> str | None:
        line = f"login {clean(login)}: {clean(prompt)[:400]} (not shown; an empty line skips this login)"
        return await self._input.read_secret(lambda: self._write([line]))

    def _write(self, lines: Sequence[str]) -> None:
        self._output.write([printable(without_secrets(line)) for line in lines])


class _Snapshots:
    """Snapshots of the console's store, with jobs and verdicts, as the screen takes them."""

    def __init__(self, console: Console) -> None:
        config, store = console.config, console.store
        self._store = store
        self._builder = SnapshotBuilder(
            store, config.cluster, [node.name for node in config.nodes], live=True, now=time.time_ns, staging=None,
        )  # fmt: skip
        self._jobs, self._diagnoses = JobFold(store), DiagnosisFold(store)
        self._captures, self._quiet_since_s = -1, 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self) -> ScreenSnapshot:
        """The present state; jobs and verdicts are those of the newest folds."""
        self._builder.jobs = self._jobs.value
        frame = replace(self._builder.build(), hang=self._diagnoses.value)
        self._jobs.refresh(frame, self._in_background)
        version, now_s = self._store.captures.table.version, time.monotonic()
        if version != self._captures:
            self._captures, self._quiet_since_s = version, now_s
        elif now_s - self._quiet_since_s >= QUIET_S:
            self._diagnoses.refresh(self._in_background)
        return frame

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
