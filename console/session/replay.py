"""A session played again: its records reach a hub as they once arrived, from any instant, at any speed."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NoReturn

from ..core.bus import Hub, Published
from ..core.control import CaptureRequest, CaptureResult
from ..core.store import Store
from ..records import Failure, Finding, Gap, GpuEvent, Mark, NodeState, Stack
from .format import index
from .format.index import Way
from .format.layout import Meta, Session, SessionError
from .format.reader import Choice
from .format.zstd_frames import Damage

if TYPE_CHECKING:
    from ..config.diff import Changes
    from ..config.model import Change, Config, ReadOnly
    from ..core.control import ExamReply
    from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder

#: What a person jumps between: the kinds of records, and what one of them is called on the time line.
EVENT_KINDS: Final = frozenset({"finding", "mark", "gap", "gpu_event", "node_state", "stack"})
#: So far back figures are folded again after a jump, ns: what the fine part of the history holds.
BEHIND_NS: Final = 300_000_000_000
#: So far back in one that is to be quick: longer than any tick, so that everything has its last figures.
QUICK_NS: Final = 30_000_000_000
#: One step of the player may take so long, s: the screen must go on. Where that is too little, time goes slower.
STEP_S: Final = 0.06
_MOST_AT_ONCE: Final = 2_000
#: Its real speed is an average of so long, s; it is told where it is less than that share of what was asked for.
_AVERAGED_S: Final = 2.0
_LAGS: Final = 0.8
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
        self._way = index.known(session)
        self._scratch: TemporaryDirectory[str] | None = None
        self.begin, self.end = _span(self._way, self.meta)
        self.events: Sequence[Instant] = ()
        self.speed = 1.0
        self.is_playing = False
        self._history_bytes = history_bytes
        self.position = self.begin
        self._kept_up = 1.0  # the share of the time asked for that was told lately
        self._given_up = self._closed = False
        self.lacks_past = False  # after `jump_quickly`, until `take_past`
        self._full: Store | None = None  # of `position`, with the minutes before, once somebody has folded them
        self._place(*self._folded(self.begin, BEHIND_NS))

    # -- the player --------------------------------------------------------------------------------------------------

    def advance(self, passed_s: float) -> None:
        """So much time has gone by for the person who looks: tell what came in meanwhile."""
        if not self.is_playing or self.lacks_past:
            return
        before, goal = self.position, min(self.end, self.position + int(passed_s * self.speed * 1e9))
        is_told = self._tell_until(goal)
        self.position = goal if is_told else max(self.position, self.store.newest_rx)
        if goal > before:
            weight = min(1.0, passed_s / _AVERAGED_S)
            self._kept_up += ((self.position - before) / (goal - before) - self._kept_up) * weight
        if is_told and goal >= self.end:
            self.is_playing = False

    @property
    def real_speed(self) -> float | None:
        """How fast time goes where that is less than `speed`: there is more to tell than this machine can."""
        lags = self.is_playing and self._kept_up < _LAGS
        return self.speed * self._kept_up if lags else None

    def faster(self, by: int) -> None:
        """Change to the next speed, up or down."""
        at = SPEEDS.index(self.speed) + by
        self.speed, self._kept_up = SPEEDS[max(0, min(len(SPEEDS) - 1, at))], 1.0

    def jump(self, to: int) -> None:
        """Go to an instant: `store` is another one then. Takes long in a long session: call it in a thread."""
        self._place(*self._folded(max(self.begin, min(self.end, to)), BEHIND_NS))

    def jump_quickly(self, to: int) -> None:
        """The same, but of the minutes before only the last seconds are known: `fold_past` brings the rest.

        Until then time stands still. Call both in a thread.
        """
        to = max(self.begin, min(self.end, to))
        self._place(*self._folded(to, QUICK_NS))
        self.lacks_past = to - QUICK_NS > self.begin

    def fold_past(self) -> None:
        """Fold the minutes before the present instant; `take_past` puts them into the store."""
        self._given_up = False
        full, _, _ = self._folded(self.position, BEHIND_NS, lambda: self._given_up)
        self._full = None if self._given_up else full

    def take_past(self) -> None:
        """Into the same store, whoever looks at it: call it where the store is read."""
        if self._full is not None:
            self.store.take_past(self._full)
        self._full, self.lacks_past = None, False

    def give_up_past(self) -> None:
        """End `fold_past` early: somebody wants to be elsewhere."""
        self._given_up = True

    def event_before(self) -> Instant | None:
        """The last event before the present second."""
        at = bisect.bisect_left(self.events, self.position - 1_000_000_000, key=lambda event: event.rx)
        return self.events[at - 1] if at else None

    def event_after(self) -> Instant | None:
        at = bisect.bisect_right(self.events, self.position, key=lambda event: event.rx)
        return self.events[at] if at < len(self.events) else None

    def look_through(self) -> None:
        """Make the index, where there is none yet: jumps are quick from then on. Takes long: call it in a thread.

        Where the session's folder cannot be written to, the index is gone with this replay.
        """
        try:
            self._way = index.build(self.session, is_over=lambda: self._closed)
        except OSError:
            self._scratch = self._scratch or TemporaryDirectory(prefix="gconsole-index-")
            self._way = index.build(self.session, Path(self._scratch.name), is_over=lambda: self._closed)

    def find_events(self) -> None:
        """Look through the session for what happened. Takes long: call it in a thread."""
        found, captures = [], dict[str, int]()
        for record in self._way.events(EVENT_KINDS, self._note):
            if isinstance(record, Stack):
                captures[record.capture] = record.rx  # it is there once the last of it has come
                continue
            what = _event(record)
            if what and record.rx >= self.begin:
                found.append(Instant(record.rx, what))
        found += (Instant(rx, "capture") for rx in captures.values() if rx >= self.begin)
        self.events = sorted(found, key=lambda event: event.rx)

    def _place(self, store: Store, rest: Iterator[Published], position: int) -> None:
        self._full, self.lacks_past = None, False
        self.store, self._rest, self.position = store, rest, position
        self._next: Published | None = next(rest, None)
        self._hub = Hub()
        self._hub.subscribe(store.apply)

    def _folded(
        self, to: int, behind_ns: int, is_over: Callable[[], bool] = lambda: False
    ) -> tuple[Store, Iterator[Published], int]:
        """A store of all that had arrived until then, figures of so long before; and what comes after."""
        store, way = Store(self._history_bytes), self._way
        near = max(self.begin, to - behind_ns)
        past = chain(
            way.changes(near, self._note), way.records(self._note, Choice(from_rx=near, to_rx=to + 1))
        )  # fmt: skip
        while batch := list(islice(past, _MOST_AT_ONCE)):
            for record in batch:
                store.apply([record])
            if is_over():
                break
        store.newest_rx = max(store.newest_rx, self.begin)
        return store, way.records(self._note, Choice(from_rx=to + 1)), to

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

    async def examine(self, nodes: Sequence[str]) -> Sequence[ExamReply]:
        _refuse()

    async def mark(self, text: str) -> None:
        _refuse()

    def refusal(self, change: Change) -> ReadOnly | None:
        return None  # nothing is forbidden; there is nothing that could be changed

    async def capture(self, order: CaptureRequest) -> CaptureResult:
        _refuse()

    async def probe_job(self, nodes: Sequence[str], question: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
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
        self._closed = self._given_up = True


def _refuse() -> NoReturn:
    raise NotLive("this is a recording: there is no node to ask")


def _span(way: Way, meta: Meta) -> tuple[int, int]:
    """From when to when a session tells; what it began with had arrived before. Raises SessionError."""
    told = list(way.spans(meta))
    if not told:
        raise SessionError(f"{way.session.path}: there is no record in it")
    began, first, last = meta.parts[0].began if meta.parts else 0, told[0][0], max(end for _, end in told)
    return (began if first <= began <= last else first), last


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
    return ""
