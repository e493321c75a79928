"""The Topology view as text: classes with their differences, the matrix as cells, the tree below it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from ....analysis.topology.classes import Difference, NodeClass
from ....analysis.topology.node import Device, NodeTopology
from ....analysis.topology.routes import between
from ....present.spans import GLYPHS, Line, Span, cut, plain, wrapped
from ....text.cells import clean, fit, width_of
from ....text.format import plural
from ....text.nodeset_fold import fold
from ....topology.groups import group_lines, unknown_lines
from ....topology.pair_queries import access_text, pair_lines, path_lines, route_text
from ....topology.snapshot import TopologySnapshot
from ....topology.text import legend, matrix
from ....topology.tree import SOURCES, Drawn, drawing
from ...models.detail import Detail, Fact


class TopologySelection(NamedTuple):
    """What the matrix shows: a class, or one node."""

    kind: Literal["class", "node"]
    name: str


def class_lines(fleet: TopologySnapshot, unfolded: Collection[str], width: int) -> tuple[Line, ...]:
    """One line per class and per difference; the nodes of an unfolded class below it."""
    lines: list[Line] = []
    for made in fleet.classes:
        key = TopologySelection("class", made.name)
        count = plural(len(made.nodes), "node")
        mark = "▾" if made.name in unfolded else "▸"
        head = (Span(f"{mark} ", "muted"), Span(f"class {made.name}", "strong"), Span(f"  {count}  ", "text"),
                Span(fold(made.nodes), "accent"), Span(f"  {clean(made.title)}", "muted"))  # fmt: skip
        lines.append(Line(cut(head, width), key))
        lines += [Line(_difference(item, "", width), key) for item in made.differences]
        if made.name not in unfolded:
            for difference in made.odd:
                where = TopologySelection("node", difference.nodes[0]) if len(difference.nodes) == 1 else key
                lines.append(Line(_difference(difference, fold(difference.nodes), width), where))
            continue
        for node in made.nodes:
            lines.append(Line((Span("    "), Span(clean(node), "text")), TopologySelection("node", node)))
            lines += [Line(_difference(item, "", width, "      "), TopologySelection("node", node)) for item in made.odd
                      if node in item.nodes]  # fmt: skip
    return tuple(lines)


def _difference(difference: Difference, node: str, width: int, indent: str = "    ") -> tuple[Span, ...]:
    name = [Span(f"{clean(node)}  ", "strong")] if node else []
    return cut((Span(f"{indent}{GLYPHS['warning']} ", "warning"), *name, Span(clean(difference.phrase))), width)


def shown(fleet: TopologySnapshot, chosen: TopologySelection | None) -> tuple[NodeTopology, tuple[str, ...]] | None:
    """The topology to draw, and the nodes whose ranks are on it; None once it is gone."""
    if chosen is None:
        return None
    if chosen.kind == "node":
        return (fleet.nodes[chosen.name], (chosen.name,)) if chosen.name in fleet.nodes else None
    made = next((made for made in fleet.classes if made.name == chosen.name), None)
    return (made.model, made.nodes) if made else None


# -- the matrix --------------------------------------------------------------------------------------------------------


class MatrixCell(msgspec.Struct, frozen=True):
    """One word of the matrix; `differs` if it is another in the class that this one is compared with."""

    text: str
    style: str = "text"
    differs: bool = False


@dataclass(frozen=True)
class CellGrid:
    """`labels` head the rows; `heads` the columns: one per row, then ranks, groups, NUMA node, CPUs."""

    labels: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[MatrixCell, ...], ...] = ()

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Width of each column in cells; read by every line that is drawn."""
        return tuple(max(width_of(head), *(width_of(row[index].text) for row in self.rows))
                     for index, head in enumerate(self.heads))  # fmt: skip


def grid(fleet: TopologySnapshot, topology: NodeTopology, nodes: Sequence[str]) -> CellGrid:
    """The matrix of a class or a node as cells."""
    made = matrix(fleet, topology, nodes)
    odd = _odd_pairs(fleet.class_of(topology.node))
    rows = []
    for label, row in zip(made.labels, made.rows, strict=True):
        *words, cpus, numa, ranks, groups = row
        cells = [MatrixCell(word, _style(word), frozenset((label, other)) in odd)
                 for word, other in zip(words, made.labels, strict=True)]  # fmt: skip
        tail = [MatrixCell(clean(ranks), "accent")] if made.has_ranks else []
        tail += [MatrixCell(clean(groups))] if made.has_groups else []
        rows.append((*cells, *tail, MatrixCell(numa), MatrixCell(clean(cpus), "muted")))
    over = (*(["rank"] if made.has_ranks else []), *(["groups"] if made.has_groups else []))
    return CellGrid(made.labels, (*made.labels, *over, "NUMA", "CPU affinity"), tuple(rows))


def _odd_pairs(made: NodeClass | None) -> set[frozenset[str]]:
    """Pairs of devices whose relation is another in the class that this one is compared with."""
    return {
        frozenset((difference.devices[0], other))
        for difference in (made.differences if made else ())
        if difference.aspect == "relation"
        for other in difference.devices[1:]
    }


def _style(word: str) -> str:
    if word.startswith("NV"):
        return "accent"
    return {"X": "rule", "PIX": "strong", "PXB": "strong", "SYS": "muted", "?": "unknown"}.get(word, "text")


def pair_text(fleet: TopologySnapshot, topology: NodeTopology, row: int, column: int) -> str:
    """The two devices of a cell, in one line."""
    if row >= len(topology.devices) or column >= len(topology.devices):
        return ""
    device, other = topology.devices[row], topology.devices[column]
    if device is other:
        return f"{device.label}  {clean(device.name or '')}"
    word = topology.word(device.label, other.label)
    text = f"{device.label}–{other.label}  {word}  {route_text(between([topology], device.vertex, other.vertex))}"
    if device.info is not None and other.info is not None:
        text += f"; {access_text(topology, device, other)}"
        shared = fleet.group_placement.shared(topology.node, device.label, other.label)
        text += f"; both in {', '.join(group.label for group in shared)}" if shared else ""
    return clean(text)


def pair_detail(fleet: TopologySnapshot, topology: NodeTopology, row: int, column: int) -> Detail | None:
    """Details of the two devices of a cell, with every hop of the path."""
    if row >= len(topology.devices) or column >= len(topology.devices):
        return None
    device, other = topology.devices[row], topology.devices[column]
    if device is other:
        return _device_detail(fleet, topology, device)
    facts = [Fact("relation", topology.word(device.label, other.label)),
             Fact("best path", clean(route_text(between([topology], device.vertex, other.vertex))))]  # fmt: skip
    if device.info is not None and other.info is not None:
        facts.append(Fact("peer access", clean(access_text(topology, device, other).removeprefix("peer access: "))))
        shared = fleet.group_placement.shared(topology.node, device.label, other.label)
        facts += [Fact("both in", clean(f"{group.label}: {fleet.group_placement.span(group)}")) for group in shared]
    facts.append(Fact("", ""))
    facts += [Fact("", clean(text), "muted" if "│" in text else "text") for text in path_lines(fleet, device, other)]
    return Detail(f"{clean(topology.node)}  {device.label}–{other.label}", "ok", tuple(facts))


def _device_detail(fleet: TopologySnapshot, topology: NodeTopology, device: Device) -> Detail:
    facts = [
        Fact("name", clean(device.name or "")),
        Fact("NUMA node", clean(device.numa or "unknown")),
        Fact("CPUs", clean(device.cpus or "unknown")),
        Fact("bridges", clean(" → ".join(device.place.via)) if device.place and device.place.via else "unknown"),
    ]
    if device.info is not None:
        near = topology.nearest_nics(device)
        names = ", ".join(f"{nic.label} {clean(nic.name or '')}" for nic in near)
        facts.append(Fact("nearest NIC", names or "unknown"))
        facts.append(Fact("ranks", clean(fleet.ranks_text([topology.node], device.label)) or "none"))
        facts += [Fact("group", clean(f"{group.label}: {len(group.ranks)} ranks, {fleet.group_placement.span(group)}"))
                  for group in fleet.group_placement.on(topology.node, device.label)]  # fmt: skip
    why = device.place.unsupported if device.place else {}
    facts += [Fact("not available", f"{field}: {clean(reason)}", "muted") for field, reason in why.items()]
    return Detail(f"{clean(topology.node)}  {device.label}", "ok", tuple(facts))


#: Pairs of GPUs, and their capabilities.
Pairs = tuple[tuple[str, str], ...]


def pairs_of(topology: NodeTopology) -> Pairs:
    """Capabilities of all pairs of GPUs. Takes 50 ms for eight GPUs: cache it."""
    return tuple(pair_lines(topology))


# -- below the matrix --------------------------------------------------------------------------------------------------


def drawing_lines(
    fleet: TopologySnapshot, topology: NodeTopology, nodes: Sequence[str], pairs: Pairs, width: int
) -> tuple[Line, ...]:
    """Tree of the node, parallel groups on it, pairs of GPUs (from `pairs_of`), legend."""
    lines = [line for drawn in drawing(fleet, topology.node) for line in _drawn_lines(drawn, width)]
    lines += _group_lines(fleet, nodes, width)
    if pairs:
        lines += [plain(""), plain("GPU PAIRS", "accent")]
    for subject, text in pairs:
        lines += [Line((Span(part),)) for part in wrapped(clean(f"{subject}: {text}"), max(20, width))]
    lines += [plain(""), plain("LEGEND", "accent")]
    made = matrix(fleet, topology, nodes)
    for word, means in (*legend(made), *made.nics):
        lines.append(Line(cut((Span(f"{word:<6}", "strong"), Span(clean(means), "muted")), width)))
    lines += [plain(part, "muted") for part in wrapped(SOURCES, max(20, width))]
    return tuple(lines)


def _group_lines(fleet: TopologySnapshot, nodes: Sequence[str], width: int) -> Iterator[Line]:
    yield plain("")
    yield plain("PARALLEL GROUPS", "accent")
    lines = list(group_lines(fleet, nodes))
    room = min(24, max((width_of(clean(what)) for what, _ in lines), default=0))
    for what, text in lines:
        style = "text" if what.startswith(" ") else "strong"
        yield Line(cut((Span(fit(clean(what), room), style), Span(f"  {clean(text)}", "muted")), width))
    for line in unknown_lines(fleet):
        yield from (plain(part, "muted") for part in wrapped(clean(line), max(20, width)))


def _drawn_lines(drawn: Drawn, width: int) -> Iterator[Line]:
    style = "strong" if drawn.device else "text"
    head = (Span(drawn.indent, "rule"), Span(clean(drawn.title), style))
    room = width - sum(width_of(span.text) for span in head) - 2
    facts = clean(drawn.facts)
    if width_of(facts) <= room:
        yield Line((*head, Span(f"  {facts}", "muted")))
        return
    yield Line(cut(head, width))
    below = drawn.indent.replace("├─", "│ ").replace("└─", "  ") + "   "
    for part in wrapped(facts, max(10, width - width_of(below))):
        yield Line((Span(below, "rule"), Span(part, "muted")))


def head_text(fleet: TopologySnapshot) -> str:
    """`3 classes  7 nodes`."""
    nodes = sum(len(made.nodes) for made in fleet.classes)
    return f"{plural(len(fleet.classes), 'class', 'classes')}  {plural(nodes, 'node')}"
