"""Replays a recorded session with the views and keys of the console, and a time line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from textual.binding import BindingType
from textual.widget import Widget

from ..session.format.layout import SessionError, all_sessions, find
from ..session.replay import Replay, ReplayEvent
from ..text import format
from ..text.cells import clean
from ..text.nodeset_fold import natural
from ..text.timespec import INSTANT_FORMS_FROM_NOW, TimeSpecError, instant_ns
from .app import ConsoleApp
from .controllers import Controller
from .dialogs.prompts import Prompt
from .diff_screen import diff_of
from .keymap.actions import Action, bindings, in_scope
from .views.registry import VIEWS
from .widgets.time_line import TimeLine, TimeLineState

#: Actions that need nodes or a running clock.
_LIVE_ONLY: Final = frozenset(
    {
        "app.capture", "app.capture_many", "app.record", "app.reconnect", "app.reconnect_failed", "app.add_nodes",
        "app.remove_node", "app.doctor", "app.doctor_all", "app.mark", "app.pause",
        "app.next_cluster", "app.previous_cluster",
    }
)  # fmt: skip
REPLAY_ACTIONS: Final[list[Action]] = [
    *in_scope("replay"), *(action for action in in_scope("app") if action.id not in _LIVE_ONLY)
]  # fmt: skip


class ReplayApp(ConsoleApp, inherit_bindings=False):
    """Plays `replay`; `options` are those of ConsoleApp.

    `start`: the instant to go to first, ns. The screen appears before, because that may take long.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(row.action for row in VIEWS), *bindings(REPLAY_ACTIONS)]

    def __init__(self, replay: Replay, *, start: int | None = None, **options: Any) -> None:
        nodes = sorted({agent.node for agent in replay.meta.agents.values() if agent.node}, key=natural)
        cluster = replay.meta.cluster or replay.session.name
        super().__init__(
            replay.store, replay, cluster=cluster, expected_nodes=nodes, live=False, now=lambda: replay.position,
            recorded=replay.session.path, app_actions=REPLAY_ACTIONS, target=str(replay.session.path), **options,
        )  # fmt: skip
        self.replay, self._start = ReplayController(self, replay), start
        self._action_targets |= {"replay"}

    def below_the_view(self) -> Iterable[Widget]:
        """The time line."""
        yield TimeLine(self.replay.shown, id="time-line")

    def on_mount(self) -> None:  # type: ignore[override]  # Textual calls that of ConsoleApp, too
        self.run_worker(self.replay.begin(self._start), name="index of the session")

    def _tick(self) -> None:
        if self.screen_stack:
            for line in self.screen_stack[0].query(TimeLine):
                line.show(self.replay.shown)
        if self.replay.advance():
            super()._tick()

    def on_time_line_sought(self, event: TimeLine.Sought) -> None:
        self.replay.seek(event.instant)


class ReplayController(Controller):
    """Plays, pauses, changes speed, and seeks."""

    def __init__(self, app: ConsoleApp, replay: Replay) -> None:
        self._app, self._replay = app, replay
        self._activity = ""  # the seek that is running, in words
        self._is_swapping = False  # the views are being replaced
        self._sought = asyncio.Event()  # the first seek is shown
        self._next_seek: int | None = None
        self._ticked = time.monotonic()

    async def begin(self, start: int | None) -> None:
        """Go to `start`, index the session, and find the events and damaged parts, in a thread."""
        plays = self._replay.is_playing
        if start is not None:
            self._replay.is_playing = False
            self.seek(start, then_play=plays)
            await self._sought.wait()
        await asyncio.to_thread(self._replay.build_index)  # what follows then reads a part of the session
        await asyncio.to_thread(self._replay.find_events)
        for damage in self._replay.damages:
            self._app.notify(f"{clean(str(damage))}; playing the rest", severity="warning", markup=False)

    def advance(self) -> bool:
        """Advance by the time since the last call; false while the views are being replaced."""
        now = time.monotonic()
        passed_s, self._ticked = now - self._ticked, now
        if not self._is_swapping:
            self._replay.advance(passed_s)
        return not self._is_swapping

    @property
    def shown(self) -> TimeLineState:
        """What the time line shows."""
        replay = self._replay
        events = tuple(event.rx for event in replay.events)
        return TimeLineState(
            replay.begin, replay.end, replay.position, replay.is_playing, replay.speed, events, self._activity,
            replay.real_speed,
        )  # fmt: skip

    def action_play(self) -> None:
        """Play or pause; at the end, play from the beginning."""
        if not self._replay.is_playing and self._replay.position >= self._replay.end:
            self.seek(self._replay.begin, then_play=True)
            return
        self._replay.is_playing = not self._replay.is_playing

    def action_faster(self) -> None:
        """Use the next higher speed."""
        self._replay.faster(1)

    def action_slower(self) -> None:
        """Use the next lower speed."""
        self._replay.faster(-1)

    def action_earlier(self) -> None:
        """Go to the previous event."""
        self._go_to_event(self._replay.event_before(), "no earlier event")

    def action_later(self) -> None:
        """Go to the next event."""
        self._go_to_event(self._replay.event_after(), "no later event")

    def action_go(self) -> None:
        """Prompt for a time, and go there."""
        begin, end = format.clock_time(self._replay.begin), format.clock_time(self._replay.end)
        text = f"From {begin} to {end}: {INSTANT_FORMS_FROM_NOW}."
        self._app.push_screen(Prompt("Go to time", text, enter="go", hint=begin), self._go_to_text)

    def action_compare(self) -> None:
        """Prompt for another session, and compare both."""
        here = self._replay.session
        others = [other.name for other in all_sessions(here.path.parent) if other.name != here.name]
        text = f"Session to compare with {here.name}: a name, or the path of its folder."
        prompt = Prompt("Compare", text, enter="compare", hint=next(iter(others), ""))
        self._app.push_screen(prompt, self._compare)

    def _compare(self, text: str | None) -> None:
        if text is None or not text.strip():
            return
        here = self._replay.session
        try:
            other = find(text.strip(), here.path.parent)
            other.read()
        except SessionError as error:
            self._app.notify(clean(str(error)), severity="error", markup=False)
            return
        screen = diff_of(here, other)

        def closed(_: object) -> None:
            if screen.error:
                self._app.notify(f"not compared: {clean(screen.error)}", severity="error", markup=False)

        self._app.push_screen(screen, closed)

    def _go_to_event(self, event: ReplayEvent | None, otherwise: str) -> None:
        if event is None:
            self._app.notify(otherwise, timeout=3, markup=False)
            return
        self._app.notify(clean(event.what), title=format.clock_time(event.rx), timeout=3, markup=False)
        self.seek(event.rx)

    def _go_to_text(self, text: str | None) -> None:
        if text is None or not text.strip():
            return
        replay = self._replay
        try:
            self.seek(instant_ns(text, replay.begin, replay.end, now=replay.position))
        except TimeSpecError as error:
            self._app.notify(clean(str(error)), severity="warning", markup=False)

    def seek(self, instant: int, *, then_play: bool = False) -> None:
        """Show that instant, in ns; during a seek, as soon as the running one can be cut short."""
        if self._activity:
            self._next_seek = instant
            self._replay.cancel_backfill()
            return
        self._activity = f"seeking to {format.clock_time(instant)} …"
        self._app.run_worker(self._seek(instant, then_play), name="seek")

    async def _seek(self, instant: int, then_play: bool) -> None:
        plays = self._replay.is_playing or then_play
        try:
            self._is_swapping = True
            await asyncio.to_thread(self._replay.jump_quickly, instant)
            await self._app.show_store(self._replay.store)
            self._is_swapping = False
            self._sought.set()
            if self._replay.needs_backfill and self._next_seek is None:
                self._activity = "reading earlier data …"
                await asyncio.to_thread(self._replay.backfill)
                self._replay.apply_backfill()
        finally:
            self._activity, self._is_swapping = "", False
            self._sought.set()
        self._replay.is_playing = plays
        if self._next_seek is not None:
            instant, self._next_seek = self._next_seek, None
            self.seek(instant)
