"""`gconsole check`: the node checks on a store, as text, as JSON and as an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ..analysis.checks.result import CheckResult, CheckState, NodeFacts
from ..analysis.checks.table import CHECKS, run_checks
from ..analysis.finding_selection import RANKING
from ..core.store import Store
from ..records import Failure, Severity
from ..text.documents import pretty
from ..text.format import plural
from ..text.nodeset_fold import fold, natural
from ..text.sanitize import printable

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
    nodes = []
    for name in sorted(store.nodes, key=natural):
        now = store.nodes[name]
        if now.state is None or now.state.state != "ok":
            nodes.append(CheckedNode(name, False, error=now.failure))
        else:
            nodes.append(CheckedNode(name, True, tuple(run_checks(facts_of(store, name)))))
    return nodes


def facts_of(store: Store, node: str) -> NodeFacts:
    """What the store has of one node."""
    now = store.nodes[node]
    gpus = [held for (name, _), held in store.gpus.items() if name == node and held.info is not None]
    whole = {held.info.uuid: held for held in gpus if held.info is not None and held.info.parent is None}
    parents = {held.info.uuid: held.info.parent for held in gpus if held.info is not None}
    occupied = {process.uuid for process in store.gpu_processes.values() if process.node == node}
    return NodeFacts(
        node, now.node, now.host,
        gpus=[(held.info, held.gpu) for held in whole.values() if held.info is not None],
        nics=[nic for nic in store.nics.values() if nic.node == node],
        inventory={of: record for (name, of), record in store.inventories.items() if name == node},
        occupied=frozenset(parents.get(uuid) or uuid for uuid in occupied),
        findings=[finding for finding in store.findings.values() if finding.cleared_at is None
                  and any(culprit == node or culprit.startswith(f"{node}:") for culprit in finding.culprits)],
        watched_s=(store.newest_rx - store.started_rx) / 1e9,
        nodes=sum(other.node is not None for other in store.nodes.values()),
    )  # fmt: skip


def exit_code(nodes: Sequence[CheckedNode], fail_on: Severity) -> int:
    """4 no node reached, 1 a failure at or above that severity, 3 nodes not reached or GPUs not judged, 0 fine."""
    if not any(node.reached for node in nodes):
        return 4
    results = [result for node in nodes for result in node.checks]
    if any(result.state == "fail" and RANKING[result.severity] >= RANKING[fail_on] for result in results):
        return 1
    is_partial = any(result.state == "unknown" and result.id == "gpu_reachable" for result in results)
    return 3 if is_partial or not all(node.reached for node in nodes) else 0


def to_json(nodes: Sequence[CheckedNode]) -> str:
    """`{"schema": "gconsole.check/1", "nodes": [...]}`."""
    return pretty({"schema": SCHEMA, "nodes": list(nodes)})


def to_text(nodes: Sequence[CheckedNode]) -> str:
    """One line per check; below one that is not passed everywhere, a line per distinct result with its nodes."""
    lines = [f"✖ {fold([node.node])}  not reached{_why(node.error)}" for node in nodes if not node.reached]
    for place, check in enumerate(CHECKS):
        results: dict[CheckResult, list[str]] = {}
        for node in nodes:
            if node.reached:
                results.setdefault(node.checks[place], []).append(node.node)
        lines += _check_lines(check.id, results)
    return "\n".join(map(printable, lines))


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


def table_text() -> str:
    """Every check with its source, limit, severity and owner."""
    rows = [("check", "what", "source", "passes", "severity", "owner")]
    rows += [(check.id, check.what, check.source, check.limit, check.severity, check.owner) for check in CHECKS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)  # fmt: skip
