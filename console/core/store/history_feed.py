"""Feeds metrics of records into the metric history, on the console's clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from ...records import DigestibleRecord, Record
from ...records.metrics import HISTORY, HISTORY_DERIVED

if TYPE_CHECKING:
    from ..metric_history import MetricHistory

#: Maximum relative drift of two clocks: usually 1e-5, rarely 1e-4.
DRIFT: Final = 1e-4

#: Entities of one family and node; the oldest are dropped. Nodes are untrusted and share one budget.
MOST_OF_NODE: Final = 1_024


#: Seconds. Longest digest that an agent makes.
MOST_DIGEST_S: Final = 60
#: Figures in which the steps of a job show, by family.
RECENT: Final[dict[str, tuple[str, ...]]] = {
    "nic": ("rx_bytes_s", "tx_bytes_s"),
    "gpu": ("nvlink_rx_bytes_s", "nvlink_tx_bytes_s", "power_w"),
}


class _Anchor(msgspec.Struct):
    """Offset of console time from a node's MONOTONIC_RAW.

    The smallest difference so far (the fastest record), relaxed slowly because clocks drift.
    """

    ahead_ns: int
    mono: int

    def console_time(self, record: Record) -> int:
        """Time of a record on the console's clock, ns; at most its arrival."""
        slack = int(max(0, record.mono - self.mono) * DRIFT)
        self.mono = max(self.mono, record.mono)
        self.ahead_ns = min(self.ahead_ns + slack, record.rx - record.mono)
        return record.mono + self.ahead_ns


def _reader(metrics: Sequence[str]) -> Callable[[Record], Sequence[float | None]]:
    """Reads these fields of a record; in C where there are several, which is a third of the time of a list."""
    if len(metrics) == 1:
        return lambda record: [getattr(record, metrics[0])]
    return attrgetter(*metrics)


class HistoryFeed:
    """Stores metrics in `history` at the second of the sample, on the console's clock."""

    def __init__(self, history_bytes: int, warn: Callable[[str], None], *, is_recent: bool = False) -> None:
        """`is_recent`: only the last minutes of the figures in which steps of jobs show."""
        from ..metric_history import (
            COARSE_SLOTS,
            LEAST_COARSE_SLOTS,
            MetricHistory,
        )  # lazy: numpy takes 190 ms to import

        self._metrics = RECENT if is_recent else HISTORY
        self._figures = {family: _reader(metrics) for family, metrics in self._metrics.items()}
        self._derived = {} if is_recent else HISTORY_DERIVED
        derived = {family: [metric.name for metric in metrics] for family, metrics in self._derived.values()}
        slots = LEAST_COARSE_SLOTS if is_recent else COARSE_SLOTS
        self.history: MetricHistory = MetricHistory({**self._metrics, **derived}, history_bytes, warn, slots)
        self._anchors: dict[str, _Anchor] = {}  # by node
        self._things: dict[tuple[str, str], dict[Hashable, None]] = {}  # by family and node, oldest first

    def remember(self, family: str, key: Hashable, record: Record) -> None:
        """Store the metrics of a record of a family's kind, if the family is kept."""
        if family not in self._metrics:
            return
        anchor = self._anchors.get(record.node)
        if anchor is None:
            self._anchors[record.node] = anchor = _Anchor(record.rx - record.mono, record.mono)
        if key not in self.history.series[family]:
            self._admit(family, key, record.node)
        second = anchor.console_time(record) // 1_000_000_000
        if isinstance(record, DigestibleRecord) and record.samples > 1:
            self._put_digest(family, key, second, record)
        else:
            self.history.put(family, key, second, self._figures[family](record))
        if family in self._derived:
            derived, metrics = self._derived[family]
            self.history.put(derived, key, second, [metric.read(record) for metric in metrics])

    def _admit(self, family: str, key: Hashable, node: str) -> None:
        """Keep the history of an entity, and drop that of the node's oldest one beyond its share."""
        things = self._things.setdefault((family, node), {})
        things[key] = None
        if len(things) > MOST_OF_NODE:
            oldest = next(iter(things))
            del things[oldest]
            self.history.series[family].forget(oldest)
            if family in self._derived:
                self.history.series[self._derived[family][0]].forget(oldest)

    def _put_digest(self, family: str, key: Hashable, second: int, record: DigestibleRecord) -> None:
        """Store a digest at the seconds of its samples."""
        metrics = self._metrics[family]
        low, mean, high = (
            [values.get(metric, getattr(record, metric)) for metric in metrics]
            for values in (record.low, record.mean, record.high)
        )
        seconds = min(max(0, record.mono - record.first_mono) // 1_000_000_000, MOST_DIGEST_S)
        self.history.put_digest(family, key, second - seconds, second, low, mean, high)

    def forget_node(self, node: str) -> None:
        """Drop the clock offset of a node that was removed or rebooted."""
        self._anchors.pop(node, None)
