"""The linear mode over a recorded session: it plays while statements are printed, and jumps by commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ...session.replay import SPEEDS
from ...text import format
from ...text.cells import clean
from ...text.nodeset_fold import natural
from ...text.timespec import INSTANT_FORMS_FROM_NOW, TimeSpecError, instant_ns
from ...tui.snapshot import SnapshotBuilder
from .changes import ChangeStatements, FindingNumbers
from .commands import CommandRunner, LineCommand
from .lists import CommandError
from .session import LineSession, Snapshots

if TYPE_CHECKING:
    from ...session.replay import Replay, ReplayEvent
    from ...tui.snapshot import ScreenSnapshot

#: Seconds between two steps of playing.
STEP_S: Final = 0.1
#: Seconds after a jump in which a job that is not folded yet is not one that is gone.
FOLD_S: Final = 2.0


def run_linear_replay(replay: Replay, start: int | None) -> int:
    """Play a session, print statements and carry out commands until `quit`, a signal, or the end of the input.

    `start`: the instant to go to first, ns. Returns the exit code.
    """
    return asyncio.run(LineSession([lambda session: ReplayTarget(replay, start, session)]).run())


class ReplayTarget:
    """A session that is played."""

    def __init__(self, replay: Replay, start: int | None, session: LineSession) -> None:
        self._replay, self._start = replay, start
        self.label = clean(replay.meta.cluster or replay.session.name)
        begin, end = format.clock_time(replay.begin), format.clock_time(replay.end)
        self.introduction = f"replay of {clean(replay.session.name)}, cluster {self.label}, {begin} to {end}"
        self._names = sorted({agent.node for agent in replay.meta.agents.values() if agent.node}, key=natural)
        self._snapshots, self._jumped_s = self._make_snapshots(), -FOLD_S
        self._jobs = self._snapshots.build().jobs
        numbers = FindingNumbers()
        self.changes = ChangeStatements(numbers)
        self.runner = ReplayRunner(
            replay, numbers, write=session.write, snapshot=self.snapshot, hold=session.hold
        )  # fmt: skip

    @property
    def now_ns(self) -> int:
        """The instant that is shown."""
        return self._replay.position

    def _make_snapshots(self) -> Snapshots:
        replay = self._replay
        builder = SnapshotBuilder(
            replay.store, replay.meta.cluster, self._names, live=False, now=lambda: replay.position, staging=None
        )
        return Snapshots(replay.store, builder)

    def snapshot(self) -> ScreenSnapshot:
        """The state at the present instant."""
        if self._snapshots.store is not self._replay.store:  # after a jump
            self._snapshots, self._jumped_s = self._make_snapshots(), time.monotonic()
        frame = self._snapshots.build()
        if not frame.jobs.jobs and time.monotonic() - self._jumped_s < FOLD_S:
            frame = replace(frame, jobs=self._jobs)  # those of this instant are not folded yet
        self._jobs = frame.jobs
        return frame

    async def start(self) -> None:
        """Go to the first instant, and find the events."""
        if self._start is not None:
            await asyncio.to_thread(self._replay.jump, self._start)
        await asyncio.to_thread(self._replay.find_events)

    async def watch(self, is_over: Callable[[], bool]) -> None:
        """Play; it pauses by itself at the end."""
        before = time.monotonic()
        while not is_over():
            await asyncio.sleep(STEP_S)
            now = time.monotonic()
            if not self.runner.is_jumping:
                self._replay.advance(now - before)
            before = now

    async def stop(self) -> Sequence[str]:
        """End the replay."""
        await self._replay.stop()
        return [f"damaged: {clean(str(damage))}" for damage in self._replay.damages]


class ReplayRunner(CommandRunner):
    """Carries out commands on a recording."""

    commands = dict(CommandRunner.commands) | {
        "play": LineCommand(
            "[SPEED]", f"play, at one of {', '.join(f'{speed:g}' for speed in SPEEDS)} times the speed"
        ),
        "stop": LineCommand("", "stop playing"),
        "go": LineCommand("TIME", f"go to an instant: {INSTANT_FORMS_FROM_NOW}"),
        "next": LineCommand("", "go to the next event"),
        "previous": LineCommand("", "go to the event before"),
        "where": LineCommand("", "the instant that is shown"),
    }

    def __init__(self, replay: Replay, numbers: FindingNumbers, *, write: Callable[[Sequence[str]], object],
                 snapshot: Callable[[], ScreenSnapshot], hold: Callable[[bool], object]) -> None:  # fmt: skip
        super().__init__(lambda: replay.store, numbers, write=write, snapshot=snapshot, hold=hold)
        self._replay = replay
        self.is_jumping = False

    def _where(self, text: str) -> Iterable[str]:
        replay = self._replay
        state = f"playing at {replay.speed:g} times the speed" if replay.is_playing else "stopped"
        return [f"{format.clock_time(replay.position)}, {state}; ends {format.clock_time(replay.end)}"]

    def _play(self, text: str) -> Iterable[str]:
        try:
            speed = float(text) if text else self._replay.speed
        except ValueError:
            speed = 0.0
        if speed not in SPEEDS:
            raise CommandError(f"no speed {clean(text)[:20]}; speeds: {', '.join(f'{each:g}' for each in SPEEDS)}")
        self._replay.speed, self._replay.is_playing = speed, self._replay.position < self._replay.end
        return self._where("")

    def _stop(self, text: str) -> Iterable[str]:
        self._replay.is_playing = False
        return self._where("")

    async def _go(self, text: str) -> None:
        replay = self._replay
        try:
            instant = instant_ns(text, replay.begin, replay.end, now=replay.position)
        except TimeSpecError as error:
            raise CommandError(clean(str(error))) from error
        await self._jump(instant)

    async def _next(self, text: str) -> None:
        await self._jump_to_event(self._replay.event_after(), "no later event")

    async def _previous(self, text: str) -> None:
        await self._jump_to_event(self._replay.event_before(), "no earlier event")

    async def _jump_to_event(self, event: ReplayEvent | None, otherwise: str) -> None:
        if event is None:
            raise CommandError(otherwise)
        await self._jump(event.rx)
        self._write([clean(event.what)])

    async def _jump(self, instant: int) -> None:
        if self.is_jumping:
            raise CommandError("a jump is under way")
        plays, self._replay.is_playing, self.is_jumping = self._replay.is_playing, False, True
        try:
            await asyncio.to_thread(self._replay.jump, instant)
        finally:
            self._replay.is_playing, self.is_jumping = plays, False
        self._print(self._where(""))
