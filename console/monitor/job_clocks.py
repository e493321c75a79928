"""The step clock of each job without a watched step: a curve of its node of lowest rank that repeats with its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import proxy

import msgspec

from ..analysis.hang.gpu_activity import MOVES_BYTES_S
from ..analysis.pace import Pulse, Slowdown
from ..analysis.stalls import JobKey
from ..core.store import RankNow, Store
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
#: Newest digests of a GPU's power, and share of the range of the curve that half of them may span: a step that is
#: shorter than the second of a sample would show as a longer one.
DIGESTS: Final = 12
MOST_SPAN: Final = 0.5
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
    """The clock of one attempt of a job."""

    def __init__(self) -> None:
        self.signal: Signal | None = None
        self.pulse: Pulse | None = None  # the steps that the curve shows; None without a steady period
        self._clock: StepClock | None = None
        self._spans: deque[float] = deque(maxlen=DIGESTS)
        self._searched_s = 0
        self._is_found = False  # the curve had a steady period once: no other one is searched

    @property
    def slowdown(self) -> Slowdown | None:
        """How much slower the steps have become; None where they are not lastingly slower."""
        return self._clock.slowdown if self._clock is not None else None

    def read(self, store: Store, ranks: Sequence[RankNow], shared: AbstractSet[str], now_s: int) -> None:
        """Read the curve; one is searched until it has a period. `now_s` is the newest second of the history.

        `shared` are nodes with ranks of several jobs, whose traffic shows the steps of none.
        """
        if self.signal is not None and self.signal.source == "nic" and self.signal.node in shared:
            self.signal = self.pulse = self._clock = None
            self._is_found = False
        if not self._is_found and now_s - self._searched_s >= SEARCH_S:
            self._search(store, ranks, shared, now_s)
        signal = self.signal
        newest_s = store.recent().series[signal.family].newest_s if signal is not None else None
        if signal is None or newest_s is None or self._clock is None:
            return
        values = signal.values(store)
        if signal.metrics != _POWER or self._is_resolved(store, signal, values):
            self._clock.read(newest_s, values)
        self.pulse = self._pulse(signal, self._clock)
        self._is_found = self._is_found or self.pulse is not None

    @staticmethod
    def _pulse(signal: Signal, clock: StepClock) -> Pulse | None:
        period_s, age_s = clock.period_s, clock.pulse_age_s
        if period_s is None or age_s is None:
            return None
        return Pulse(
            signal.source, signal.curve, signal.node, period_s, age_s, clock.longest_pause_s, signal.evidence
        )  # fmt: skip

    def _search(self, store: Store, ranks: Sequence[RankNow], shared: AbstractSet[str], now_s: int) -> None:
        from ..analysis.step_clock import StepClock

        self._searched_s = now_s
        signal = next((each for each in _signals(store, ranks, shared) if _is_strong(store, each)), None)
        if signal is not None and signal != self.signal:
            self.signal, self._clock = signal, StepClock(conserves=signal.metrics != _POWER)
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


class JobClocks:
    """The clocks of the jobs of one store."""

    def __init__(self, store: Store) -> None:
        self._store: Store = proxy(store)  # else a store would never be freed
        self.want: Callable[[frozenset[str]], object] = lambda nodes: None  # called with the nodes of the curves
        self._clocks: dict[JobKey, CurveClock] = {}
        self._read_s = 0

    def get(self, job: JobKey) -> CurveClock | None:
        """The clock of an attempt of a job; None where it was never read."""
        return self._clocks.get(job)

    def read(self, jobs: Iterable[JobKey]) -> None:
        """Read the curves of these jobs, every few seconds, and forget all other jobs."""
        if self._store.newest_rx - self._store.started_rx < STARTS_NS:
            return  # commands of a few seconds need no history
        now_s = max(series.newest_s or 0 for series in self._store.recent().series.values())
        if now_s - self._read_s < READ_S:
            return
        self._read_s = now_s
        ranks: dict[JobKey, list[RankNow]] = {job: [] for job in jobs}
        self._clocks = {job: self._clocks.get(job) or CurveClock() for job in ranks}
        jobs_on: dict[str, set[str]] = {}
        for now in self._store.ranks.values():
            if not is_gone(now.rank):
                jobs_on.setdefault(now.rank.node, set()).add(now.rank.job)
                ranks.get((now.rank.job, now.rank.attempt), []).append(now)
        self.want(frozenset(filter(None, map(_node_of, ranks.values()))))
        shared = {node for node, names in jobs_on.items() if len(names) > 1}
        for job, clock in self._clocks.items():
            clock.read(self._store, ranks[job], shared, now_s)


def _node_of(ranks: Sequence[RankNow]) -> str | None:
    """The node of lowest rank; None without numbered ranks."""
    numbered = [now.rank for now in ranks if now.rank.rank is not None]
    return min(numbered, key=lambda rank: rank.rank or 0).node if numbered else None


def _signals(store: Store, ranks: Sequence[RankNow], shared: AbstractSet[str]) -> list[Signal]:
    """The curves in which the steps of a job may show, best first."""
    numbered = [now.rank for now in ranks if now.rank.rank is not None]
    if not numbered:
        return []
    first = min(numbered, key=lambda rank: rank.rank or 0)
    node, signals = first.node, list[Signal]()
    ports = [(key, nic.rdma) for key, nic in store.nics.items() if nic.node == node and node not in shared]
    for is_rdma, curve in ((True, "the RDMA traffic of"), (False, "the traffic of")):
        keys = tuple(sorted(key for key, rdma in ports if rdma is is_rdma)[:MOST_PORTS])
        if keys:
            signals.append(Signal("nic", f"{curve} {node}", node, "nic", keys, _RX_TX))
    for key, name, now in rank_gpus(store):
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
