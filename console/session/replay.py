"""Replay of a session: publishes its records on a bus as they arrived, from any instant, at any speed."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from ..core.bus import Hub, Published
from ..core.store import Store
from ..core.wants import Want
from ..records import Failure, Finding, Gap, GpuEvent, Mark, NodeState, Stack
from .format import index
from .format.layout import Session, SessionError
from .format.reader import RecordFilter
from .format.zstd_frames import Damage

if TYPE_CHECKING:
    from ..config.model import Change, ReadOnly

#: Kinds of the events on the time line.
EVENT_KINDS: Final = frozenset({"finding", "mark", "gap", "gpu_event", "node_state", "stack"})
#: ns before the target from which a jump folds metrics: the fine part of the metric history.
BEHIND_NS: Final = 300_000_000_000
#: ns of a quick jump: longer than any sampling interval, so that every entity has its latest metrics.
QUICK_NS: Final = 30_000_000_000
#: Seconds. Upper bound on one step of playing, so that the screen stays responsive; then the replay slows down.
STEP_S: Final = 0.06
_BATCH_RECORDS: Final = 2_000
#: The real speed is an average over this many seconds, reported below this share of the requested speed.
_AVERAGED_S: Final = 2.0
_LAGS: Final = 0.8
SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)


class NotLive(Exception):
    """A request that needs live nodes."""


class ReplayEvent(msgspec.Struct, frozen=True):
    """One event of the time line."""

    rx: int  # console CLOCK_REALTIME, ns
    what: str  # finding, mark, gap, …


class _ControlWithoutNodes:
    """The `Control` of a recording: requests to nodes raise NotLive, clock probes and job watching are ignored."""

    recordings = None

    def refusal(self, change: Change) -> ReadOnly | None:
        return None

    def want(self, who: str, *wants: Want) -> None:
        """No effect: a session has what was recorded."""

    def in_background(self, is_hidden: bool) -> None:
        """No effect, as `want`."""

    def request_clock_probes(self, who: str, wanted: bool) -> None:
        pass

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        return {}

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotLive("not available in replay: this is a recording")

    reconnect = remove_node = add_nodes = apply = examine = mark = capture = profile = _refuse
    probe_job = sync_folder = start_job = stop_job = follow_job = list_job_files = read_job_file = _refuse


class Replay(_ControlWithoutNodes):
    """Player of a recorded session. `store` is the state at `position`; a jump replaces it by a new store."""

    def __init__(self, session: Session, history_bytes: int | None = None) -> None:
        """Open a session at its beginning. Raises SessionError if it has no records, OSError."""
        self.session, self.meta = session, session.read()
        self.damages: list[Damage] = []
        self._indexed = index.open_index(session)
        self._scratch: TemporaryDirectory[str] | None = None
        span = self._indexed.span(self.meta)
        if span is None:
            raise SessionError(f"{session.path}: the session has no records")
        self.begin, self.end = span
        self.events: Sequence[ReplayEvent] = ()
        self.speed = 1.0
        self.is_playing = False
        self._history_bytes = history_bytes
        self.position = self.begin
        self._real_share = 1.0  # of the requested speed, averaged
        self._backfill_cancelled = self._closed = False
        self.needs_backfill = False  # after `jump_quickly`, until `apply_backfill`
        self._full: Store | None = None  # the state at `position` with the minutes before, after `backfill`
        self._place(*self._folded(self.begin, BEHIND_NS))

    # -- player --------------------------------------------------------------------------------------------------------

    def advance(self, passed_s: float) -> None:
        """Publish what arrived in this many seconds of the user's time."""
        if not self.is_playing or self.needs_backfill:
            return
        before, goal = self.position, min(self.end, self.position + int(passed_s * self.speed * 1e9))
        is_complete = self._publish_until(goal)
        self.position = goal if is_complete else max(self.position, self.store.newest_rx)
        if goal > before:
            weight = min(1.0, passed_s / _AVERAGED_S)
            self._real_share += ((self.position - before) / (goal - before) - self._real_share) * weight
        if is_complete and goal >= self.end:
            self.is_playing = False

    @property
    def real_speed(self) -> float | None:
        """The actual speed if it is below `speed` because this machine is too slow; else None."""
        lags = self.is_playing and self._real_share < _LAGS
        return self.speed * self._real_share if lags else None

    def faster(self, by: int) -> None:
        """Select the next higher or lower speed."""
        number = SPEEDS.index(self.speed) + by
        self.speed, self._real_share = SPEEDS[max(0, min(len(SPEEDS) - 1, number))], 1.0

    def jump(self, to: int) -> None:
        """Go to an instant; replaces `store`. Slow in a long session: call it in a thread."""
        self._place(*self._folded(max(self.begin, min(self.end, to)), BEHIND_NS))

    def jump_quickly(self, to: int) -> None:
        """Go to an instant with metrics of the last seconds only; playing pauses until `backfill` and `apply_backfill`.

        Call it in a thread.
        """
        to = max(self.begin, min(self.end, to))
        self._place(*self._folded(to, QUICK_NS))
        self.needs_backfill = to - QUICK_NS > self.begin

    def backfill(self) -> None:
        """Fold the minutes before the present instant for `apply_backfill`. Call it in a thread."""
        self._backfill_cancelled = False
        full, _, _ = self._folded(self.position, BEHIND_NS, lambda: self._backfill_cancelled)
        self._full = None if self._backfill_cancelled else full

    def apply_backfill(self) -> None:
        """Add the backfilled metrics to `store`. Call it in the thread that reads the store."""
        if self._full is not None:
            self.store.backfill(self._full)
        self._full, self.needs_backfill = None, False

    def cancel_backfill(self) -> None:
        """Cancel a running `backfill`."""
        self._backfill_cancelled = True

    def event_before(self) -> ReplayEvent | None:
        """Return the last event before the present second."""
        number = bisect.bisect_left(self.events, self.position - 1_000_000_000, key=lambda event: event.rx)
        return self.events[number - 1] if number else None

    def event_after(self) -> ReplayEvent | None:
        """Return the next event."""
        number = bisect.bisect_right(self.events, self.position, key=lambda event: event.rx)
        return self.events[number] if number < len(self.events) else None

    def build_index(self) -> None:
        """Complete the index, which makes jumps quick. Slow: call it in a thread.

        If the session's folder is not writable, the index is temporary.
        """
        try:
            self._indexed = index.build_index(self.session, is_over=lambda: self._closed)
        except OSError:
            self._scratch = self._scratch or TemporaryDirectory(prefix="gconsole-index-")
            folder = Path(self._scratch.name)
            self._indexed = index.build_index(self.session, folder, is_over=lambda: self._closed)

    def find_events(self) -> None:
        """Fill `events` from the whole session. Slow: call it in a thread."""
        events, captures = [], dict[str, int]()
        for record in self._indexed.events(EVENT_KINDS, self._note_damage):
            if isinstance(record, Stack):
                captures[record.capture] = record.rx  # complete with its last stack
                continue
            what = _event_name(record)
            if what and record.rx >= self.begin:
                events.append(ReplayEvent(record.rx, what))
        events += (ReplayEvent(rx, "capture") for rx in captures.values() if rx >= self.begin)
        self.events = sorted(events, key=lambda event: event.rx)

    async def stop(self) -> None:
        """Stop playing, and cancel work in other threads."""
        self.is_playing = False
        self._closed = self._backfill_cancelled = True

    def _place(self, store: Store, rest: Iterator[Published], position: int) -> None:
        self._full, self.needs_backfill = None, False
        self.store, self._rest, self.position = store, rest, position
        self._next: Published | None = next(rest, None)
        self._hub = Hub()
        self._hub.subscribe(store.apply)

    def _folded(
        self, to: int, behind_ns: int, is_over: Callable[[], bool] = lambda: False
    ) -> tuple[Store, Iterator[Published], int]:
        """The state at an instant, with metrics of `behind_ns` before; the records after; the instant."""
        store, indexed = Store(self._history_bytes), self._indexed
        near = max(self.begin, to - behind_ns)
        metrics = indexed.records(self._note_damage, RecordFilter(from_rx=near, to_rx=to + 1))
        past = chain(indexed.changes(near, self._note_damage), metrics)
        while batch := list(islice(past, _BATCH_RECORDS)):
            for record in batch:
                store.apply([record])
            if is_over():
                break
        store.newest_rx = max(store.newest_rx, self.begin)
        return store, indexed.records(self._note_damage, RecordFilter(from_rx=to + 1)), to

    def _publish_until(self, goal: int) -> bool:
        """Whether everything up to an instant was published; false when it took too long."""
        deadline = time.monotonic() + STEP_S
        while self._next is not None and self._next.rx <= goal:
            batch: list[Published] = []
            while self._next is not None and self._next.rx <= goal and len(batch) < _BATCH_RECORDS:
                batch.append(self._next)
                self._next = next(self._rest, None)
            self._hub.publish(batch)
            if time.monotonic() > deadline:
                return self._next is None or self._next.rx > goal
        return True

    def _note_damage(self, damage: Damage) -> None:
        if damage not in self.damages:
            self.damages.append(damage)


def _event_name(record: Published) -> str:
    """Name of an event on the time line; "" for records that are not shown."""
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
