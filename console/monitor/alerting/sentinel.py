"""The sentinel: once a second it looks at what the monitor found, acts by the rules, and proves that it sees."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from ...analysis.crash.verdict import CrashVerdict
from ...analysis.hang.verdict import Verdict
from ...config import Config, ConfigError
from ...config.diff import Changes, HostsFile
from ...core.store import Store
from ...records import Finding
from ...records.kinds import is_gone
from ...text.format import plural, some
from ..crash import CrashFindings
from ..finding_tracker import FindingTracker
from ..hang import verdicts
from .actions import ActionRunner, EvidenceKeeper
from .alerts import Alert, AlertTracker, Identity, identity
from .events import Emit, WatchEvent
from .heartbeat import Heartbeat, PassHealth
from .payload import Surroundings
from .rules import Rule, compile_rules, heartbeat_url
from .state_file import StateFile
from .textfile import WatchGauges, write_textfile

#: Seconds between two passes.
PASS_S: Final = 1.0
#: Seconds without a record after which a connected node counts as unseen, and the same in sample intervals.
UNSEEN_S, UNSEEN_INTERVALS = 15.0, 5.0
#: Seconds between two looks at hosts.toml, textfiles without a change, state files with open incidents.
RELOAD_S, TEXTFILE_S, STATE_S = 2.0, 15.0, 60.0
#: Seconds between two attempts to reach a node whose failure is not retried otherwise: a refused login, a changed key.
RETRY_FAILED_S: Final = 900.0
#: Seconds that alerts may take after the end of the watch.
DRAIN_S: Final = 30.0
#: Nodes that an event names.
_NAMED: Final = 8


class SentinelControl(Protocol):
    """What the sentinel needs of the fleet."""

    async def apply(self, config: Config) -> Changes:
        """Apply a changed configuration."""

    async def reconnect(self, node: str) -> None:
        """Connect to a node again now. Raises KeyError for an unknown node."""


class Sentinel:
    """Rules, actions, textfiles and heartbeat of one watch. `hosts` is the file to reload, if there is one."""

    def __init__(
        self, config: Config, store: Store, control: SentinelControl, findings: FindingTracker, emit: Emit, *,
        crashes: CrashFindings,
        state: StateFile, hosts: HostsFile | None = None, keeper: EvidenceKeeper | None = None,
        on_pass: Callable[[PassHealth, str], None] = lambda health, blindness: None,
    ) -> None:  # fmt: skip
        """Raises ConfigError for rules that cannot be used. `on_pass` is called after every pass."""
        rules = compile_rules(config)
        self._config, self._store, self._control, self._findings = config, store, control, findings
        self._emit, self._state, self._hosts, self._on_pass = emit, state, hosts, on_pass
        self._crashes = crashes
        self.alerts = AlertTracker(rules, state.read(), time.time())
        self.actions = ActionRunner(emit, keeper, self._surroundings)
        self.heartbeat = Heartbeat(emit)
        self.health = PassHealth(0, len(config.nodes))
        self._blindness: str | None = None
        self._open: dict[Identity, Finding] = {}
        self._textfile_problems: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self._retried: dict[str, float] = {}
        self._last_pass_s: float | None = None
        self._state_problem = ""
        self._follow_heartbeat(config)

    async def run(self) -> None:
        """Make a pass every second, until cancelled."""
        while True:
            await self.make_pass()
            await asyncio.sleep(PASS_S)

    async def finish(self) -> None:
        """The last pass: act on the findings of the last evaluation, wait for the actions, save the state."""
        self._evaluate(may_clear=False)
        await self.actions.drain(DRAIN_S)
        await self.heartbeat.stop()
        self._write_textfiles(force=True)
        self._write_state()

    async def make_pass(self) -> None:
        """One pass."""
        now_s = time.monotonic()
        lag_s = 0.0 if self._last_pass_s is None else max(0.0, now_s - self._last_pass_s - PASS_S)
        self.health = self._look(lag_s)
        blindness = self.health.blindness(self._config.watch.heartbeat_nodes_pct)
        self._report_sight(blindness)
        self._evaluate(may_clear=not blindness)
        if not blindness:
            self.heartbeat.beat(self.health, len(self._open))
        self._on_pass(self.health, blindness)
        if self._is_due("textfile", TEXTFILE_S):
            self._write_textfiles()
        if self._is_due("state", STATE_S):
            self._write_state()
        if self._is_due("reload", RELOAD_S):
            await self._reload()
        await self._retry_failed()
        self._last_pass_s = now_s if lag_s == 0.0 else time.monotonic()

    # -- what is seen --------------------------------------------------------------------------------------------------

    def _look(self, lag_s: float) -> PassHealth:
        now_ns = time.time_ns()
        unseen = []
        for node in self._config.nodes:
            longest_s = max(UNSEEN_S, UNSEEN_INTERVALS * node.agent.sample_interval_ms / 1e3)
            now = self._store.nodes.get(node.name)
            if now is None or now.state is None or now.state.state != "ok":
                failure = now.failure if now is not None else None
                unseen.append(f"{node.name} ({failure.name})" if failure is not None else node.name)
            elif now.cost is None or now_ns - now.last_rx > longest_s * 1e9:
                unseen.append(f"{node.name} (silent)")
        age_s = self._findings.evaluated_age_s
        expected = len(self._config.nodes)
        return PassHealth(expected - len(unseen), expected, tuple(unseen), lag_s, age_s, self._findings.failing)

    def _report_sight(self, blindness: str) -> None:
        """One event when the watch becomes blind, when its reason changes, and when it sees again."""
        if blindness == self._blindness or (self._is_same_sight(blindness) and not self._is_due("sight", 30.0)):
            return
        is_first = self._blindness is None
        self._blindness = blindness
        self._due["sight"] = time.monotonic() + 30.0
        fields = {"nodes_seen": self.health.seen, "nodes_expected": self.health.expected}
        if blindness:
            self._emit(WatchEvent("blind", blindness, fields))
        elif not is_first or self.health.expected:
            names = some(self.health.unseen, _NAMED)
            missing = f", without {names}" if names else ""
            self._emit(
                WatchEvent("seen", f"{self.health.seen} of {plural(self.health.expected, 'node')}{missing}", fields)
            )

    def _is_same_sight(self, blindness: str) -> bool:
        return self._blindness is not None and bool(blindness) == bool(self._blindness)

    async def _retry_failed(self) -> None:
        """Connect again, now and then, to nodes whose failure the fleet does not retry by itself."""
        now_s = time.monotonic()
        for node in self._config.nodes:
            now = self._store.nodes.get(node.name)
            is_final = (
                now is not None
                and now.state is not None
                and (now.state.state == "failed" and now.state.retry_at is None)
            )
            if not is_final:
                self._retried.pop(node.name, None)
            elif now_s - self._retried.setdefault(node.name, now_s) >= RETRY_FAILED_S:
                self._retried[node.name] = now_s
                try:
                    await self._control.reconnect(node.name)
                except KeyError:  # removed meanwhile
                    self._retried.pop(node.name, None)

    # -- findings and alerts -------------------------------------------------------------------------------------------

    def _evaluate(self, *, may_clear: bool) -> None:
        findings = [finding for finding in self._store.findings.values() if finding.cleared_at is None]
        self._report_findings({identity(finding): finding for finding in findings})
        alerts = self.alerts.evaluate(findings, self.nodes_of, time.time(), may_clear=may_clear)
        for alert in alerts:
            self.actions.submit(alert)
        if alerts:
            self._write_state()

    def _report_findings(self, current: dict[Identity, Finding]) -> None:
        for key, finding in current.items():
            if key not in self._open:
                self._emit(WatchEvent("finding", f"{finding.severity} {finding.id}: {finding.text}", _fields(finding)))
                self._due["textfile"] = 0.0
        for key, finding in self._open.items():
            if key not in current:
                self._emit(WatchEvent("cleared", f"{finding.severity} {finding.id}: {finding.text}", _fields(finding)))
                self._due["textfile"] = 0.0
        self._open = current

    def nodes_of(self, finding: Finding) -> Sequence[str]:
        """The nodes of a finding's culprits: named themselves, or where the ranks run."""
        names: dict[str, None] = {}
        ranks = {f"rank {now.rank.rank}": now.rank for now in self._store.ranks.values()
                 if finding.job is None or now.rank.job == finding.job} if finding.culprits else {}  # fmt: skip
        for culprit in finding.culprits:
            name = culprit.partition(":")[0]
            if self._store.nodes.get(culprit) is not None:
                names[culprit] = None
            elif self._store.nodes.get(name) is not None:
                names[name] = None
            elif culprit in ranks:
                names[ranks[culprit].node] = None
        return tuple(names)

    def _surroundings(self, alert: Alert) -> Surroundings:
        finding = alert.findings[0]
        return Surroundings(
            cluster=self._config.cluster, now_ns=time.time_ns(), nodes_seen=self.health.seen,
            nodes_expected=self.health.expected, verdict=self._verdict_on(finding),
        )  # fmt: skip

    def _verdict_on(self, finding: Finding) -> Verdict | CrashVerdict | None:
        """The verdict that a finding is of: on the crash, else on the hang of its job."""
        if finding.job is None:
            return None
        crash = self._crashes.verdict_on(finding.job)
        if crash is not None and crash.kind == finding.id:
            return crash
        matching = (verdict for verdict in verdicts(self._store) if verdict.job == finding.job)
        return next((verdict for verdict in matching if verdict.state not in ("moving", "no_ranks")), None)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _write_textfiles(self, *, force: bool = False) -> None:
        rules = [rule for rule in self.alerts.rules if rule.config.textfile]
        if not rules:
            return
        gauges = WatchGauges(
            self._config.cluster, self.health.seen, self.health.expected, not self._blindness, self._jobs(), time.time()
        )
        for rule in rules:
            path = rule.config.textfile or ""
            selected = [finding for finding in self._open.values() if rule.selects(finding, self.nodes_of(finding))]
            try:
                write_textfile(Path(path), gauges, selected)
                problem = ""
            except OSError as error:
                problem = f"{path} cannot be written ({error.strerror})"
            if problem and problem != self._textfile_problems.get(path):
                self._emit(WatchEvent("problem", problem))
            self._textfile_problems[path] = problem

    def _jobs(self) -> Mapping[str, int]:
        """Number of jobs by state: worst severity of their findings, else `ok`, or `ended`."""
        alive: dict[str, bool] = {}
        for now in self._store.ranks.values():
            alive[now.rank.job] = alive.get(now.rank.job, False) or not is_gone(now.rank)
        states = {job: "ok" if is_alive else "ended" for job, is_alive in alive.items()}
        for severity in ("info", "warning", "error"):
            jobs = {finding.job for finding in self._open.values() if finding.severity == severity}
            states.update((job, severity) for job in jobs if job is not None)
        return {**dict.fromkeys(("ok", "info", "warning", "error", "ended"), 0), **Counter(states.values())}

    def _write_state(self) -> None:
        self._state.write(self.alerts.states)
        if self._state.problem and self._state.problem != self._state_problem:
            self._emit(WatchEvent("problem", self._state.problem))
        self._state_problem = self._state.problem

    # -- configuration -------------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Apply hosts.toml after it was saved; an invalid file is reported and changes nothing."""
        if self._hosts is None or not self._hosts.is_saved():
            return
        try:
            config = await asyncio.to_thread(self._hosts.read)
            rules = compile_rules(config)
        except ConfigError as error:
            self._emit(WatchEvent("rejected", f"{error}; the rules and nodes in force stay"))
            return
        changes = await self._control.apply(config)
        self._config = config
        self.alerts.follow(rules)
        self._follow_heartbeat(config)
        self._emit(WatchEvent("reloaded", _reload_text(rules, changes)))

    def _follow_heartbeat(self, config: Config) -> None:
        self.heartbeat.follow(heartbeat_url(config), config.watch.heartbeat_file, config.watch.heartbeat_s)

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._due.get(what, 0.0):
            return False
        self._due[what] = now_s + every_s
        return True


def _fields(finding: Finding) -> dict[str, object]:
    return {"finding": msgspec.to_builtins({name: getattr(finding, name) for name in (
        "id", "severity", "confidence", "job", "culprits", "victims", "text", "evidence", "first_seen", "cleared_at",
    )})}  # fmt: skip


def _reload_text(rules: Sequence[Rule], changes: Changes) -> str:
    parts = [plural(len(rules), "rule")]
    parts += [f"{plural(len(nodes), 'node')} {word}" for nodes, word in (
        (changes.added, "added"), (changes.removed, "removed"), (changes.changed, "reconnected"),
    ) if nodes]  # fmt: skip
    parts += [f"{key} takes effect after a restart" for key in changes.next_start]
    return ", ".join(parts)
