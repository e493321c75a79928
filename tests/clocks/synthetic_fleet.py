"""A synthetic fleet evaluated by the product, compared with the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gconsole.analysis.clock.model import ClusterInstant, CommonClock
from gconsole.analysis.clock.windows import ClockFold, ClockLimits
from gconsole.records import ClockNode, ClockSnapshot, ClockWindow, Record

from .synthetic import EPOCH, SECOND, Node, true_time_of

#: Error of float64 for an instant days after boot, ns.
FLOAT_NS = 1_100


class ClockFoldResult:
    """The product's output for some records."""

    def __init__(self, records: Iterable[Record], limits: ClockLimits | None = None) -> None:
        self.records = list(records)
        fold = ClockFold(limits or ClockLimits())
        outputs = [*fold.add(self.records), *fold.finish()]
        self.windows = [record for record in outputs if isinstance(record, ClockWindow)]
        self.lines = [record for record in outputs if isinstance(record, ClockNode)]

    @property
    def last(self) -> dict[str, ClockNode]:
        """The latest line of each node."""
        return {line.node: line for line in self.lines}

    @property
    def clock(self) -> CommonClock:
        names = {line.node for line in self.lines}
        snapshots = [record for record in self.records if isinstance(record, ClockSnapshot)]
        return CommonClock(
            {name: [line for line in self.lines if line.node == name] for name in names},
            {name: [snapshot for snapshot in snapshots if snapshot.node == name] for name in names},
        )

    def misses(self, nodes: Sequence[Node]) -> list[tuple[str, float, int]]:
        """Lines whose error at their own instant exceeds their bound: (node, error, bound), ns."""
        by_name = {node.name: node for node in nodes}
        missed = []
        for line in self.lines:
            if line.at_common is None or line.bound_ns is None:
                continue
            error = abs(line.at_common - self._common(line, by_name))
            if error > line.bound_ns + FLOAT_NS:
                missed.append((line.node, error, line.bound_ns))
        return missed

    def worst_ns(self, nodes: Sequence[Node]) -> float:
        by_name = {node.name: node for node in nodes}
        estimates = [(line, line.at_common) for line in self.lines if line.at_common is not None]
        return max(abs(common_ns - self._common(line, by_name)) for line, common_ns in estimates)

    def _common(self, line: ClockNode, nodes: dict[str, Node]) -> float:
        """The true reading of the common clock when this node's clock read `at_mono`."""
        reference = nodes[line.reference]
        true = true_time_of(nodes[line.node], line.at_mono)
        epoch = epoch_of(self)
        return reference.clock.reads + true * (1 + reference.clock.ppm * 1e-6) + epoch


def epoch_of(result: ClockFoldResult) -> int:
    """The constant offset of the common clock from its reference's."""
    return next(
        line.at_common - line.at_mono
        for line in result.lines
        if line.node == line.reference and line.at_common is not None
    )


def common_clock_at(result: ClockFoldResult, nodes: Sequence[Node], second: float) -> int:
    """The true reading of the common clock at a second of true time."""
    reference_line = next(line for line in result.lines if line.node == line.reference)
    reference = next(node for node in nodes if node.name == reference_line.reference)
    mono = int(reference.clock.at(np.array([int(second * SECOND)], dtype=np.int64))[0])
    return mono + epoch_of(result)


def cluster_time_of(result: ClockFoldResult, node: Node, second: float, clock: str) -> ClusterInstant | None:
    """The product's cluster time of an instant that the node stamped with one of its clocks."""
    if clock == "real":
        instant = EPOCH + int(second * SECOND) + node.real_off_ns
    else:
        instant = int(node.clock.at(np.array([int(second * SECOND)], dtype=np.int64))[0])
        instant -= 7 * SECOND if clock == "monotonic" else -3 * SECOND if clock == "boot" else 0
    return result.clock.to_cluster(node.name, instant, clock)
