"""Findings about nodes whose topology differs from their class."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..analysis.finding import FindingDraft
from ..analysis.topology.classes import NodeClass
from ..analysis.topology.findings import ReportedFindings, difference_findings
from ..core.store import Store
from .finding_tracker import FindingTracker
from .topology import TopologyFold

#: Seconds a difference must last: a new node reports its devices one by one, and `nvlink_down` (every 10 s) goes first.
LASTS_S: Final = 15.0
#: Seconds to wait until every node has reported; without all of them the majority is unknown.
SETTLE_S: Final = 45.0


class TopologyFindings:
    """Updates the shared topology fold and reports differences that last."""

    def __init__(
        self, store: Store, fold: TopologyFold, findings: FindingTracker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._fold, self._findings, self._clock = store, fold, findings, clock
        self._began_s: float | None = None
        self._basis: tuple[object, ...] = ()  # inputs of the current differences
        self._now: tuple[FindingDraft, ...] = ()
        self._since: dict[tuple[tuple[str, ...], str], float] = {}  # (culprits, text): since when it differs
        self._reported: tuple[FindingDraft, ...] = ()

    async def evaluate(self, *, at_last: bool = False) -> None:
        """Report lasting differences that no health finding covers; `at_last` all of them."""
        try:
            self._fold.note()
            if self._fold.has_news or at_last:
                await self._fold.fold()
            self._compare()
            if at_last or self._has_settled():
                self._reported = self._lasting(at_last)
        except Exception as error:  # noqa: BLE001 - a failing analysis stops no other; published as an error
            self._findings.failed("topology", error)
        self._findings.report("topology", self._reported)

    def _compare(self) -> None:
        """Recompute the differences if the classes or the reported health findings changed."""
        covered = [finding for finding in self._findings.reported_by("health") if finding.id in _COVERING]
        classes: tuple[NodeClass, ...] = self._fold.fleet.classes
        basis = (classes, {(finding.id, finding.culprits, finding.parts) for finding in covered})
        if self._basis and basis[0] is self._basis[0] and basis[1] == self._basis[1]:
            return
        self._basis = basis
        self._now = difference_findings(classes, ReportedFindings(covered, self._fold.fleet.nodes))

    def _lasting(self, at_last: bool) -> tuple[FindingDraft, ...]:
        now_s = self._clock()
        self._since = {(now.culprits, now.text): self._since.get((now.culprits, now.text), now_s) for now in self._now}
        return tuple(now for now in self._now if at_last or now_s - self._since[now.culprits, now.text] >= LASTS_S)

    def _has_settled(self) -> bool:
        if self._began_s is None:
            self._began_s = self._clock()
        if self._clock() - self._began_s > SETTLE_S:
            return True
        nodes = self._store.nodes.values()
        return all(now.cost or (now.state and now.state.state in ("failed", "lost")) for now in nodes)


#: Health findings that may report the same as a difference.
_COVERING: Final = ("nvlink_down", "pcie_degraded", "version_skew", "nic_down")
