"""One run of the linear mode: statements and commands on a terminal or a pipe, on the nodes of some clusters."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

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
from .commands import CommandRunner, LiveRunner
from .lines import LineReader, LineWriter

if TYPE_CHECKING:
    from ...config import Config
    from ...core.store import Store

#: Seconds between two comparisons with what was stated.
REFRESH_S: Final = 0.25
#: Seconds without new stacks after which captures are judged: while one runs, its records are incomplete.
QUIET_S: Final = 2.0
#: Statements that are held back while they are paused.
MOST_HELD: Final = 1_000
#: Seconds that the end of the run waits for a terminal that does not accept output.
LAST_WRITE_S: Final = 1.0


def run_linear(configs: Sequence[Config]) -> int:
    """Connect, print statements and carry out commands until `quit`, a signal, or the end of a terminal's input.

    Input from a pipe or a file may end before: statements go on then. Returns the exit code.
    """
    return asyncio.run(LineSession([partial(LiveTarget, config) for config in configs]).run())


class Target(Protocol):
    """What a session of lines shows: the nodes of a cluster, or a recording."""

    label: str
    introduction: str  # what it is
    changes: ChangeStatements

    @property
    def runner(self) -> CommandRunner:
        """What carries out commands on it."""

    @property
    def now_ns(self) -> int:
        """The instant of what it shows."""

    def snapshot(self) -> ScreenSnapshot:
        """The present state."""

    async def start(self) -> None:
        """Begin to connect or to play."""

    async def watch(self, is_over: Callable[[], bool]) -> None:
        """Keep the state current until `is_over`."""

    async def stop(self) -> Sequence[str]:
        """Disconnect; returns lines to print at the end."""


class LineSession:
    """Statements on the changes of all targets; commands are for one of them. `targets` make them for this session."""

    def __init__(self, targets: Sequence[Callable[[LineSession], Target]]) -> None:
        self._output = LineWriter()
        self._input = LineReader()
        self._held: deque[str] | None = None  # statements while they are paused
        self._commands: set[asyncio.Task[None]] = set()
        self._targets = [target(self) for target in targets]
        self._current = self._targets[0]

    async def run(self) -> int:
        """Run the session; returns the exit code."""
        interrupted = on_signals()
        self._input.start()
        for target in self._targets:
            self.write([f"gconsole {__version__}: {target.introduction}. help lists the commands."])
        if len(self._targets) > 1:
            self.write([f"commands are for {self._current.label}; cluster NAME changes that"])
        for target in self._targets:
            await target.start()
        watching = asyncio.gather(*(target.watch(lambda: self._is_over(interrupted)) for target in self._targets))
        try:
            while not watching.done():
                self._state_changes()
                await self._carry_out_commands()
                news: set[asyncio.Future[Any]] = {watching, interrupted, self._input.arrival()}
                await asyncio.wait(news, timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for target in self._targets:
                target.runner.close()
            for task in self._commands:
                task.cancel()
            await self._close(watching)
        return EXIT_INTERRUPTED if interrupted.done() else EXIT_OK

    async def _close(self, watching: asyncio.Future[list[None]]) -> None:
        await asyncio.wait({watching})
        for lines in await asyncio.gather(*(target.stop() for target in self._targets)):
            self.write(lines)
        self._output.close(LAST_WRITE_S)
        if not watching.cancelled():
            watching.result()

    def _is_over(self, interrupted: asyncio.Future[None]) -> bool:
        is_left = self._input.has_ended and self._input.is_terminal and not self._input.lines
        is_quit = any(target.runner.is_over for target in self._targets)
        return interrupted.done() or is_quit or self._output.has_failed or is_left

    def _state_changes(self) -> None:
        if not self._output.is_ready:
            return  # the next look states what changed since, in one statement
        for target in self._targets:
            statements = target.changes.statements(target.snapshot(), time.monotonic())
            where = f"{target.label}: " if len(self._targets) > 1 else ""
            if self._held is not None:
                self._held.extend(where + statement for statement in statements)
            elif statements:
                stamp = format.clock_time(target.now_ns)
                self.write([f"{stamp} {where}{statement}" for statement in statements])

    async def _carry_out_commands(self) -> None:
        """A person may go on typing while a capture runs; commands from a pipe follow one another."""
        while self._input.lines:
            if self._commands and not self._input.is_terminal:
                return
            line = self._input.lines.popleft()
            if len(self._targets) > 1 and line.split(" ")[0].lower() in ("cluster", "clusters"):
                self._choose(line.partition(" ")[2].strip())
                continue
            task = asyncio.create_task(self._current.runner.run(line))
            self._commands.add(task)
            task.add_done_callback(self._command_ended)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _choose(self, name: str) -> None:
        """Let commands be for the cluster of that name; without a name, list the clusters."""
        chosen = [target for target in self._targets if target.label == name]
        if chosen:
            self._current = chosen[0]
            self.write([f"commands are for {name}"])
        elif name:
            labels = ", ".join(target.label for target in self._targets)
            self.write([f"no cluster {clean(name)[:40]}; clusters: {labels}"])
        else:
            for target in self._targets:
                mark = "; commands are for this cluster" if target is self._current else ""
                self.write([f"{target.label}: {target.introduction}{mark}"])

    def _command_ended(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        if not task.cancelled():
            task.result()

    def hold(self, is_held: bool) -> None:
        """Hold statements back, or print those that were."""
        if is_held:
            self._held = self._held if self._held is not None else deque(maxlen=MOST_HELD)
        elif self._held is not None:
            held, self._held = self._held, None
            self.write([*held] or ["nothing changed"])

    async def read_secret(self, login: str, prompt: str) -> str | None:
        """Ask for a secret on a line, which the terminal does not show."""
        line = f"login {clean(login)}: {clean(prompt)[:400]} (not shown; an empty line skips this login)"
        return await self._input.read_secret(lambda: self.write([line]))

    def write(self, lines: Sequence[str]) -> None:
        """Print lines, without secrets."""
        self._output.write([printable(without_secrets(line)) for line in lines])


class LiveTarget:
    """The nodes of one cluster."""

    def __init__(self, config: Config, session: LineSession) -> None:
        self._console = console = Console(config, prompt=session.read_secret)
        self.label = clean(config.cluster)
        self.introduction = f"cluster {self.label}, {format.plural(len(config.nodes), 'node')}"
        names = [node.name for node in config.nodes]
        self._snapshots = Snapshots(
            console.store,
            SnapshotBuilder(console.store, config.cluster, names, live=True, now=time.time_ns, staging=None),
        )
        numbers = FindingNumbers()
        self.changes = ChangeStatements(numbers)
        self.runner = LiveRunner(
            console, numbers, write=session.write, snapshot=self._snapshots.build, hold=session.hold
        )  # fmt: skip

    @property
    def now_ns(self) -> int:
        """The present."""
        return time.time_ns()

    def snapshot(self) -> ScreenSnapshot:
        """The present state; jobs and verdicts are those of the newest folds."""
        return self._snapshots.build()

    async def start(self) -> None:
        """Begin to connect."""
        await self._console.start()

    async def watch(self, is_over: Callable[[], bool]) -> None:
        """Evaluate findings and diagnose stalled jobs."""
        console = self._console
        await headless.watch(
            console.store, console.bus, console.fleet, math.inf, headless.ProgressLine(console.store, None),
            findings=console.findings, is_over=is_over, stalls=console.stalls,
        )  # fmt: skip

    async def stop(self) -> Sequence[str]:
        """Disconnect and end recordings."""
        recordings = [each.name for each in self._console.recorder.active()]
        await self._console.stop()
        return [f"recorded {clean(name)}" for name in recordings]


class Snapshots:
    """Snapshots of a store, with jobs and verdicts, as the screen takes them."""

    def __init__(self, store: Store, builder: SnapshotBuilder) -> None:
        self.store, self._builder = store, builder
        self._jobs, self._diagnoses = JobFold(store), DiagnosisFold(store)
        self._captures, self._quiet_since_s = -1, 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def build(self) -> ScreenSnapshot:
        """The present state; jobs and verdicts are those of the newest folds."""
        self._builder.jobs = self._jobs.value
        frame = replace(self._builder.build(), hang=self._diagnoses.value)
        self._jobs.refresh(frame, self._in_background)
        version, now_s = self.store.captures.table.version, time.monotonic()
        if version != self._captures:
            self._captures, self._quiet_since_s = version, now_s
        elif now_s - self._quiet_since_s >= QUIET_S:
            self._diagnoses.refresh(self._in_background)
        return frame

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
