"""Which alerts are due: the open findings of each rule as incidents, with limits that hold across restarts.

An incident is what one person is called for: all findings of a job, or one finding without a job. It is alerted once
when it opens. A later finding of it is an update if it is more severe, or the first with a culprit. One that opens
again within `at_most_every` waits until that has passed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from ...analysis.finding_selection import CONFIDENCE_RANKING, RANKING
from ...records import Finding, Severity
from .rules import Rule

Event = Literal["open", "update", "clear", "test"]
#: id, culprits, job.
Identity = tuple[str, tuple[str, ...], str | None]

HOUR_S: Final = 3600.0
#: Seconds after a start in which incidents of the previous run are kept open: nodes connect, jobs are diagnosed.
RESTORED_S: Final = 300.0
#: Incidents of one rule; the oldest closed ones are dropped first.
MOST_INCIDENTS: Final = 2_048
#: Findings that one incident remembers.
MOST_COVERED: Final = 256


class Alert(msgspec.Struct, frozen=True):
    """One alert: what a rule is to act on now. `findings` begins with the one that describes it best."""

    rule: Rule
    event: Event
    key: str  # of the incident, the same for its update and clear
    findings: tuple[Finding, ...]
    open_s: float = 0.0  # since the incident opened
    suppressed: int = 0  # findings or openings that were not alerted since the last alert of this incident


class Incident(msgspec.Struct):
    """What is remembered about one incident, also in the state file. Instants are seconds since the epoch."""

    opened_s: float
    last_open_s: float
    sent_s: float | None = None  # of its last alert
    is_open: bool = True
    is_alerted: bool = False  # since it opened; else it waits for the limits
    severity: Severity = "info"  # highest alerted
    has_culprit: bool = False  # an alert named one
    covered: list[Identity] = []
    suppressed: int = 0
    restored_s: float | None = None  # when it was read from the state file
    last: Finding | None = None  # the finding that described it, for the alert on clearing


class RuleState(msgspec.Struct):
    """The incidents of one rule, and the instants of its alerts within the last hour."""

    incidents: dict[str, Incident] = {}
    sent: list[float] = []


def identity(finding: Finding) -> Identity:
    """What makes two findings the same one."""
    return (finding.id, finding.culprits, finding.job)


def incident_key(finding: Finding) -> str:
    """The key of the incident of a finding: its job, or the finding itself."""
    if finding.job is not None:
        return f"job {finding.job}"
    return " ".join(("finding", finding.id, *finding.culprits))


class AlertTracker:
    """Decides which alerts are due. `states` are the rules' states by name, from a previous run."""

    def __init__(self, rules: Sequence[Rule], states: dict[str, RuleState] | None = None, now_s: float = 0.0) -> None:
        self.states = states or {}
        self.rules: tuple[Rule, ...] = ()
        for state in self.states.values():
            for incident in state.incidents.values():
                incident.restored_s = now_s
        self.follow(rules)

    def follow(self, rules: Sequence[Rule]) -> None:
        """Use other rules from now on; incidents of rules that keep their name are kept."""
        self.rules = tuple(rules)
        self.states = {rule.name: self.states.get(rule.name) or RuleState() for rule in rules}

    def evaluate(
        self, findings: Sequence[Finding], nodes_of: Callable[[Finding], Sequence[str]], now_s: float, *,
        may_clear: bool = True,
    ) -> list[Alert]:  # fmt: skip
        """The alerts that are due, given all open findings. Without `may_clear` nothing counts as cleared."""
        alerts: list[Alert] = []
        for rule in self.rules:
            if not rule.acts:
                continue
            state = self.states[rule.name]
            _forget(state, now_s)
            groups: dict[str, list[Finding]] = defaultdict(list)
            for finding in findings:
                if rule.selects(finding, nodes_of(finding)):
                    groups[incident_key(finding)].append(finding)
            for key, members in groups.items():
                alert = _opened(rule, state, key, members, now_s)
                if alert is not None:
                    alerts.append(alert)
            if may_clear:
                alerts += _cleared(rule, state, groups.keys(), now_s)
        return alerts


def _opened(rule: Rule, state: RuleState, key: str, members: Sequence[Finding], now_s: float) -> Alert | None:
    """The alert on an incident that has findings; None if none is due."""
    incident = state.incidents.get(key)
    if incident is not None:
        if incident.restored_s is not None and now_s - incident.last_open_s >= rule.every_s:
            incident.is_open = False  # the previous run ended too long ago: a new occurrence
        incident.restored_s = None
        if incident.is_open:
            incident.last_open_s = now_s
    ready = [finding for finding in members if now_s - finding.first_seen / 1e9 >= rule.after_s]
    if not ready:
        return None
    if incident is None or not incident.is_open:
        sent_s = None if incident is None else incident.sent_s
        suppressed = 0 if incident is None else incident.suppressed
        opened_s = min(finding.first_seen for finding in ready) / 1e9
        incident = Incident(opened_s, now_s, sent_s, suppressed=suppressed)
        state.incidents[key] = incident
    best = max(ready, key=_rank)
    incident.last = best
    event = _event(rule, incident, ready, best, now_s)
    if event is None:
        return None
    if len(state.sent) >= rule.config.at_most_per_hour:
        return None  # due again in the next evaluation
    state.sent.append(now_s)
    findings = (best, *(finding for finding in ready if finding is not best))
    alert = Alert(rule, event, key, findings, max(0.0, now_s - incident.opened_s), incident.suppressed)
    incident.sent_s, incident.is_alerted, incident.suppressed = now_s, True, 0
    incident.severity = max(incident.severity, best.severity, key=RANKING.__getitem__)
    incident.has_culprit = incident.has_culprit or bool(best.culprits)
    _cover(incident, ready)
    return alert


def _event(rule: Rule, incident: Incident, ready: Sequence[Finding], best: Finding, now_s: float) -> Event | None:
    """What the alert is, if one is due: the incident was not alerted yet, or has something new."""
    is_limited = incident.sent_s is not None and now_s - incident.sent_s < rule.every_s
    news = [finding for finding in ready if identity(finding) not in incident.covered]
    if not incident.is_alerted:
        if not is_limited:
            return "open"
        incident.suppressed += len(news)
        _cover(incident, news)
        return None
    if not news:
        return None
    is_worse = RANKING[best.severity] > RANKING[incident.severity]
    is_first_culprit = bool(best.culprits) and not incident.has_culprit
    if is_worse or is_first_culprit or not is_limited:
        return "update"
    incident.suppressed += len(news)
    _cover(incident, news)
    return None


def _cleared(rule: Rule, state: RuleState, present: object, now_s: float) -> list[Alert]:
    """Close the incidents without findings; the alerts of those that were alerted, with `on_clear`."""
    alerts = []
    for key, incident in state.incidents.items():
        if not incident.is_open or key in present:  # type: ignore[operator]
            continue
        if incident.restored_s is not None and now_s - incident.restored_s < RESTORED_S:
            continue
        incident.is_open, incident.restored_s = False, None
        incident.covered = []
        if rule.config.on_clear and incident.is_alerted and incident.last is not None:
            alerts.append(Alert(rule, "clear", key, (incident.last,), max(0.0, now_s - incident.opened_s)))
    return alerts


def _cover(incident: Incident, findings: Sequence[Finding]) -> None:
    identities = [*incident.covered, *map(identity, findings)]
    incident.covered = list(dict.fromkeys(identities))[-MOST_COVERED:]


def _rank(finding: Finding) -> tuple[int, bool, int, int]:
    """Sort key: the most severe, with a culprit, the surest, the oldest."""
    return (
        RANKING[finding.severity], bool(finding.culprits), CONFIDENCE_RANKING[finding.confidence], -finding.first_seen
    )  # fmt: skip


def _forget(state: RuleState, now_s: float) -> None:
    """Drop alerts older than an hour and closed incidents beyond the bound; a clock that was set back counts as now."""
    state.sent = [min(sent_s, now_s) for sent_s in state.sent if now_s - sent_s < HOUR_S]
    for incident in state.incidents.values():
        if incident.sent_s is not None:
            incident.sent_s = min(incident.sent_s, now_s)
        incident.last_open_s = min(incident.last_open_s, now_s)
    if len(state.incidents) > MOST_INCIDENTS:
        oldest = sorted(
            state.incidents, key=lambda key: (state.incidents[key].is_open, state.incidents[key].last_open_s)
        )
        for key in oldest[: len(state.incidents) - MOST_INCIDENTS]:
            del state.incidents[key]
