"""What `r` does: begin and end recordings by name; and that nobody leaves a recording without meaning to."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from textual.app import App

from ...core.control import Control, RecordingNow
from ...session.format.layout import Selection, SessionError
from ...session.record.parse_request import asked
from ...text import format
from ...text.cells import clean
from ..dialogs.prompts import Prompt

#: A second `q` within this many seconds leaves, although something is recorded.
_TWICE_S: Final = 5.0
#: What takes longer than this is told to be under way, s.
SLOW_S: Final = 0.3


def session_name(cluster: str, at: int) -> str:
    """A name for a session that nobody has to think of; `at` is console time, ns."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in cluster)
    return f"{plain.strip('-')[:40] or 'session'}-{time.strftime('%Y%m%d-%H%M', time.localtime(at / 1e9))}"


class Tapes:
    """What the app knows and does of recordings; it has one. `now` is console time, ns."""

    def __init__(self, app: App[Any], control: Control, cluster: str, now: Callable[[], int]) -> None:
        self._app, self._control, self._cluster, self._now = app, control, cluster, now
        self._asked_at: float | None = None

    @property
    def running(self) -> Sequence[RecordingNow]:
        """What is recorded at the moment."""
        recordings = self._control.recordings
        return recordings.now() if recordings is not None else ()

    def ask(self) -> None:
        """Ask for a name: a new one begins a recording, that of one under way ends it."""
        if self._control.recordings is None:
            self._tell("this is a recording already", "warning")
            return
        running = self.running
        words = (
            "Everything that comes in is kept from now on, under this name, also if the console should crash.\n"
            "To keep less: gpus --metrics gpu --every 10s --nodes node[1-4]; also --kinds, --redact."
        )
        prompt = Prompt("Record", words, enter="begins", escape="leaves it", hint=self._name())
        if running:
            only = running[0].name if len(running) == 1 else ""
            lines = [f"● {_told(now, self._now())}" for now in running]
            lines.append(f"{'Enter' if only else 'Its name'} ends it; another name begins one more.")
            prompt = Prompt("Recording", "\n".join(lines), enter="ends, or begins", escape="goes on", hint=only)
        self._app.push_screen(prompt, self._answered)

    def _answered(self, text: str | None) -> None:
        if text is None:
            return
        running = [now.name for now in self.running]
        try:
            typed, selection = asked(text)
        except SessionError as error:
            self._tell(str(error), "error")
            return
        name = typed or (running[0] if len(running) == 1 else "" if running else self._name())
        if not name:
            self._tell("several are recorded; say which one", "warning")
            return
        ending = name in running and selection is None
        work = self._stop(name) if ending else self._start(name, selection)
        self._app.run_worker(self._do(name, work, "ending" if ending else "beginning"), name=f"recording {name}")

    async def _do(self, name: str, work: Coroutine[Any, Any, None], what: str) -> None:
        """Mending what a crash left takes a while, and so do agents that hand over what they kept."""
        slow = self._app.set_timer(SLOW_S, lambda: self._tell(f"{name}: {what} …"))
        try:
            await work
        except SessionError as error:
            self._tell(str(error), "error")
        finally:
            slow.stop()

    async def _start(self, name: str, selection: Selection | None) -> None:
        assert self._control.recordings is not None
        goes_on = await self._control.recordings.start(name, selection)
        self._tell(f"recording {name}" + (" goes on where a crash broke it off" if goes_on else ""))

    async def _stop(self, name: str) -> None:
        assert self._control.recordings is not None
        now = await self._control.recordings.stop(name)
        trouble = f"; not all of it could be written: {now.trouble}" if now.trouble else ""
        self._tell(f"recorded {name}: {format.plural(now.records, 'record')}, {format.size(now.bytes)}{trouble}",
                   "warning" if trouble else "information")  # fmt: skip

    def may_leave(self) -> bool:
        """While something is recorded, only the second time it is asked."""
        running = self.running
        asked_before = self._asked_at is not None and time.monotonic() - self._asked_at <= _TWICE_S
        if not running or asked_before:
            return True
        self._asked_at = time.monotonic()
        names = ", ".join(now.name for now in running)
        self._tell(f"{names} is being recorded; quit again ends that and leaves", "warning", _TWICE_S)
        return False

    def _name(self) -> str:
        return session_name(self._cluster, self._now())

    def _tell(self, text: str, severity: Any = "information", timeout_s: float = 6.0) -> None:
        if self._app.is_running:
            self._app.notify(clean(text), severity=severity, timeout=timeout_s, markup=False)


def _told(now: RecordingNow, at: int) -> str:
    trouble = f"  ▲ {now.trouble}" if now.trouble else ""
    written = f"{format.plural(now.records, 'record')}  {format.size(now.bytes)}"
    return clean(f"{now.name}  {format.duration_compact(at - now.began)}  {written}{trouble}")


class RecordingActions:
    """A part of the app: what its keys and its palette do with recordings."""

    tapes: Tapes

    def action_record(self) -> None:
        """Ask what to record, or what to end."""
        self.tapes.ask()
