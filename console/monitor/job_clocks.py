"""The step clocks of each job without a watched step: a curve of each of its nodes that repeats with its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import proxy

import msgspec

from ..analysis.hang.gpu_activity import MOVES_BYTES_S
from ..analysis.pace import Pulse, Slowdown
from ..analysis.stalls import JobKey
from ..core.store import Store
from ..core.store.entities import key_of
from ..core.store.traffic import TrafficCurve
from ..records import Rank
from ..records.kinds import is_gone
from .rank_gpus import rank_gpus

if TYPE_CHECKING:
    from ..analysis.step_clock import StepClock

#: Seconds between two reads of a curve, and between two searches for one.
READ_S: Final = 5
SEARCH_S: Final = 60
#: ns after the first record from which figures are kept.
STARTS_NS: Final = 20_000_000_000
#: Ports of a node that are added up; nodes are untrusted.
MOST_PORTS: Final = 64
#: Nodes of a job whose curves are read: those of the lowest ranks.
MOST_NODES: Final = 64
#: Newest digests of a GPU's power, and share of the range of the curve that half of them may span: a step that is
#: shorter than the second of a sample would show as a longer one.
DIGESTS: Final = 12
MOST_SPAN: Final = 0.5
#: Seconds for which the traffic of a rank is searched for steps, and for which it is not after that.
TRY_S, REST_S = 300, 1500
#: A period that is so many times shorter than another one is of a part of a step.
PART: Final = 1.5
#: ns without traffic of a rank, as from an agent beyond its budget, after which nothing is known of its steps.
FRESH_NS: Final = 10_000_000_000
#: Bytes a second, by the connections of a rank, from which it exchanges data.
LEAST_BYTES_S: Final = 2_000.0
_RX_TX: Final = ("rx_bytes_s", "tx_bytes_s")
_NVLINK: Final = ("nvlink_rx_bytes_s", "nvlink_tx_bytes_s")
_POWER: Final = ("power_w",)


class Signal(msgspec.Struct, frozen=True):
    """A curve: the sum of metrics of some entities of the history."""

    source: Literal["nic", "gpu"]
    curve: str  # as text: the traffic of node1
    node: str
    family: str
    keys: tuple[tuple[Any, ...], ...]
    metrics: tuple[str, ...]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The fields of records that it consists of."""
        return tuple(f"{self.family}.{metric}" for metric in self.metrics)

    def values(self, store: Store) -> Any:
        """The last five minutes, one value a second, NaN where unknown."""
        import numpy as np

        series = store.recent().series[self.family]
        curves = [series.recent(key, metric) for key in self.keys for metric in self.metrics]
        return sum([curve for curve in curves if not np.isnan(curve).all()] or curves[:1])  # ports that are down


class CurveClock:
    """The clock of one node of one attempt of a job."""

    def __init__(self) -> None:
        self.signal: Signal | None = None
        self.pulse: Pulse | None = None  # the steps that the curve shows; None without a steady period
        self.is_found = False  # the curve had a steady period once: no other one is searched
        self._clock: StepClock | None = None
        self._spans: deque[float] = deque(maxlen=DIGESTS)
        self._searched_s = self._began_s = 0

    @property
    def curve(self) -> str:
        """As text: the traffic of node1."""
        return self.signal.curve if self.signal is not None else ""

    @property
    def evidence(self) -> tuple[str, ...]:
        """The fields of records in which the steps show."""
        return self.signal.evidence if self.signal is not None else ()

    @property
    def slowdown(self) -> Slowdown | None:
        """How much slower the steps have become; None where they are not lastingly slower."""
        return self._clock.slowdown if self._clock is not None else None

    def read(self, store: Store, first: Rank, is_shared: bool, now_s: int) -> None:
        """Read the curve; one is searched until it has a period. `now_s` is the newest second of the history.

        `first` is the rank of lowest number on the node. Where ranks of several jobs share it, its traffic shows the
        steps of none.
        """
        if self.signal is not None and self.signal.source == "nic" and is_shared:
            self.signal = self.pulse = self._clock = None
            self.is_found = False
        if not self.is_found and now_s - self._searched_s >= SEARCH_S:
            self._search(store, first, is_shared, now_s)
        signal = self.signal
        newest_s = store.recent().series[signal.family].newest_s if signal is not None else None
        if signal is None or newest_s is None or self._clock is None:
            return
        values = signal.values(store)
        if signal.metrics != _POWER or self._is_resolved(store, signal, values):
            self._clock.read(newest_s, values)
        self.pulse = self._pulse(signal, self._clock)
        self.is_found = self.is_found or self.pulse is not None

    @staticmethod
    def _pulse(signal: Signal, clock: StepClock) -> Pulse | None:
        period_s, age_s = clock.period_s, clock.pulse_age_s
        if period_s is None or age_s is None:
            return None
        return Pulse(
            signal.source, signal.curve, signal.node, period_s, age_s, clock.longest_pause_s, signal.evidence
        )  # fmt: skip

    def _search(self, store: Store, first: Rank, is_shared: bool, now_s: int) -> None:
        """Follow the best curve, or the next one where that has shown no period for minutes."""
        from ..analysis.step_clock import LONGEST_WINDOW_S, StepClock

        self._searched_s = now_s
        signals = [each for each in _signals(store, first, is_shared) if _is_strong(store, each)]
        signal = signals[0] if signals else None
        if self.signal in signals:
            is_over = now_s - self._began_s >= 2 * LONGEST_WINDOW_S
            signal = signals[(signals.index(self.signal) + is_over) % len(signals)]
        if signal is not None and signal != self.signal:
            self.signal, self._clock = signal, StepClock(conserves=signal.metrics != _POWER)
            self._began_s = now_s
            self._spans.clear()

    def _is_resolved(self, store: Store, signal: Signal, values: Any) -> bool:
        """Whether the power of a GPU changes from second to second rather than within them."""
        import numpy as np

        now = store.gpus.get(signal.keys[0])
        if now is None or now.digest is None or now.digest.power_w is None:
            return False
        self._spans.append(now.digest.power_w.max - now.digest.power_w.min)
        seen = values[~np.isnan(values)]
        if len(self._spans) < DIGESTS or not len(seen):
            return False
        return bool(median(self._spans) <= MOST_SPAN * float(seen.max() - seen.min()))


class TrafficClock:
    """The clock of a job by what one of its ranks exchanges in short intervals."""

    evidence = ("rank_traffic.moved_bytes",)

    def __init__(self, rank: Rank, now_s: int) -> None:
        self.key = key_of(rank)
        self.curve = f"the traffic of rank {rank.rank}"
        self.pulse: Pulse | None = None
        self.is_found = False
        self._began_s = now_s
        self._curve: TrafficCurve | None = None  # that the clocks read
        self._clocks: tuple[StepClock, ...] = ()  # of its intervals, and of its seconds

    @property
    def slowdown(self) -> Slowdown | None:
        """How much slower the steps have become; None where they are not lastingly slower."""
        clock = self._clock
        return clock.slowdown if clock is not None else None

    @property
    def _clock(self) -> StepClock | None:
        """The clock of whole steps: of seconds, where these have a longer period than what the intervals show."""
        steady = [(clock.period_s, clock) for clock in self._clocks if clock.period_s is not None]
        if not steady:
            return None
        (first_s, first), (longest_s, longest) = steady[0], steady[-1]
        return longest if longest_s >= PART * first_s else first

    def is_wanted(self, now_s: int) -> bool:
        """Whether the node is to send the traffic: always once steps show in it, else for some minutes now and then."""
        return self.is_found or (now_s - self._began_s) % (TRY_S + REST_S) < TRY_S

    def read(self, store: Store, is_shared: bool) -> None:
        """Read what is new. Where ranks of several jobs share the node, its ports show the steps of none."""
        curve = store.traffic.get(self.key)
        is_own = curve is not None and curve.source == "tcp"
        is_fresh = curve is not None and store.newest_rx - curve.rx <= FRESH_NS
        if curve is None or not is_fresh or (is_shared and not is_own):
            self.pulse = None
            return
        self._follow(curve)
        values = curve.values()
        if not self.is_found and not _exchanges(values, curve.every_ms, LEAST_BYTES_S if is_own else MOVES_BYTES_S):
            return
        fine, by_second = self._clocks
        fine.read(curve.newest, values)
        by_second.read(*curve.seconds())
        self.pulse = self._pulse(self._clock)
        self.is_found = self.is_found or self.pulse is not None

    def _follow(self, curve: TrafficCurve) -> None:
        from ..analysis.step_clock import StepClock, fine_sampling

        if curve is not self._curve:
            self._curve = curve
            fine = StepClock(conserves=True, sampling=fine_sampling(curve.every_ms / 1e3))
            self._clocks = (fine, StepClock(conserves=True, finer=fine))

    def _pulse(self, clock: StepClock | None) -> Pulse | None:
        if clock is None or clock.period_s is None or clock.pulse_age_s is None:
            return None
        period_s, age_s = clock.period_s, clock.pulse_age_s
        return Pulse("traffic", self.curve, self.key[0], period_s, age_s, clock.longest_pause_s, self.evidence)


def _exchanges(values: Any, every_ms: int, least_bytes_s: float) -> bool:
    """Whether a rank has exchanged more than messages of control."""
    import numpy as np

    read = values[~np.isnan(values)]
    return len(read) > 0 and float(read.mean()) * 1000 / every_ms >= least_bytes_s


class JobClocks:
    """The clocks of the jobs of one store without a watched step."""

    def __init__(self, store: Store) -> None:
        self._store: Store = proxy(store)  # else a store would never be freed
        self.want: Callable[[frozenset[str]], object] = lambda nodes: None  # called with the nodes of the curves
        #: Called with the ranks whose traffic is wanted, (pid, start_ticks) by node.
        self.measure_traffic: Callable[[Mapping[str, Sequence[tuple[int, int]]]], object] = lambda ranks: None
        self._traffic: dict[JobKey, TrafficClock] = {}
        self._clocks: dict[JobKey, dict[str, CurveClock]] = {}
        self._read_s = 0

    def get(self, job: JobKey) -> CurveClock | TrafficClock | None:
        """The clock of an attempt of a job that has had a period, the one with the shortest samples; None without."""
        clocks: list[CurveClock | TrafficClock] = [*self._traffic_of(job), *self._clocks.get(job, {}).values()]
        return next((clock for clock in clocks if clock.is_found), None)

    def pulse(self, rank: Rank) -> Pulse | None:
        """The steps of the job of a rank in a curve of its node; None where they do not show."""
        job = (rank.job, rank.attempt)
        for traffic in self._traffic_of(job):
            if traffic.key[0] == rank.node and traffic.pulse is not None:
                return traffic.pulse
        clock = self._clocks.get(job, {}).get(rank.node)
        return clock.pulse if clock is not None else None

    def _traffic_of(self, job: JobKey) -> tuple[TrafficClock, ...]:
        traffic = self._traffic.get(job)
        return (traffic,) if traffic is not None else ()

    def read(self) -> None:
        """Read the curves every few seconds, and forget jobs that have ended."""
        if self._store.newest_rx - self._store.started_rx < STARTS_NS:
            return  # commands of a few seconds need no history
        now_s = self._store.newest_rx // 1_000_000_000
        if abs(now_s - self._read_s) < READ_S:
            return
        self._read_s = now_s
        jobs_on: dict[str, set[str]] = {}
        first: dict[JobKey, dict[str, Rank]] = {}
        stepping: set[JobKey] = set()
        for now in self._store.ranks.values():
            rank = now.rank
            if is_gone(rank):
                continue
            jobs_on.setdefault(rank.node, set()).add(rank.job)
            job = (rank.job, rank.attempt)
            if now.stat is not None and now.stat.step is not None:
                stepping.add(job)
            of_job = first.setdefault(job, {})
            lowest = of_job.get(rank.node)
            if rank.rank is not None and (lowest is None or lowest.rank is None or rank.rank < lowest.rank):
                of_job[rank.node] = rank
        self._clocks = {job: self._of_nodes(job, nodes) for job, nodes in first.items() if job not in stepping}
        self.want(frozenset(node for clocks in self._clocks.values() for node in clocks))
        for job, clocks in self._clocks.items():
            for node, clock in clocks.items():
                clock.read(self._store, first[job][node], len(jobs_on[node]) > 1, now_s)
        self._read_traffic({job: first[job] for job in self._clocks}, jobs_on, now_s)

    def _read_traffic(
        self, first: Mapping[JobKey, Mapping[str, Rank]], jobs_on: Mapping[str, set[str]], now_s: int
    ) -> None:
        """Read and order the traffic of the rank of lowest number of each job."""
        before, self._traffic = self._traffic, {}
        wanted: dict[str, list[tuple[int, int]]] = {}
        for job, nodes in first.items():
            if not nodes:
                continue
            rank = min(nodes.values(), key=lambda rank: rank.rank or 0)
            clock = before.get(job)
            if clock is None or clock.key != key_of(rank):
                clock = TrafficClock(rank, now_s)
            self._traffic[job] = clock
            clock.read(self._store, len(jobs_on[rank.node]) > 1)
            if clock.is_wanted(now_s):
                wanted.setdefault(rank.node, []).append((rank.pid, rank.start_ticks))
        self.measure_traffic({node: tuple(sorted(ranks)) for node, ranks in wanted.items()})

    def _of_nodes(self, job: JobKey, nodes: Mapping[str, Rank]) -> dict[str, CurveClock]:
        """The clocks of the nodes with the lowest ranks."""
        earlier = self._clocks.get(job, {})
        names = sorted(nodes, key=lambda node: nodes[node].rank or 0)[:MOST_NODES]
        return {node: earlier.get(node) or CurveClock() for node in names}


def _signals(store: Store, first: Rank, is_shared: bool) -> list[Signal]:
    """The curves of a node in which the steps of a job may show, best first."""
    node, signals = first.node, list[Signal]()
    ports = [(key, nic.rdma) for key, nic in store.nics.items() if nic.node == node and not is_shared]
    for is_rdma, curve in ((True, "the RDMA traffic of"), (False, "the traffic of")):
        keys = tuple(sorted(key for key, rdma in ports if rdma is is_rdma)[:MOST_PORTS])
        if keys:
            signals.append(Signal("nic", f"{curve} {node}", node, "nic", keys, _RX_TX))
    for key, name, now in rank_gpus(store) if len(store.gpus) else ():
        if key == (first.job, first.attempt, first.rank) and now.gpu is not None:
            gpu = ((now.gpu.node, now.gpu.uuid),)
            signals.append(Signal("gpu", f"the NVLink traffic of {name}", node, "gpu", gpu, _NVLINK))
            if now.digest is not None:
                signals.append(Signal("gpu", f"the power of {name}", node, "gpu", gpu, _POWER))
    return signals


def _is_strong(store: Store, signal: Signal) -> bool:
    """Whether a curve has had values of the last minute that are more than keepalives and monitoring."""
    import numpy as np

    values = signal.values(store)
    if np.isnan(values[-SEARCH_S:]).all():
        return False
    return signal.metrics == _POWER or bool(np.nanmax(values[-SEARCH_S:]) >= MOVES_BYTES_S)
