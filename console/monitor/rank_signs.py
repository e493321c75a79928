"""Signs of progress of each rank in a store: the meaning of its place, its connections, its GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary, proxy

import msgspec

from ..analysis.late_rank import HORIZON_S, MOST_SAMPLES, PlaceSample
from ..analysis.live_progress import CollectiveReads
from ..analysis.pace import Pulse
from ..analysis.places import Activity, PlaceFacts, place_facts
from ..analysis.stacks.frames import Reader
from ..analysis.stalls import JobKey
from ..core.store import ProcessKey, RankNow, Store
from ..core.store.entities import QUIET_BYTES_S
from ..records import PgStatus, Place, Rank
from .hang import hang_models
from .job_clocks import JobClocks
from .rank_gpus import gpu_figures

#: ns. An older sample of a place says nothing of the present: nodes that cannot afford samples take them rarely.
FRESH_NS: Final = 60_000_000_000
#: Steps of a rank, or intervals in which the ranks of a node exchanged data, from which a job has trained: what it sets
#: up later is no start.
LEAST_TRAINED: Final = 3
#: ns. Reads of a Flight Recorder that are closer are one: each group has a record of its own.
LEAST_APART_NS: Final = 1_000_000_000
#: Distinct stacks whose meaning is kept; nodes are untrusted.
MOST_STACKS: Final = 16_384


#: (node, pid, start_ticks)
ReaderKey = tuple[str, int, int]


class _Read(NamedTuple):
    """The newest collective of each process group of a rank, in one read of its Flight Recorder."""

    at: int  # CLOCK_REALTIME of the node, ns
    groups: dict[tuple[str, str], int]


def _add_read(reads: dict[ReaderKey, list[_Read]], group: PgStatus) -> None:
    if group.source not in ("worker_server", "fr_dump") or group.status != "ok" or group.read_at is None:
        return
    completed, newest = group.last_completed_collective, group.last_enqueued_collective
    newest = newest if completed is None else completed  # gloo completes none
    if newest is None or group.process_group is None or group.pid is None or group.start_ticks is None:
        return
    of_rank = reads.setdefault((group.node, group.pid, group.start_ticks), [])
    if not of_rank or group.read_at - of_rank[-1].at >= LEAST_APART_NS:
        of_rank.append(_Read(group.read_at, {}))
    of_rank[-1].groups[group.process_group] = newest


class _Exchanges(msgspec.Struct):
    """Intervals between two samples of a rank in which it moved data, and at whose end it was in a collective."""

    count: int = 0  # those that do not overlap, of all ranks of a job on one node
    until_s: float = 0.0  # end of the newest one, on the node's clock


class RankSigns:
    """The signs of the ranks of one store."""

    def __init__(self, store: Store) -> None:
        self._models: tuple[str, ...] = ()
        self._reader: Reader | None = None
        self._facts: dict[ProcessKey, tuple[Place, PlaceFacts]] = {}
        self._read = 0
        self._samples: dict[ProcessKey, deque[PlaceSample]] = {}
        self._exchanges: dict[tuple[str, int, str], _Exchanges] = {}  # by job, attempt and node
        self._store: Store = proxy(store)  # else a store would never be freed
        self.clocks = JobClocks(store)
        self._reads: tuple[int, dict[ReaderKey, list[_Read]]] = (-1, {})

    def facts(self, key: ProcessKey, place: Place) -> PlaceFacts:
        """The meaning of the place of a rank; the same one until it changes."""
        cached = self._facts.get(key)
        if cached is not None and cached[0] is place:
            return cached[1]
        facts = cached[1] if cached is not None and cached[0].frames == place.frames else self._read_facts(place)
        self._facts[key] = (place, facts)
        self._keep(key, place, facts)
        return facts

    def activity(self, key: ProcessKey, now: RankNow, place: Place, trained: dict[JobKey, bool]) -> Activity | None:
        """What a rank is busy with apart from training; one that has trained does not start. `trained` is a cache."""
        activity, job = self.facts(key, place).activity, (now.rank.job, now.rank.attempt)
        if activity != "starting":
            return activity
        if job not in trained:
            trained[job] = self.has_trained(*job)
        return None if trained[job] else activity

    def pulse(self, rank: Rank) -> Pulse | None:
        """The steps of the job of a rank in a curve of its node; None where they do not show."""
        return self.clocks.pulse(rank)

    def collectives(self, rank: Rank, now_ns: int) -> CollectiveReads | None:
        """What the newest two reads of the Flight Recorder of a rank show; None if it was not read twice."""
        reads = self._flight_reads().get((rank.node, rank.pid, rank.start_ticks), [])
        if len(reads) < 2:
            return None
        before, after = reads[-2:]
        gained = sum(
            max(0, count - before.groups[name]) for name, count in after.groups.items() if name in before.groups
        )
        return CollectiveReads(gained, (after.at - before.at) / 1e9, (now_ns - after.at) / 1e9)

    def _flight_reads(self) -> Mapping[ReaderKey, list[_Read]]:
        """The newest reads of Flight Recorders by process, oldest first."""
        version = self._store.captures.table.version
        if self._reads[0] != version:
            reads: dict[ReaderKey, list[_Read]] = {}
            for capture in self._store.captures.values():
                for group in capture.groups:
                    _add_read(reads, group)
            self._reads = (version, reads)
        return self._reads[1]

    def samples(self, key: ProcessKey) -> Sequence[PlaceSample]:
        """The recent light samples of a rank, oldest first."""
        return self._samples.get(key, ())

    def has_trained(self, job: str, attempt: int) -> bool:
        """Whether a job has made steps, or its ranks have exchanged data in collectives, while it was watched."""
        if self.clocks.get((job, attempt)) is not None:
            return True
        for key, now in self._store.ranks.items():
            rank = now.rank
            if (rank.job, rank.attempt) != (job, attempt):
                continue
            exchanges = self._exchanges.get((job, attempt, rank.node))
            if exchanges is not None and exchanges.count >= LEAST_TRAINED:
                return True
            made = None if rank.rank is None else self._store.steps.newest((job, attempt, rank.rank), LEAST_TRAINED)
            if made is not None and made[0] == key[1:] and len(made[1]) >= LEAST_TRAINED:
                return True
        return False

    def _keep(self, key: ProcessKey, place: Place, facts: PlaceFacts) -> None:
        samples = self._samples.setdefault(key, deque(maxlen=MOST_SAMPLES))
        at_s = place.sampled / 1e9
        if samples and at_s <= samples[-1].at_s:
            return
        while samples and at_s - samples[0].at_s > HORIZON_S:
            samples.popleft()
        is_quiet = (
            bool(samples)
            and place.moved_bytes is not None
            and (place.moved_bytes <= QUIET_BYTES_S * (at_s - samples[-1].at_s))
        )
        before_s = samples[-1].at_s if samples else at_s
        samples.append(PlaceSample(at_s, facts.cls, facts.activity, place.slept, is_quiet))
        now = self._store.ranks.get(key)
        if facts.cls == "collective" and facts.activity is None and place.moved_bytes and now is not None:
            rank = now.rank
            exchanges = self._exchanges.setdefault((rank.job, rank.attempt, rank.node), _Exchanges())
            if exchanges.until_s <= before_s < at_s:
                exchanges.count, exchanges.until_s = exchanges.count + 1, at_s

    def _read_facts(self, place: Place) -> PlaceFacts:
        models = self._store.console.hang_models if self._store.console else ()
        if self._reader is None or models != self._models or self._read >= MOST_STACKS:
            self._reader, self._models, self._read = Reader(hang_models(self._store)), models, 0
            self._forget()
        self._read += 1
        return place_facts(place.frames, self._reader)

    def _forget(self) -> None:
        """Drop processes that are no longer ranks."""
        for table in (self._facts, self._samples):
            for key in [key for key in table if key not in self._store.ranks]:
                del table[key]
        kept = {(now.rank.job, now.rank.attempt, now.rank.node) for now in self._store.ranks.values()}
        for job in [job for job in self._exchanges if job not in kept]:
            del self._exchanges[job]

    def transfers(self, job: str, attempt: int) -> Mapping[int, bool | None]:
        """By rank, whether its GPU exchanges data with others."""
        return {rank: gpu.is_transferring for rank, gpu in gpu_figures(self._store, job, attempt).items()}


_SIGNS: Final[WeakKeyDictionary[Store, RankSigns]] = WeakKeyDictionary()


def signs_of(store: Store) -> RankSigns:
    """The signs of a store: the same object for all readers."""
    signs = _SIGNS.get(store)
    if signs is None:
        signs = _SIGNS[store] = RankSigns(store)
    return signs


def current_place(now: RankNow) -> Place | None:
    """The newest place of a rank; None where it was sampled too long ago to say anything of the present."""
    if now.place is None or now.stat is None or now.stat.t - now.place.sampled > FRESH_NS:
        return None
    return now.place


def quiet_s(now: RankNow) -> float:
    """Seconds for which the data connections of a rank are silent, up to its newest sample; 0.0 where they are not."""
    if now.quiet_since is None or now.place is None:
        return 0.0
    return (now.place.sampled - now.quiet_since) / 1e9
