"""Trends of the last five minutes, per job and per class of nodes: means and sums over the metric history.

A trend has one value for each five seconds. Values are folded again only while late records may change them, so that
thousands of GPUs cost a few milliseconds a second. Nothing is stored that the history does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...core.derived import Derived, InBackground
from ...core.store import GpuKey, NicKey, Store
from ...core.store.steps import StepObservation
from .heat_map import index_of, uuid_of
from .job_ranks import JobSummary, RankListRow
from .node_summary import folded
from .resources import Resource, resources

if TYPE_CHECKING:
    from ...analysis.topology.classes import NodeClass
    from ...core.metric_history import MetricHistory, Series
    from ..snapshot import ScreenSnapshot

Floats = NDArray[np.floating[Any]]
TrendName = Literal["util", "power", "step", "network", "throttle"]
#: Seconds of one value, and how many values a trend has: five minutes.
BIN_S: Final = 5
BINS: Final = 60
#: Values at the end that are folded again each time: records of the last ten seconds may be late.
_OPEN_BINS: Final = 3
#: GPUs from which on folds run in a thread, and the pause after one in multiples of its duration: at most a fiftieth
#: of a core.
_MANY_GPUS, _PAUSE = 1_024, 49.0
#: Seconds. A newest value that is older is not the present one.
_PRESENT_S: Final = 15
#: Steps of a job that are looked at: five minutes of them where a step takes two seconds.
_STEPS: Final = 150
#: Duration of the present step, in median steps, from which on it counts as overdue.
_OVERDUE: Final = 3.0


class Trend(msgspec.Struct, frozen=True, eq=False):
    """One figure over time: `values` oldest first, NaN where unknown; `now` is None where it is not known now.

    `high` is the upper end of the axis; None: as high as the values. `overdue_s`: seconds since the last step.
    """

    values: Floats
    now: float | None = None
    high: float | None = None
    overdue_s: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether any value is known."""
        return bool((~np.isnan(self.values)).any())


class TrendGroup(msgspec.Struct, frozen=True, eq=False):
    """The trends of a job, or of a class of nodes; `key` is the job or the first node of the class."""

    kind: Literal["job", "class"]
    key: str
    title: str
    nodes: int
    gpus: int
    trends: Mapping[TrendName, Trend]


class Overview(msgspec.Struct, frozen=True, eq=False):
    """Trends of the jobs, then of the classes of nodes, and the resources of all nodes."""

    groups: tuple[TrendGroup, ...] = ()
    resources: tuple[Resource, ...] = ()


class Members(msgspec.Struct, frozen=True):
    """Whose figures a group sums up."""

    kind: Literal["job", "class"]
    key: str
    title: str
    nodes: tuple[str, ...]
    gpus: tuple[GpuKey, ...]
    ports: tuple[NicKey, ...] = ()  # RDMA ports; without any, the interfaces of the nodes count

    @property
    def identity(self) -> tuple[object, ...]:
        """Changes with the members."""
        return (self.nodes, self.gpus, self.ports)


class OverviewFold:
    """Trends of the present jobs and classes from the history of a store, and the resources of its nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._frame: ScreenSnapshot | None = None
        self._bin = 0
        self._kept: dict[tuple[str, str], tuple[object, int, Floats]] = {}  # group: identity, last bin, values
        sources = [store.gpus.changed_since, store.nodes.changed_since, store.ranks.changed_since]
        self._derived = Derived(
            store, sources, self._prepare, Overview(), size=lambda: len(store.gpus), thread_above=_MANY_GPUS,
            pause=_PAUSE,
        )  # fmt: skip

    @property
    def value(self) -> Overview:
        """The newest trends and resources."""
        return self._derived.value

    @property
    def is_current(self) -> bool:
        """Whether the value accounts for every record in the store."""
        return self._derived.is_current

    def refresh(self, frame: ScreenSnapshot, in_background: InBackground) -> None:
        """Fold again where due and where records came, or time passed without any."""
        previous = self._frame
        self._frame = frame
        is_other = previous is None or previous.jobs is not frame.jobs
        if is_other or frame.second // BIN_S != self._bin:
            self._derived.invalidate()
        self._derived.refresh(in_background)

    def _prepare(self) -> Callable[[], Overview]:
        frame, history = self._frame, self._store.history
        if frame is None:
            return Overview
        self._bin = newest = frame.second // BIN_S
        if history is None:
            return lambda: Overview((), resources(frame))
        classes = frame.topology.fleet.classes
        steps = {job.job: self._steps(job, frame.now) for job in frame.jobs.jobs}
        kept, self._kept = self._kept, {}

        def work() -> Overview:
            made = []
            for group in (*_jobs(frame, self._store), *_classes(frame, classes, self._store)):
                before = kept.get((group.kind, group.key))
                values = _folded(history, group, newest, before)
                self._kept[group.kind, group.key] = (group.identity, newest, values)
                step = steps.get(group.key) if group.kind == "job" else None
                made.append(TrendGroup(
                    group.kind, group.key, group.title, len(group.nodes), len(group.gpus), _trends(values, step)
                ))  # fmt: skip
            return Overview(tuple(made), resources(frame))

        return work

    def _steps(self, job: JobSummary, now: int) -> Trend | None:
        """The step times of a job, by its first rank with a step."""
        for row in job.rows:
            if row.stat is None or row.number is None or row.stat.step is None:
                continue
            key = (row.job, row.attempt, row.number)
            newest, read = self._store.steps.newest(key, _STEPS), self._store.steps.last_read(key)
            if newest is not None and read is not None and newest[0] == (row.stat.pid, row.stat.start_ticks):
                return step_trend(newest[1], read, max(0.0, (now - row.stat.rx) / 1e9))
        return None


def _jobs(frame: ScreenSnapshot, store: Store) -> Iterator[Members]:
    """Each job: its nodes, and the GPUs with one of its ranks; without any known, all GPUs of nodes of its own."""
    of_job: dict[tuple[str, int], set[GpuKey]] = {}
    for process in frame.gpu_processes.values():
        if process.rank is not None and process.job is not None:
            of_job.setdefault((process.job, process.rank), set()).add((process.node, process.uuid))
    nodes = {job.job: _nodes_of(job.rows) for job in frame.jobs.jobs}
    for job in frame.jobs.jobs:
        own = nodes[job.job]
        gpus = {key for row in job.rows if row.number is not None for key in of_job.get((job.job, row.number), ())}
        shared = {node for other, names in nodes.items() if other != job.job for node in names}
        if not gpus:
            gpus = {key for node in own if node not in shared for key in _gpus_of(frame, node)}
        yield Members("job", job.job, job.title, own, tuple(sorted(gpus)), _ports(store, own))


def _classes(frame: ScreenSnapshot, classes: Sequence[NodeClass], store: Store) -> Iterator[Members]:
    """Each class of nodes, largest first; all nodes as one before their devices are known."""
    named = {node for made in classes for node in made.nodes}
    for made in classes:
        yield _class_members(frame, store, f"class {made.name}" if len(classes) > 1 else "", made.nodes)
    rest = tuple(node.name for node in frame.fleet.nodes if node.name not in named)
    if rest and not classes:
        yield _class_members(frame, store, "", rest)


def _class_members(frame: ScreenSnapshot, store: Store, name: str, nodes: tuple[str, ...]) -> Members:
    gpus = tuple(key for node in nodes for key in _gpus_of(frame, node))
    return Members("class", nodes[0], f"{name} {folded(nodes)}".strip(), nodes, gpus, _ports(store, nodes))


def _nodes_of(rows: Iterable[RankListRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.rank.node for row in rows if row.rank is not None))


def _gpus_of(frame: ScreenSnapshot, node: str) -> list[GpuKey]:
    return [(node, uuid_of(gpu)) for gpu in sorted(frame.gpus.of(node), key=index_of)]


def _ports(store: Store, nodes: Sequence[str]) -> tuple[NicKey, ...]:
    names = set(nodes)
    return tuple(key for key, nic in store.nics.items() if nic.rdma and key[0] in names)


# -- figures over time -------------------------------------------------------------------------------------------------

#: Columns of the folded values.
_UTIL, _POWER, _NETWORK, _THROTTLE = range(4)


def _folded(
    history: MetricHistory, group: Members, newest: int, before: tuple[object, int, Floats] | None
) -> Floats:  # fmt: skip
    """Values [bin, figure] of the five minutes up to bin `newest`; those of `before` that are final are kept."""
    values = np.full((BINS, 4), np.nan)
    first = 0
    if before is not None and before[0] == group.identity and 0 <= newest - before[1] < BINS - _OPEN_BINS:
        first = BINS - _OPEN_BINS - (newest - before[1])
        values[:first] = before[2][newest - before[1] : BINS - _OPEN_BINS]
    start = newest - BINS + 1 + first
    seconds = np.arange(start * BIN_S, (newest + 1) * BIN_S)

    def binned(family: str, keys: Sequence[Hashable], *metrics: str) -> Floats:
        return _means(history.series[family], keys, metrics, seconds)

    gpu = binned("gpu", group.gpus, "util_pct", "power_w")
    values[first:, _UTIL] = _mean(gpu[:, :, 0])
    values[first:, _POWER] = _sum(gpu[:, :, 1])
    values[first:, _THROTTLE] = _mean(binned("gpu_throttle", group.gpus, "held")[:, :, 0])
    if group.ports:
        traffic = binned("nic", group.ports, "rx_bytes_s", "tx_bytes_s")
    else:
        traffic = binned("host", group.nodes, "net_rx_bytes_s", "net_tx_bytes_s")
    values[first:, _NETWORK] = _sum(traffic[:, :, 0] + traffic[:, :, 1])
    return values


def _means(series: Series, keys: Sequence[Hashable], metrics: Sequence[str], seconds: NDArray[np.int64]) -> Floats:
    """Means [bin, entity, metric] over the known seconds of each bin; NaN without any."""
    values = series.window(keys, metrics, seconds)
    return _mean(values.reshape(len(seconds) // BIN_S, BIN_S, len(keys), len(metrics)))


def _mean(values: Floats) -> Floats:
    """Mean over the second axis of the known values; NaN without any."""
    is_known = ~np.isnan(values)
    count = is_known.sum(axis=1)
    means: Floats = np.where(is_known, values, 0).sum(axis=1) / np.where(count, count, np.nan)
    return means


def _sum(values: Floats) -> Floats:
    """Sum over the second axis of the known values; NaN without any."""
    is_known = ~np.isnan(values)
    sums: Floats = np.where(is_known.any(axis=1), np.where(is_known, values, 0).sum(axis=1), np.nan)
    return sums


def _trends(values: Floats, step: Trend | None) -> dict[TrendName, Trend]:
    trends: dict[TrendName, Trend] = {
        "util": _trend(values[:, _UTIL], 100.0), "power": _trend(values[:, _POWER], None),
        "network": _trend(values[:, _NETWORK], None), "throttle": _trend(values[:, _THROTTLE], 100.0),
    }  # fmt: skip
    return trends if step is None else {**trends, "step": step}


def _trend(values: Floats, high: float | None) -> Trend:
    recent = values[-_PRESENT_S // BIN_S :]
    present = recent[~np.isnan(recent)]
    return Trend(values, float(present[-1]) if len(present) else None, high)


def step_trend(seen: Sequence[StepObservation], read: int, age_s: float) -> Trend:
    """Seconds per step over time: `seen` newest first, `read` is when the step was read last, `age_s` ago.

    The step that is not completed yet counts with its duration so far once that is longer than usual: a job that
    stands still shows as a rising curve. `now` is the median of the newest steps. None of both is known where the step
    was not read lately.
    """
    times = [(read - step.mono) / 1e9 + age_s for step in seen]  # ages, newest first
    spans = [
        (older, newer, (older - newer) / max(1, seen[index].step - seen[index + 1].step))
        for index, (newer, older) in enumerate(pairwise(times))
    ]
    values = np.full(BINS, np.nan)
    for older, newer, duration in reversed(spans):
        first, last = math.floor(BINS - older / BIN_S), math.ceil(BINS - newer / BIN_S)
        values[max(0, first) : max(0, min(BINS, last))] = duration
    if not spans or age_s > _PRESENT_S:
        return Trend(values)
    usual, waited = median(duration for _, _, duration in spans[:9]), times[0]
    if waited <= max(_OVERDUE * usual, _PRESENT_S):  # a step is read every few seconds only
        return Trend(values, usual)
    for number in range(BINS):
        so_far = waited - (BINS - 1 - number) * BIN_S
        if so_far > 0:
            values[number] = max(usual, so_far)
    return Trend(values, None, overdue_s=waited)
