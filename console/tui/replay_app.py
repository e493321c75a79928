"""The same console over a recorded session: the same views and keys, and a time line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from textual.binding import BindingType
from textual.widget import Widget

from ..session.format.layout import SessionError, all_sessions, find
from ..session.replay import Instant, Replay
from ..text import format
from ..text.cells import clean
from ..text.nodeset_fold import natural
from ..text.timespec import TimeSpecError, instant_ns
from .app import ConsoleApp
from .dialogs.prompts import Prompt
from .diff_screen import diff_of
from .keymap.actions import Action, bindings, in_scope
from .views.registry import VIEWS
from .widgets.time_line import Shown, TimeLine

#: What needs nodes, or a clock that runs: nothing of it can be done in a replay.
_LIVE_ONLY: Final = frozenset(
    {
        "app.capture", "app.capture_many", "app.record", "app.reconnect", "app.reconnect_failed", "app.add_nodes",
        "app.remove", "app.examine", "app.examine_all", "app.mark", "app.freeze",
    }
)  # fmt: skip
HERE: Final[list[Action]] = [
    *in_scope("replay"), *(action for action in in_scope("app") if action.id not in _LIVE_ONLY)
]  # fmt: skip


class ReplayApp(ConsoleApp, inherit_bindings=False):
    """Plays `replay`; the options are those of the console."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(row.action for row in VIEWS), *bindings(HERE)]

    def __init__(self, replay: Replay, **options: Any) -> None:
        self._replay = replay
        self._busy = ""  # what is under way, in words
        self._is_away = False  # the views are on their way out
        self._then: int | None = None
        self._ticked = time.monotonic()
        nodes = sorted({heard.node for heard in replay.meta.agents.values() if heard.node}, key=natural)
        cluster = replay.meta.cluster or replay.session.name
        super().__init__(replay.store, replay, cluster=cluster, expected_nodes=nodes, live=False,
                         now=lambda: replay.position, recorded=replay.session.path, **options)  # fmt: skip

    @property
    def everywhere(self) -> list[Action]:
        return HERE

    def below_the_view(self) -> Iterable[Widget]:
        yield TimeLine(self._shown(), id="time-line")

    def on_mount(self) -> None:  # type: ignore[override]  # Textual calls that of the console, too
        self.run_worker(self._find_events(), name="events of the session")

    async def _find_events(self) -> None:
        await asyncio.to_thread(self._replay.find_events)
        await asyncio.to_thread(self._replay.look_through)
        for damage in self._replay.damages:
            self.notify(f"{clean(str(damage))}; the rest is played", severity="warning", markup=False)

    def _tick(self) -> None:
        now = time.monotonic()
        passed_s, self._ticked = now - self._ticked, now
        if self.screen_stack:
            for line in self.screen_stack[0].query(TimeLine):
                line.show(self._shown())
        if not self._is_away:
            self._replay.advance(passed_s)
            super()._tick()

    def _shown(self) -> Shown:
        replay = self._replay
        events = tuple(event.rx for event in replay.events)
        return Shown(
            replay.begin, replay.end, replay.position, replay.is_playing, replay.speed, events, self._busy,
            replay.real_speed,
        )  # fmt: skip

    # -- what its keys do --------------------------------------------------------------------------------------------

    def action_replay_play(self) -> None:
        """Play, or stand still; from the end, from the beginning again."""
        if not self._replay.is_playing and self._replay.position >= self._replay.end:
            self._seek(self._replay.begin, then_play=True)
            return
        self._replay.is_playing = not self._replay.is_playing

    def action_replay_faster(self) -> None:
        """The next speed."""
        self._replay.faster(1)

    def action_replay_slower(self) -> None:
        """The speed before."""
        self._replay.faster(-1)

    def action_replay_earlier(self) -> None:
        """To the event before."""
        self._to_event(self._replay.event_before(), "there is no event before this")

    def action_replay_later(self) -> None:
        """To the next event."""
        self._to_event(self._replay.event_after(), "there is no event after this")

    def action_replay_go(self) -> None:
        """Ask for a time."""
        words = (
            f"From {format.clock_time(self._replay.begin)} to {format.clock_time(self._replay.end)}: 14:02:30 (local "
            "time), 90s (after the start), +90s or -5m (from here), 50% or 2026-11-21T08:30:00."
        )
        hint = format.clock_time(self._replay.begin)
        self.push_screen(Prompt("Go to", words, enter="goes there", escape="stays", hint=hint), self._asked)

    def action_replay_compare(self) -> None:
        """Ask for another session, and show both side by side."""
        here = self._replay.session
        others = [other.name for other in all_sessions(here.path.parent) if other.name != here.name]
        words = f"Another one beside {here.name}: its name, or the path of its folder."
        self.push_screen(Prompt("Compare", words, enter="compares", escape="stays", hint=next(iter(others), "")),
                         self._compare)  # fmt: skip

    def _compare(self, text: str | None) -> None:
        if text is None or not text.strip():
            return
        here = self._replay.session
        try:
            other = find(text.strip(), here.path.parent)
            other.read()
        except SessionError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
            return
        screen = diff_of(here, other)

        def left(_: object) -> None:
            if screen.trouble:
                self.notify(f"not compared: {clean(screen.trouble)}", severity="error", markup=False)

        self.push_screen(screen, left)

    async def action_diagnose(self) -> None:
        """The verdict of what had been captured until now."""
        await self.action_show("hang")
        if not len(self._store.captures):
            self.notify("nothing had been captured until now; ] goes to the next event", timeout=5, markup=False)

    def on_time_line_sought(self, event: TimeLine.Sought) -> None:
        self._seek(event.instant)

    def _to_event(self, event: Instant | None, else_say: str) -> None:
        if event is None:
            self.notify(else_say, timeout=3, markup=False)
            return
        self.notify(clean(event.what), title=format.clock_time(event.rx), timeout=3, markup=False)
        self._seek(event.rx)

    def _asked(self, text: str | None) -> None:
        if text is None or not text.strip():
            return
        replay = self._replay
        try:
            self._seek(instant_ns(text, replay.begin, replay.end, now=replay.position))
        except TimeSpecError as error:
            self.notify(clean(str(error)), severity="warning", markup=False)

    # -- seeking -----------------------------------------------------------------------------------------------------

    def _seek(self, to: int, *, then_play: bool = False) -> None:
        if self._busy:
            self._then = to
            self._replay.give_up_past()
            return
        self._busy = f"going to {format.clock_time(to)} …"
        self.run_worker(self._go(to, then_play), name="seek")

    async def _go(self, to: int, then_play: bool) -> None:
        played = self._replay.is_playing or then_play
        try:
            self._is_away = True
            await asyncio.to_thread(self._replay.jump_quickly, to)
            await self.show_store(self._replay.store)
            self._is_away = False
            if self._replay.lacks_past and self._then is None:
                self._busy = "reading the minutes before …"
                await asyncio.to_thread(self._replay.fold_past)
                self._replay.take_past()
        finally:
            self._busy, self._is_away = "", False
        self._replay.is_playing = played
        if self._then is not None:  # where somebody wanted to go meanwhile
            to, self._then = self._then, None
            self._seek(to)
