"""`gconsole check`: the node checks on a store, as text, as JSON and as an exit code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ..analysis.checks.resources import usual_of_jobs
from ..analysis.checks.result import CheckResult, CheckState, NodeFacts
from ..analysis.checks.settings import usual_settings
from ..analysis.checks.table import CHECKS, run_checks
from ..analysis.finding_selection import RANKING
from ..core.store import Store
from ..records import Failure, Finding, Process, Severity
from ..text.documents import JsonText, pretty
from ..text.format import plural
from ..text.nodeset_fold import fold, fold_ranks, natural
from ..text.sanitize import Printable, join_lines

_R = TypeVar("_R")
#: Seconds between two evaluations of the checks of a node that is on the screen.
CHECK_EVERY_S: Final = 5.0
SCHEMA: Final = "gconsole.check/1"
_GLYPHS: Final[dict[CheckState, str]] = {"pass": "●", "fail": "✖", "unknown": "?", "absent": "·"}


class CheckedNode(msgspec.Struct, frozen=True):
    """The results of one node; none of one that was not reached."""

    node: str
    reached: bool
    checks: tuple[CheckResult, ...] = ()
    error: Failure | None = None  # why it was not reached


def check_nodes(store: Store) -> list[CheckedNode]:
    """The checks of every node, by name."""
    facts = _Facts(store)
    nodes = []
    for name in sorted(store.nodes, key=natural):
        now = store.nodes[name]
        if now.state is None or now.state.state != "ok":
            nodes.append(CheckedNode(name, False, error=now.failure))
        else:
            nodes.append(CheckedNode(name, True, tuple(run_checks(facts.of(name)))))
    return nodes


def append_results(nodes: Sequence[CheckedNode], results: Mapping[str, Sequence[CheckResult]]) -> list[CheckedNode]:
    """The nodes with further results after their own."""
    return [replace(node, checks=(*node.checks, *results.get(node.node, ()))) for node in nodes]


class NodeCheckCache:
    """The checks of single nodes for a screen, each evaluated again every `CHECK_EVERY_S`, less often in a
    fleet of more than a hundred nodes; still in a copy. `own` has the results of the user's checks of a node."""

    def __init__(self, store: Store | None, own: Callable[[str], Sequence[CheckResult]] = lambda node: ()) -> None:
        self._store, self._own = store, own
        self._results: dict[str, tuple[int, list[CheckResult]]] = {}

    def of(self, name: str, now: int) -> list[CheckResult]:
        """The results of a node at `now`, ns; none before it has reported."""
        evaluated, results = self._results.get(name, (0, []))
        every_s = max(CHECK_EVERY_S, len(self._store.nodes) / 20) if self._store is not None else 0.0
        if self._store is not None and not 0 <= now - evaluated < every_s * 1e9:
            node = self._store.nodes.get(name)
            is_known = node is not None and node.node is not None
            results = [*run_checks(_Facts(self._store).of(name)), *self._own(name)] if is_known else []
            self._results = {name: (now, results)}  # one page is open at a time
        return results

    def copied(self) -> NodeCheckCache:
        """A copy in which nothing changes any more."""
        copy = NodeCheckCache(None)
        copy._results = dict(self._results)
        return copy


class _Facts:
    """The facts of all nodes in a store, read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gpus = _by_node(held for held in store.gpus.items() if held[1].info is not None)
        self._nics = _by_node(store.nics.items())
        self._settings = _by_node(store.settings.items())
        self._capacities = _by_node(store.capacities.items())
        self._rank_settings = _by_node(store.rank_settings.items())
        self._processes = _by_node(store.processes.items())
        self._gpu_processes = _by_node(store.gpu_processes.items())
        self._faults = _by_node(((record.node,), record) for record in store.endings.faults)
        self._findings: dict[str, list[Finding]] = defaultdict(list)
        for finding in store.findings.values():
            if finding.cleared_at is None:
                for node in {culprit.partition(":")[0] for culprit in finding.culprits}:
                    self._findings[node].append(finding)
        self._classes = {name: self._class_of(name) for name, now in store.nodes.items() if now.node is not None}
        self._usual = usual_settings(self._classes, store.settings.values())
        self._usual_of_jobs = usual_of_jobs(store.rank_settings.values())

    def of(self, node: str) -> NodeFacts:
        """What the store has of one node."""
        store, now = self._store, self._store.nodes[node]
        infos = [(held.info, held.gpu) for held in self._gpus[node] if held.info is not None]
        parents = {info.uuid: info.parent for info, _ in infos}
        processes = {process.pid: process for process in self._processes[node]}
        return NodeFacts(
            node, now.node, now.host,
            gpus=[(info, gpu) for info, gpu in infos if info.parent is None],
            nics=self._nics[node],
            inventory={of: record for (name, of), record in store.inventories.items() if name == node},
            occupied=frozenset(parents.get(on.uuid) or on.uuid for on in self._gpu_processes[node]),
            findings=self._findings[node],
            watched_s=(store.newest_rx - now.agent_rx) / 1e9 if now.agent_rx else 0.0,
            nodes=sum(other.node is not None for other in store.nodes.values()),
            settings={(setting.name, setting.subject): setting.value for setting in self._settings[node]},
            usual=self._usual.get(self._classes.get(node), {}),
            capacities=self._capacities[node],
            rank_settings=self._rank_settings[node],
            usual_of_jobs=self._usual_of_jobs,
            privileged=frozenset((pid, it.start_ticks) for pid, it in processes.items() if it.uid == 0),
            gpu_of={on.pid: parents.get(on.uuid) or on.uuid for on in self._gpu_processes[node]},
            left_over=self._left_over(node, processes),
            clock=store.clocks.sources.get(node),
            faults=self._faults[node],
        )  # fmt: skip

    def _class_of(self, name: str) -> object:
        """Nodes of one class have the same architecture, CPUs and GPUs."""
        node = self._store.nodes[name].node
        models = sorted(held.info.name or "" for held in self._gpus[name] if held.info is not None)
        return (node.arch, node.cpus, tuple(models)) if node is not None else None

    def _left_over(self, node: str, processes: Mapping[int, Process]) -> dict[str, str]:
        """Ranks on a GPU that are zombies, of an attempt that was restarted, or whose torchrun has ended."""
        gpus: dict[int, set[int]] = defaultdict(set)
        for on in self._gpu_processes[node]:
            gpus[on.pid].add(on.index)
        left_over: dict[str, str] = {}
        for pid, indexes in gpus.items():
            process = processes.get(pid)
            now = self._store.ranks.get((node, pid, process.start_ticks)) if process is not None else None
            if process is None or now is None:
                continue
            starter = processes.get(process.ppid)
            is_alone = process.ppid == 1 and now.rank.launcher == "torchrun" and starter is None
            if now.stat is not None and now.stat.state == "zombie":
                words = "a zombie"
            elif now.rank.status == "stale":
                words = "left over from an attempt that was restarted"
            elif is_alone and now.rank.status == "present":
                words = "its torchrun has ended"
            else:
                continue
            number = fold_ranks([now.rank.rank])
            left_over[f"rank {number} of {now.rank.job} (pid {pid}, {words})"] = fold([f"gpu{i}" for i in indexes])
        return left_over


def _by_node(items: Iterable[tuple[tuple[Any, ...], _R]]) -> dict[str, list[_R]]:
    """Records by the node in their key; [] for another node."""
    grouped: dict[str, list[_R]] = defaultdict(list)
    for key, record in items:
        grouped[key[0]].append(record)
    return grouped


def exit_code(nodes: Sequence[CheckedNode], fail_on: Severity) -> int:
    """4 no node reached, 1 a failure at or above that severity, 3 nodes not reached or GPUs not judged, 0 fine."""
    if not any(node.reached for node in nodes):
        return 4
    results = [result for node in nodes for result in node.checks]
    if any(result.state == "fail" and RANKING[result.severity] >= RANKING[fail_on] for result in results):
        return 1
    is_partial = any(result.state == "unknown" and result.id == "gpu_reachable" for result in results)
    return 3 if is_partial or not all(node.reached for node in nodes) else 0


def to_json(nodes: Sequence[CheckedNode]) -> JsonText:
    """`{"schema": "gconsole.check/1", "nodes": [...]}`."""
    return pretty({"schema": SCHEMA, "nodes": list(nodes)})


def to_text(nodes: Sequence[CheckedNode]) -> Printable:
    """One line per check; below one that is not passed everywhere, a line per distinct result with its nodes."""
    lines = [f"✖ {fold([node.node])}  not reached{_why(node.error)}" for node in nodes if not node.reached]
    results: dict[str, dict[CheckResult, list[str]]] = {}
    for node in nodes:
        for result in node.checks:
            results.setdefault(result.id, {}).setdefault(result, []).append(node.node)
    for id, of_nodes in results.items():
        lines += _check_lines(id, of_nodes)
    return join_lines(lines)


def _why(error: Failure | None) -> str:
    return f": {error.text}" if error is not None else ""


def _check_lines(id: str, results: dict[CheckResult, list[str]]) -> Iterator[str]:
    passed = sum(len(names) for result, names in results.items() if result.state == "pass")
    if passed:
        yield f"{_GLYPHS['pass']} {id:25s} {plural(passed, 'node')} passed"
    for result, names in results.items():
        if result.state == "pass":
            continue
        word = "" if result.state == "fail" else f"{result.state}: "
        yield f"{_GLYPHS[result.state]} {id:25s} {fold(names)}  {word}{result.text}"
        if result.remedy:
            yield f"  {'':25s}   try: {result.remedy}"


def table_json() -> JsonText:
    """`{"schema": "gconsole.check_table/1", "checks": [...]}`: every check."""
    checks = [
        {"id": check.id, "what": check.what, "source": check.source, "limit": check.limit, "severity": check.severity,
         "owner": check.owner, "remedy": check.remedy}
        for check in CHECKS
    ]  # fmt: skip
    return pretty({"schema": "gconsole.check_table/1", "checks": checks})


def table_text() -> Printable:
    """Every check with its source, limit, severity and owner."""
    rows = [("check", "what", "source", "passes", "severity", "owner")]
    rows += [(check.id, check.what, check.source, check.limit, check.severity, check.owner) for check in CHECKS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return join_lines("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                      for row in rows)  # fmt: skip
