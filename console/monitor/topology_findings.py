"""The differences between nodes as findings, while records arrive: on a screen, in batch, and in a browser alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..analysis.finding import FindingDraft
from ..analysis.topology.classes import NodeClass
from ..analysis.topology.dedup import ReportedFindings
from ..analysis.topology.findings import differences_found
from ..core.store import Store
from .finding_tracker import FindingTracker
from .topology import TopologyFold

#: A difference is told once it has lasted so long. A node that arrives says what it has bit by bit, and of an NVLink
#: that goes down the figures (`nvlink_down`, every 10 s) have the first word.
LASTS_S: Final = 15.0
#: Until every node has been seen nobody knows what most of them have; one that keeps everybody waiting, so long.
PATIENCE_S: Final = 45.0


class TopologyFindings:
    """`look` folds what changed and says what differs. The fold is shared with whoever draws it."""

    def __init__(
        self, store: Store, fold: TopologyFold, findings: FindingTracker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._fold, self._findings, self._clock = store, fold, findings, clock
        self._began_s: float | None = None
        self._basis: tuple[object, ...] = ()  # what the differences were made of
        self._now: tuple[FindingDraft, ...] = ()
        self._since: dict[tuple[tuple[str, ...], str], float] = {}  # (culprits, text): since when it differs
        self._told: tuple[FindingDraft, ...] = ()

    async def look(self, *, at_last: bool = False) -> None:
        """Say what has differed for a while and is told by nobody else; `at_last` everything, for nothing follows."""
        try:
            self._fold.note()
            if self._fold.has_news or at_last:
                await self._fold.fold()
            self._compare()
            if at_last or self._has_settled():
                self._told = self._lasting(at_last)
        except Exception as error:  # noqa: BLE001 - one analysis that fails stops no other; it is told as an error
            self._findings.failed("topology", error)
        self._findings.put("topology", self._told)

    def _compare(self) -> None:
        """The differences of now, where the nodes or what is told of them have changed."""
        known = [found for found in self._findings.told_by("health") if found.id in _ASKED]
        classes: tuple[NodeClass, ...] = self._fold.fleet.classes
        basis = (classes, {(found.id, found.culprits, found.parts) for found in known})
        if self._basis and basis[0] is self._basis[0] and basis[1] == self._basis[1]:
            return
        self._basis = basis
        self._now = differences_found(classes, ReportedFindings(known, self._fold.fleet.nodes))

    def _lasting(self, at_last: bool) -> tuple[FindingDraft, ...]:
        now_s = self._clock()
        self._since = {(one.culprits, one.text): self._since.get((one.culprits, one.text), now_s) for one in self._now}
        return tuple(one for one in self._now if at_last or now_s - self._since[one.culprits, one.text] >= LASTS_S)

    def _has_settled(self) -> bool:
        if self._began_s is None:
            self._began_s = self._clock()
        if self._clock() - self._began_s > PATIENCE_S:
            return True
        nodes = self._store.nodes.values()
        return all(now.cost or (now.state and now.state.state in ("failed", "lost")) for now in nodes)


#: The findings that may say the same as a difference.
_ASKED: Final = ("nvlink_down", "pcie_degraded", "version_skew", "nic_down")
