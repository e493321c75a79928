"""Findings folded over nodes: equal ones are one line, `nvlink_down node[017-032]:gpu3`; storms are one per cause."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final, get_args

import msgspec

from ...analysis.crash.verdict import CrashKind
from ...analysis.hang.verdict import Kind as HangKind
from ...records import Finding
from ...text import format
from ...text.nodeset_fold import replace_node_name
from .node_summary import folded

#: Ids of findings that are the verdict on a job.
VERDICTS: Final = frozenset({*get_args(CrashKind), *get_args(HangKind), "job_stalled", "undecided"})
#: Those on a job that died by itself.
CRASHED: Final = frozenset(get_args(CrashKind)) - {"launcher"}
#: Findings of one cause that differ in their texts, from which on they are one line.
STORM: Final = 5
#: Stands for the node's name where texts are compared.
_NODE: Final = "\0"


class FoldedFinding(msgspec.Struct, frozen=True):
    """Findings of one cause; the first is the one that opened first.

    `text`: that of the only one, or where they are and what they have in common.
    """

    findings: tuple[Finding, ...]
    text: str
    where: str = ""  # node[017-032]:gpu3; empty for a single one

    @property
    def first(self) -> Finding:
        """The one that opened first."""
        return self.findings[0]

    @property
    def key(self) -> tuple[str, tuple[str, ...], str | None]:
        """Identity of the first one."""
        return (self.first.id, self.first.culprits, self.first.job)


def fold_findings(findings: Sequence[Finding], nodes: Container[str]) -> tuple[FoldedFinding, ...]:
    """The findings in their order, each folded into the first of its cause.

    Findings of one id, severity and job are of one cause where each has one node among its culprits. With the same text
    but for that node, and at the same place of it, they are always one line; where more than `STORM` different ones
    remain, all are. Verdicts on jobs are never folded. `nodes` are all names of nodes.
    """
    equal: dict[tuple[object, ...], list[tuple[Finding, str, str]]] = {}
    for number, finding in enumerate(findings):
        place = None if finding.id in VERDICTS else _place(finding, nodes)
        if place is None:
            equal[number,] = [(finding, "", "")]
            continue
        node, part = place
        text = replace_node_name(finding.text, node, _NODE)
        equal.setdefault((*_cause(finding), part, text), []).append((finding, node, part))
    causes: dict[tuple[object, ...], list[list[tuple[Finding, str, str]]]] = {}
    for key, group in equal.items():
        causes.setdefault(key[:3] if len(key) > 1 else key, []).append(group)
    lines: list[FoldedFinding] = []
    for groups in causes.values():
        if len(groups) > STORM:
            lines.append(_storm([entry for group in groups for entry in group]))
        else:
            lines += [_same(group) for group in groups]
    order = {id(finding): number for number, finding in enumerate(findings)}
    return tuple(sorted(lines, key=lambda line: order[id(line.first)]))


def _cause(finding: Finding) -> tuple[object, ...]:
    return (finding.id, finding.severity, finding.job)


def _place(finding: Finding, nodes: Container[str]) -> tuple[str, str] | None:
    """(node, part of it) of the only node among the culprits, such as (node017, gpu3); None for none or several."""
    places = []
    for culprit in finding.culprits:
        node, _, part = culprit.partition(":") if culprit not in nodes else (culprit, "", "")
        if node not in nodes:  # a node's name may have a colon
            node, _, part = culprit.rpartition(":")
        if node in nodes:
            places.append((node, part))
    return places[0] if len({node for node, _ in places}) == 1 and len(places) == 1 else None


def _same(group: Sequence[tuple[Finding, str, str]]) -> FoldedFinding:
    """Findings with one text."""
    finding, node, part = group[0]
    if len(group) == 1:
        return FoldedFinding((finding,), finding.text)
    where = _where((name for _, name, _ in group), part)
    name = f"{node}:{part}" if part else node
    common = finding.text.removeprefix(f"{name}: ").removeprefix(f"{name} ")
    return FoldedFinding(tuple(entry[0] for entry in group), f"{where}: {common}", where)


def _storm(group: Sequence[tuple[Finding, str, str]]) -> FoldedFinding:
    """Findings of one cause with different texts."""
    parts = {part for _, _, part in group}
    where = _where((name for _, name, _ in group), parts.pop() if len(parts) == 1 else "")
    text = f"{where}: {format.plural(len(group), 'finding')}; the first: {group[0][0].text}"
    return FoldedFinding(tuple(entry[0] for entry in group), text, where)


def _where(nodes: Iterable[str], part: str) -> str:
    names = folded(tuple(dict.fromkeys(nodes)))
    return f"{names}:{part}" if part else names
