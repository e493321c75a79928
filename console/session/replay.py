"""A session played again: its records reach a hub as they once arrived, from any instant, at any speed."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from ..hub import CaptureDone, CaptureOrder, Hub, Published
from ..records import KINDS, Failure, Finding, Gap, GpuEvent, Mark, NodeState, Stack
from ..store import Store
from . import reading
from .frames import Damage
from .layout import Session, SessionError
from .reading import Choice

if TYPE_CHECKING:
    from ..config.difference import Changes
    from ..config.model import Config
    from ..config.readonly import Change, ReadOnly
    from ..doctor import Answer
    from ..joborders import FileList, JobQuestion, NodeOrder, NodeStop, Readiness, Synced, SyncFolder

#: What a person jumps between: the kinds of records, and what one of them is called on the time line.
EVENT_KINDS: Final = frozenset({"finding", "mark", "gap", "gpu_event", "node_state", "stack"})
#: Figures, of which only the last ones matter to what is true at an instant.
_FIGURES: Final = frozenset({"host", "agent_cost", "gpu", "gpu_digest", "gpu_link", "nic", "rank_stat"})
#: So far back figures are folded again after a jump, ns: what the fine part of the history holds.
BEHIND_NS: Final = 300_000_000_000
#: One step of the player may take so long, s: the screen must go on. Where that is too little, time goes slower.
STEP_S: Final = 0.06
_MOST_AT_ONCE: Final = 2_000
SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)


class NotLive(Exception):
    """Something was asked of nodes that only a live fleet can do."""


@dataclass(frozen=True)
class Instant:
    """Something happened."""

    rx: int  # console CLOCK_REALTIME, ns
    what: str  # finding, mark, gap, …


class Replay:
    """The `Control` of a recorded session, and its player. `store` is what was true at `position`.

    A jump makes a new store: what is shown is always the fold of what had arrived until then.
    """

    recordings = None

    def __init__(self, session: Session, history_bytes: int | None = None) -> None:
        """Open a session at its beginning. Raises SessionError for one without a record, OSError."""
        self.session, self.meta = session, session.read()
        self.damages: list[Damage] = []
        self.begin, self.end = _span(session.path, self.meta.parts[0].began if self.meta.parts else 0)
        self.events: Sequence[Instant] = ()
        self.speed = 1.0
        self.is_playing = False
        self._history_bytes = history_bytes
        self.position = self.begin
        self._place(*self._folded(self.begin))

    # -- the player --------------------------------------------------------------------------------------------------

    def advance(self, passed_s: float) -> None:
        """So much time has gone by for the person who looks: tell what came in meanwhile."""
        if not self.is_playing:
            return
        goal = min(self.end, self.position + int(passed_s * self.speed * 1e9))
        is_told = self._tell_until(goal)
        self.position = goal if is_told else max(self.position, self.store.newest_rx)
        if is_told and goal >= self.end:
            self.is_playing = False

    def faster(self, by: int) -> None:
        """Change to the next speed, up or down."""
        at = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]

    def jump(self, to: int) -> None:
        """Go to an instant: `store` is another one then. Takes long in a long session: call it in a thread."""
        self._place(*self._folded(max(self.begin, min(self.end, to))))

    def event_before(self) -> Instant | None:
        """The last event before the present second."""
        at = bisect.bisect_left(self.events, self.position - 1_000_000_000, key=lambda event: event.rx)
        return self.events[at - 1] if at else None

    def event_after(self) -> Instant | None:
        at = bisect.bisect_right(self.events, self.position, key=lambda event: event.rx)
        return self.events[at] if at < len(self.events) else None

    def find_events(self) -> None:
        """Look through the session for what happened. Takes long: call it in a thread."""
        found, captures = [], set[str]()
        for record in reading.lenient(self.session.path, self._note, Choice(kinds=EVENT_KINDS)):
            if isinstance(record, Stack):
                if record.capture in captures:
                    continue
                captures.add(record.capture)
            what = _event(record)
            if what and record.rx >= self.begin:
                found.append(Instant(record.rx, what))
        self.events = sorted(found, key=lambda event: event.rx)

    def _place(self, store: Store, rest: Iterator[Published], position: int) -> None:
        self.store, self._rest, self.position = store, rest, position
        self._next: Published | None = next(rest, None)
        self._hub = Hub()
        self._hub.subscribe(store.apply)

    def _folded(self, to: int) -> tuple[Store, Iterator[Published], int]:
        """A store of all that had arrived until then, and what comes after."""
        store, path = Store(self._history_bytes), self.session.path
        near = max(self.begin, to - BEHIND_NS)
        changes = frozenset(KINDS) - _FIGURES
        for choice in (Choice(kinds=changes, to_rx=near), Choice(from_rx=near, to_rx=to + 1)):
            for record in reading.lenient(path, self._note, choice):
                store.apply([record])
        store.newest_rx = max(store.newest_rx, self.begin)
        return store, reading.lenient(path, self._note, Choice(from_rx=to + 1)), to

    def _tell_until(self, goal: int) -> bool:
        """Whether all was told that had arrived by then; false where that took too long."""
        deadline = time.monotonic() + STEP_S
        while self._next is not None and self._next.rx <= goal:
            batch: list[Published] = []
            while self._next is not None and self._next.rx <= goal and len(batch) < _MOST_AT_ONCE:
                batch.append(self._next)
                self._next = next(self._rest, None)
            self._hub.publish(batch)
            if time.monotonic() > deadline:
                return self._next is None or self._next.rx > goal
        return True

    def _note(self, damage: Damage) -> None:
        if damage not in self.damages:
            self.damages.append(damage)

    # -- Control -----------------------------------------------------------------------------------------------------

    async def reconnect(self, node: str) -> None:
        _refuse()

    async def remove_node(self, node: str) -> None:
        _refuse()

    async def add_nodes(self, names: str) -> Sequence[str]:
        _refuse()

    async def apply(self, config: Config) -> Changes:
        _refuse()

    async def examine(self, nodes: Sequence[str]) -> Sequence[Answer]:
        _refuse()

    async def mark(self, text: str) -> None:
        _refuse()

    def refusal(self, change: Change) -> ReadOnly | None:
        return None  # nothing is forbidden; there is nothing that could be changed

    async def capture(self, order: CaptureOrder) -> CaptureDone:
        _refuse()

    async def probe_job(self, nodes: Sequence[str], question: JobQuestion) -> Mapping[str, Readiness | Failure]:
        _refuse()

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        _refuse()

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        _refuse()

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        _refuse()

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        _refuse()

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        return {}  # what was read of it then is in the recording

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        _refuse()

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        _refuse()

    def want_clocks(self, who: str, wanted: bool) -> None:
        """There is no clock to probe; what was found then is in the recording."""

    async def stop(self) -> None:
        self.is_playing = False


def _refuse() -> NoReturn:
    raise NotLive("this is a recording: there is no node to ask")


def _span(path: Path, began: int) -> tuple[int, int]:
    """From when to when a session tells; what it began with had arrived before. Raises SessionError."""
    first = last = None
    for _, frame in reading.labels(path, _never_mind):
        first = frame.label.first_rx if first is None else first
        last = max(last or 0, frame.label.last_rx)
    if first is None or last is None:
        raise SessionError(f"{path}: there is no record in it")
    return (began if first <= began <= last else first), last


def _never_mind(damage: Damage) -> None:
    """Told when it is read."""


def _event(record: Published) -> str:
    """What to call it; empty for what nobody jumps to."""
    match record:
        case Finding(cleared_at=None):
            return "finding"
        case NodeState(state="lost" | "failed"):
            return f"node {record.state}"
        case Mark():
            return "mark"
        case Gap():
            return "gap"
        case GpuEvent():
            return record.event
        case Stack():
            return "capture"
    return ""
