"""The same samples given to the health checks twice: each of them, and as digests by the agent's own digester."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec

from gconsole.analysis.finding import FindingDraft
from gconsole.analysis.health import changed_findings, health_findings
from gconsole.analysis.health.conditions import REASONS, thresholds
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import KINDS, GpuInfo, Record
from gconsole_remote.agent.digests import Digester, Order

SECOND = 10**9
PERIOD_S = 5
Key = tuple[str, tuple[str, ...]]


def order_for(infos: Iterable[GpuInfo], limits: HealthConfig, kinds: tuple[str, ...] = ("gpu", "host", "nic")) -> Order:
    """The order of a console that wants no samples."""
    values = {name: list(values) for name, values in thresholds(infos, limits.busy_pct).items()}
    return Order({"kinds": list(kinds), "period_s": PERIOD_S, "thresholds": values, "reasons": list(REASONS)})


class BothWays:
    """`add` the facts of all nodes of one second; then `findings` has those of that second, both ways."""

    def __init__(self, limits: HealthConfig, infos: Iterable[GpuInfo]) -> None:
        self.limits = limits
        self.samples = HealthState(limits.window_s, limits.busy_pct)
        self.digests = HealthState(limits.window_s, limits.busy_pct)
        self.sent = {"samples": 0, "digests": 0}  # records of kinds that come as digests
        self.findings: list[tuple[int, dict[Key, FindingDraft], dict[Key, FindingDraft]]] = []
        self._order = order_for(infos, limits)
        self._mono = 0
        self._digesters: dict[str, Digester] = defaultdict(
            lambda: Digester(self._order, lambda: self._mono, lambda: self._mono)
        )

    def add_state(self, records: Iterable[Record]) -> None:
        """Records that are never digests."""
        for state in (self.samples, self.digests):
            state.add(records)

    def add(self, second: int, facts: dict[str, list[tuple[str, dict[str, Any]]]]) -> None:
        """Fold the facts of one second by node, and evaluate."""
        self._mono = second * SECOND
        for node, those in facts.items():
            digested = self._digesters[node].digest(those, 1.0)
            self.sent["samples"] += sum(kind in self._order.kinds for kind, _ in those)
            self.sent["digests"] += sum(kind in self._order.kinds for kind, _ in digested)
            self.samples.add(self._records(node, those))
            self.digests.add(self._records(node, digested))
        now = [
            {(draft.id, draft.culprits): draft for draft in changed_findings(state, self.limits)}
            for state in (self.samples, self.digests)
        ]
        assert now[1] == {(draft.id, draft.culprits): draft for draft in health_findings(self.digests, self.limits)}
        self.findings.append((second, now[0], now[1]))

    def _records(self, node: str, facts: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        head = {"node": node, "agent": "a", "t": self._mono, "mono": self._mono, "rx": self._mono}
        return [msgspec.convert({"kind": kind, **head, **fields}, KINDS[kind]) for kind, fields in facts]

    def check(self) -> set[str]:
        """Fail unless the digests gave the same findings, at most one period later; returns the names of them.

        After the last second of a period no sample is missing, and everything is equal. A finding that would last for
        less than a period may not be there at all.
        """
        names = set()
        for second, samples, digests in self.findings:
            if (second + 1) % PERIOD_S == 0:
                assert plain(digests) == plain(samples), f"at second {second}"
            names |= {id for id, _ in samples}
        for before, after in ((False, True), (True, False)):  # onset, then end
            for key in {key for _, samples, _ in self.findings for key in samples}:
                first = self._changes(key, 1, before, after)
                second = self._changes(key, 2, before, after)
                for instant in first:
                    is_brief = any(abs(other - instant) < PERIOD_S for other in self._changes(key, 1, after, before))
                    if not is_brief and instant + PERIOD_S <= self.findings[-1][0]:
                        assert any(0 <= other - instant < PERIOD_S for other in second), (key, instant, second)
        return names

    def _changes(self, key: Key, way: int, before: bool, after: bool) -> list[int]:
        """Seconds at which a finding begins, or ends."""
        present = [(entry[0], key in entry[way]) for entry in self.findings]
        return [now for (_, earlier), (now, later) in pairwise(present)
                if (earlier, later) == (before, after)]  # fmt: skip


def plain(findings: dict[Key, FindingDraft]) -> dict[Key, tuple[Any, ...]]:
    """Everything that a person reads of them."""
    return {
        key: (draft.severity, draft.confidence, draft.text, draft.evidence, draft.parts)
        for key, draft in findings.items()
    }
