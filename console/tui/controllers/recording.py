"""Recordings: start and stop them by name, mark an instant in them, and ask before quitting during one."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...core.control import ActiveRecording, BlackBoxStatus, Control, Selection
from ...session.format.layout import SessionError
from ...session.record.selection import parse_record_request, session_name
from ...text import format
from ...text.cells import clean
from ..dialogs.prompts import Prompt
from . import Controller

if TYPE_CHECKING:
    from ..app import ConsoleApp

#: Seconds within which a second `q` quits during a recording.
_TWICE_S: Final = 5.0
#: Seconds after which a start or stop that still runs is reported as running.
SLOW_S: Final = 0.3
#: Characters of a marker's note; the rest is cut.
LONGEST_NOTE: Final = 500


class RecordingController(Controller):
    """Starts and stops recordings of `cluster` through `control`. `now` returns console time in ns."""

    def __init__(self, app: ConsoleApp, control: Control, cluster: str, now: Callable[[], int]) -> None:
        self._app, self._control, self._cluster, self._now = app, control, cluster, now
        self._quit_refused_at: float | None = None

    @property
    def running(self) -> Sequence[ActiveRecording]:
        """The recordings that are running."""
        recordings = self._control.recordings
        return recordings.active() if recordings is not None else ()

    def action_record(self) -> None:
        """Prompt for a name: a new one starts a recording, that of a running one stops it."""
        if self._control.recordings is None:
            self._notify("a replay cannot be recorded", "warning")
            return
        running = self.running
        text = (
            "Records all incoming data to this session (crash-safe).\n"
            "To record less: gpus --metrics gpu --every 10s --nodes node[1-4]; also --kinds, --redact."
            f"{self._black_box_line()}"
        )
        prompt = Prompt("Record", text, enter="start", hint=self._default_name())
        if running:
            only = running[0].name if len(running) == 1 else ""
            lines = [f"● {_summary(now, self._now())}" for now in running]
            how = "Press Enter to stop it" if only else "Type a recording's name to stop it"
            lines.append(f"{how}; a new name starts another.{self._black_box_line()}")
            prompt = Prompt("Recording", "\n".join(lines), enter="stop or start", hint=only)
        self._app.push_screen(prompt, self._start_or_stop)

    def _start_or_stop(self, text: str | None) -> None:
        if text is None:
            return
        running = [now.name for now in self.running]
        try:
            typed, selection, last_s, since_s = parse_record_request(text)
        except SessionError as error:
            self._notify(str(error), "error")
            return
        if last_s is not None:
            name = typed or self._default_name()
            self._app.run_worker(self._run(name, self._keep(name, last_s), "keeping"), name=f"keeping {name}")
            return
        name = typed or (running[0] if len(running) == 1 else "" if running else self._default_name())
        if not name:
            self._notify("several recordings are running; type the name of one", "warning")
            return
        stops = name in running and selection is None and not since_s
        work = self._stop(name) if stops else self._start(name, selection, since_s)
        self._app.run_worker(self._run(name, work, "stopping" if stops else "starting"), name=f"recording {name}")

    async def _run(self, name: str, work: Coroutine[Any, Any, None], verb: str) -> None:
        """Repairing a crashed session takes a while, and so does fetching what lingering agents buffered."""
        slow = self._app.set_timer(SLOW_S, lambda: self._notify(f"{name}: {verb} …"))
        try:
            await work
        except SessionError as error:
            self._notify(str(error), "error")
        finally:
            slow.stop()

    async def _start(self, name: str, selection: Selection | None, since_s: float) -> None:
        assert self._control.recordings is not None
        resumed = await self._control.recordings.start(name, selection, since_s)
        past = f", from {format.duration(int(since_s * 1e9))} ago on" if since_s else ""
        self._notify(f"recording {name}{past}" + (" (resumed after a crash)" if resumed else ""))

    async def _keep(self, name: str, last_s: float) -> None:
        assert self._control.recordings is not None
        kept = await self._control.recordings.keep_last(name, last_s)
        text = f"kept {format.duration(kept.covered_ns)} as {name}: {format.plural(kept.records, 'record')}"
        self._notify(f"{text}, {format.size(kept.bytes)}")

    def _black_box_line(self) -> str:
        """What the black box holds, and how it is kept; "" if nothing is."""
        box = self.black_box
        if box is None:
            return ""
        length = format.duration(self._now() - box.since)
        return (
            f"\nTo keep what has just happened: incident --last 15m (the black box has {length}); "
            "to record on from there: incident --since 15m."
        )

    @property
    def black_box(self) -> BlackBoxStatus | None:
        """The state of the black box; None if nothing is kept."""
        recordings = self._control.recordings
        return recordings.black_box() if recordings is not None else None

    async def _stop(self, name: str) -> None:
        assert self._control.recordings is not None
        now = await self._control.recordings.stop(name)
        problem = f"; not all of it could be written: {now.trouble}" if now.trouble else ""
        text = f"recorded {name}: {format.plural(now.records, 'record')}, {format.size(now.bytes)}{problem}"
        self._notify(text, "warning" if problem else "information")

    def may_quit(self) -> bool:
        """Whether to quit now; during a recording only at the second attempt within 5 s."""
        running = self.running
        if self._quit_refused_at is not None and time.monotonic() - self._quit_refused_at <= _TWICE_S:
            return True
        if not running:
            return True
        self._quit_refused_at = time.monotonic()
        names = ", ".join(now.name for now in running)
        self._notify(f"recording {names}; press q again to stop it and quit", "warning", _TWICE_S)
        return False

    def action_mark(self) -> None:
        """Prompt for a note, and add it as a marker at this instant."""
        text = "The note appears in Events and is recorded with the session."
        self._app.push_screen(Prompt("Marker", text, enter="add", hint="note text"), self._mark)

    async def _mark(self, text: str | None) -> None:
        if text and text.strip():
            await self._control.mark(text.strip()[:LONGEST_NOTE])
            self._notify("marker added; see Events", timeout_s=3)

    def _default_name(self) -> str:
        return session_name(self._cluster, self._now())

    def _notify(self, text: str, severity: Any = "information", timeout_s: float = 6.0) -> None:
        if self._app.is_running:
            self._app.notify(clean(text), severity=severity, timeout=timeout_s, markup=False)


def _summary(recording: ActiveRecording, now: int) -> str:
    """One line: name, length, records, bytes, problem."""
    problem = f"  ▲ {recording.trouble}" if recording.trouble else ""
    written = f"{format.plural(recording.records, 'record')}  {format.size(recording.bytes)}"
    return clean(f"{recording.name}  {format.duration_compact(now - recording.began)}  {written}{problem}")
