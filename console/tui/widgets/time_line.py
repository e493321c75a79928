"""`TimeLine`: the position of a replay in its session, with the events of the session.

    ▶ ×1  ━━━━━━━━━━━━━◆━━━━●──────◆────────────────────────────────  02:13:07  +00:41:12 / 03:00:00

A click or a drag seeks: while the mouse button is held the line shows the time under it, and its release seeks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from textual import events
from textual.message import Message
from textual.strip import Strip

from ...present.spans import Span
from ...text import format
from ...text.cells import width_of
from .painting import Painting


class TimeLineState(msgspec.Struct, frozen=True):
    """What the line shows; instants are console CLOCK_REALTIME, ns."""

    begin: int
    end: int
    position: int
    is_playing: bool = False
    speed: float = 1.0
    events: Sequence[int] = ()
    busy: str = ""  # the running seek, in words
    real_speed: float | None = None  # set if playback falls behind `speed`

    def instant_at(self, share: float) -> int:
        """The instant, in ns, at this share of the session, 0 to 1."""
        return self.begin + int(max(0.0, min(1.0, share)) * (self.end - self.begin))

    def share(self, instant: int) -> float:
        """The share of the session before this instant."""
        return (instant - self.begin) / max(1, self.end - self.begin)


class TimeLine(Painting):
    """One line with position and events; `Sought` is posted when the user clicks on it."""

    DEFAULT_CSS = "TimeLine { height: 1; width: 1fr; }"

    @dataclass
    class Sought(Message):
        """The user chose this instant, in ns."""

        instant: int

    def __init__(self, shown: TimeLineState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown = shown
        self._held: int | None = None  # the column under the mouse, while it is held

    def show(self, shown: TimeLineState) -> None:
        """Show this state."""
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def laid_out(self) -> list[Span]:
        """The spans that fill the line."""
        left = [Span(f"{self._pace()} ", "accent", "replay.play")]
        right = [Span(f"  {self._status()} ", "muted" if self._held is None else "strong")]
        start, room = self._track()
        return [*left, *self._drawn(room), *right] if start else right

    def _status(self) -> str:
        shown = self._shown
        if shown.busy:
            return shown.busy
        instant = self._under_mouse() if self._held is not None else shown.position
        gone, whole = format.duration_compact(instant - shown.begin), format.duration_compact(shown.end - shown.begin)
        return f"{self._lag()}{format.clock_time(instant)}  +{gone} / {whole}"

    def _lag(self) -> str:
        real = self._shown.real_speed
        return "" if real is None else f"max speed: {f'×{real:.2g}':<6}"

    def _pace(self) -> str:
        """Speed, with the same width at every speed."""
        return f" {'▶' if self._shown.is_playing else '‖'} ×{self._shown.speed:<4g}"

    def _track(self) -> tuple[int, int]:
        """Start and length of the track in cells; (0, 0) if there is no room."""
        left = width_of(self._pace()) + 1
        right = max(width_of(self._shown.busy), 29 + width_of(self._lag())) + 3
        room = self.size.width - left - right
        return (left, room) if room > 4 else (0, 0)

    def _drawn(self, room: int) -> list[Span]:
        shown = self._shown
        here = self._column(shown.position, room) if self._held is None else self._held
        marked = {self._column(event, room) for event in shown.events}
        cells = []
        for column in range(room):
            if column == here:
                cells.append(Span("●", "strong"))
            elif column in marked:
                cells.append(Span("◆", "warning"))
            else:
                cells.append(Span("━" if column < here else "─", "accent" if column < here else "rule"))
        return cells

    def _column(self, instant: int, room: int) -> int:
        return max(0, min(room - 1, int(self._shown.share(instant) * (room - 1) + 0.5)))

    def _under_mouse(self) -> int:
        _, room = self._track()
        return self._shown.instant_at((self._held or 0) / max(1, room - 1))

    def render_line(self, y: int) -> Strip:
        return self.strip(self.laid_out(), self.size.width)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        start, room = self._track()
        if start and start <= event.x < start + room:
            self.capture_mouse()
            self._hold(event.x)
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._held is not None:
            self._hold(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._held is not None:
            self.release_mouse()
            self.post_message(self.Sought(self._under_mouse()))
            self._held = None
            self.refresh()

    def _hold(self, x: int) -> None:
        start, room = self._track()
        self._held = max(0, min(room - 1, x - start))
        self.refresh()

    async def on_click(self, event: events.Click) -> None:
        start, _ = self._track()
        if event.x < start:
            await self.app.run_action("replay.play")
