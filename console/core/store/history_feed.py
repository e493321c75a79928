"""What was: figures of the last hour by entity, for the curves. Absent where nobody draws any."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...records import Record
from ...records.metrics import HISTORY

if TYPE_CHECKING:
    from ..metric_history import MetricHistory

#: How far two clocks may drift apart, as a share: crystals do by 1e-5, seldom 1e-4.
DRIFT: Final = 1e-4

#: Things of one family of one node whose figures are kept; of more the oldest go. A node can invent any number, take
#: them back and invent others, and the hour of all nodes has one budget.
MOST_OF_NODE: Final = 1_024


@dataclass(slots=True)
class _Anchor:
    """How far console time is ahead of the clock that a node's agents stamp with (`mono`, which nobody ever sets).

    The smallest difference seen, that of the record that travelled fastest; it gives way slowly, because clocks drift.
    """

    ahead_ns: int
    mono: int

    def console_time(self, record: Record) -> int:
        """When a record was made, in ns of the console's clock; never after it arrived."""
        slack = int(max(0, record.mono - self.mono) * DRIFT)
        self.mono = max(self.mono, record.mono)
        self.ahead_ns = min(self.ahead_ns + slack, record.rx - record.mono)
        return record.mono + self.ahead_ns


class HistoryFeed:
    """Puts figures into `history` at the second they were taken, told on the console's clock."""

    def __init__(self, history_bytes: int, warn: Callable[[str], None]) -> None:
        from ..metric_history import MetricHistory  # numpy costs 190 ms to import; batch draws no curves

        self.history: MetricHistory = MetricHistory(HISTORY, history_bytes, warn)
        self._anchors: dict[str, _Anchor] = {}  # by node
        self._things: dict[tuple[str, str], dict[Hashable, None]] = {}  # by family and node, the oldest first

    def remember(self, family: str, key: Hashable, record: Record) -> None:
        """Keep the figures of a record whose kind is a family."""
        anchor = self._anchors.get(record.node)
        if anchor is None:
            self._anchors[record.node] = anchor = _Anchor(record.rx - record.mono, record.mono)
        things = self._things.setdefault((family, record.node), {})
        if key not in things:
            things[key] = None
            if len(things) > MOST_OF_NODE:
                oldest = next(iter(things))
                del things[oldest]
                self.history.series[family].forget(oldest)
        values = [getattr(record, metric) for metric in HISTORY[family]]
        self.history.put(family, key, anchor.console_time(record) // 1_000_000_000, values)

    def forget_node(self, node: str) -> None:
        """A node went, or was started again: what comes under its name later has another clock."""
        self._anchors.pop(node, None)
