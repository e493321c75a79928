"""Output formats of the topology: Graphviz (`dot -Tsvg`), SVG without Graphviz, and the table of all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

import msgspec

from ..analysis.topology.node import NVSWITCH
from ..text import format
from ..text.nodeset_fold import fold
from ..text.sanitize import printable, quoted_for_dot
from .json_document import to_json
from .snapshot import TopologySnapshot
from .text import to_text
from .tree import TopologyBranch, link_name, nvlinks_of, pci_tree

_HEAD = """\
graph topology {
  graph [rankdir=BT, fontname="Helvetica", nodesep=0.15, ranksep=0.5];
  node [shape=box, fontname="Helvetica", fontsize=10, style="rounded,filled", fillcolor=white];
  edge [fontname="Helvetica", fontsize=8, color=gray40];
"""
_STYLES = {
    "gpu": 'fillcolor="#d5e8d4"', "nic": 'fillcolor="#dae8fc"', "pci": "shape=ellipse", "root": "shape=ellipse",
    "numa": 'shape=folder, fillcolor="#f5f5f5"',
}  # fmt: skip


def to_dot(fleet: TopologySnapshot, node: str | None = None) -> str:
    """One cluster per class (its first node), or one node."""
    lines = [_HEAD.rstrip()]
    if node is not None:
        lines += _cluster(fleet, node, node, 0)
    else:
        for number, made in enumerate(fleet.classes):
            title = f"class {made.name}: {len(made.nodes)} × {fold(made.nodes)}\n{made.title}"
            lines += _cluster(fleet, made.nodes[0], title, number)
    return "\n".join([*lines, "}"])


def _cluster(fleet: TopologySnapshot, node: str, title: str, number: int) -> Iterator[str]:
    topology = fleet.nodes[node]
    sim = " (SIM)" if topology.simulated else ""
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={quoted_for_dot(title + sim)}; color=gray70;"
    yield from _branches(fleet, node, number, pci_tree(topology), None)
    seen = set()
    for gpu in topology.gpus:
        for other, bandwidth in nvlinks_of(topology, gpu):
            if frozenset((gpu.label, other)) in seen:
                continue
            seen.add(frozenset((gpu.label, other)))
            if other not in {device.label for device in topology.gpus}:
                style = 'shape=hexagon, fillcolor="#fff2cc"'
                title = topology.switch_title if other == NVSWITCH else other
                yield f"    {_name(number, other)} [label={quoted_for_dot(title)}, {style}];"
            label = f"{bandwidth.text}" if bandwidth else link_name(topology)
            straight = other in {device.label for device in topology.gpus}
            style = 'color="#76b900", penwidth=3' + (", constraint=false" if straight else "")
            yield f"    {_name(number, other)} -- {_name(number, gpu.label)} [label={quoted_for_dot(label)}, {style}];"
    yield "  }"


def _branches(
    fleet: TopologySnapshot, node: str, number: int, branches: Sequence[TopologyBranch], above: str | None
) -> Iterator[str]:
    for branch in branches:
        own = _name(number, branch.device.label if branch.device else f"{branch.vertex.kind} {branch.vertex.id}")
        label = branch.title
        if branch.device is not None:
            ranks = fleet.ranks_text([node], label) if branch.device.info else ""
            groups = fleet.group_placement.text([node], branch.title) if ranks else ""
            parts = (label, branch.device.name, f"rank {ranks}" if ranks else "", groups)
            label = "\n".join(line for line in parts if line)
        yield f"    {own} [label={quoted_for_dot(label)}, {_STYLES[branch.vertex.kind]}];"
        if above is not None:
            carried = f"{branch.link.text}\n{format.bandwidth(branch.link.bytes_s)}" if branch.link else ""
            yield f"    {own} -- {above} [label={quoted_for_dot(carried)}];"
        yield from _branches(fleet, node, number, branch.children, own)


def _name(number: int, label: str) -> str:
    return quoted_for_dot(f"{number} {label}")


_CELL, _ROW, _BOX_W, _BOX_H, _MARGIN, _TITLE = 104, 84, 92, 46, 24, 44
_STYLE = """\
text { font: 11px sans-serif; fill: #222; } .title { font-size: 14px; font-weight: bold; } .small { font-size: 9px; }
rect { fill: #fff; stroke: #777; rx: 5; } .gpu { fill: #d5e8d4; } .nic { fill: #dae8fc; } .numa { fill: #f0f0f0; }
.switch { fill: #fff2cc; } line, path { stroke: #777; fill: none; } .nvlink { stroke: #76b900; stroke-width: 3; }
.down { fill: #f8cecc; } .link { font-size: 9px; paint-order: stroke; stroke: #fff; stroke-width: 3px; }"""


class _Placed(msgspec.Struct):
    branch: TopologyBranch
    x: float  # of its middle
    row: int
    children: list[_Placed]


def to_svg(fleet: TopologySnapshot, node: str | None = None) -> str:
    """One picture per class (its first node), stacked vertically, or one node."""
    if node is not None:
        pictures = [(fleet.nodes[node].node, node)]
    else:
        pictures = [
            (f"class {made.name}, {len(made.nodes)} × {fold(made.nodes)}: {made.title}", made.nodes[0])
            for made in fleet.classes
        ]
    body: list[str] = []
    y, width = 0.0, 400.0
    for title, name in pictures:
        lines, wide, high = _picture(fleet, name, title)
        body += [f'<g transform="translate(0 {y:g})">', *lines, "</g>"]
        y, width = y + high, max(width, wide)
    size = f'width="{width:g}" height="{max(y, 40):g}" viewBox="0 0 {width:g} {max(y, 40):g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_STYLE}</style>'
    return "\n".join([head, '<rect width="100%" height="100%" style="stroke: none"/>', *body, "</svg>"])


def _picture(fleet: TopologySnapshot, node: str, title: str) -> tuple[list[str], float, float]:
    """(elements, width, height) of one node."""
    topology = fleet.nodes[node]
    placed, columns = _place(pci_tree(topology))
    depth = max((item.row for item in _all(placed)), default=0)
    has_links = any(nvlinks_of(topology, gpu) for gpu in topology.gpus)
    top = _TITLE + (_ROW if has_links else 0)
    sim = "   SIM" if topology.simulated else ""
    lines = [f'<text class="title" x="{_MARGIN}" y="26">{_text(title + sim)}</text>']
    for item in placed:
        lines += _branch_lines(fleet, node, item, top, depth)
    lines += _nvlink_lines(fleet, node, placed, top)
    width = max(2 * _MARGIN + columns * _CELL, 9.0 * len(title))
    return lines, width, top + (depth + 1) * _ROW + _MARGIN


def _place(roots: Sequence[TopologyBranch]) -> tuple[list[_Placed], int]:
    """Layout: leaves side by side in the top row, parents centred below their children; and the column count."""
    column = 0

    def lay(branch: TopologyBranch) -> _Placed:
        nonlocal column
        children = [lay(child) for child in branch.children]
        if not children:
            column += 1
            return _Placed(branch, _MARGIN + (column - 0.5) * _CELL, 0, [])
        return _Placed(branch, (children[0].x + children[-1].x) / 2, 1 + max(child.row for child in children), children)

    placed = [lay(root) for root in roots]
    lowest = max((item.row for item in placed), default=0)
    for item in placed:
        item.row = lowest  # align the NUMA nodes
    return placed, column


def _all(placed: Sequence[_Placed]) -> Iterator[_Placed]:
    for item in placed:
        yield item
        yield from _all(item.children)


def _branch_lines(fleet: TopologySnapshot, node: str, item: _Placed, top: float, depth: int) -> Iterator[str]:
    y = top + item.row * _ROW
    for child in item.children:
        above = top + child.row * _ROW + _BOX_H
        yield f'<line x1="{child.x:g}" y1="{above:g}" x2="{item.x:g}" y2="{y:g}"/>'
        if child.branch.link is not None:
            text = f"{child.branch.link.text} {format.bandwidth(child.branch.link.bytes_s)}"
            yield _label(child.x, above + 12, text, "link")
        yield from _branch_lines(fleet, node, child, top, depth)
    yield from _box(fleet, node, item.branch, item.x, y)


def _box(fleet: TopologySnapshot, node: str, branch: TopologyBranch, x: float, y: float) -> Iterator[str]:
    device = branch.device
    kind = branch.vertex.kind
    texts = [branch.title]
    if device is not None:
        down = device.ports and not any(port.state in ("active", "up", None) for port in device.ports)
        kind_class = f"{kind} down" if down else kind
        ranks = fleet.ranks_text([node], device.label) if device.info else ""
        groups = fleet.group_placement.text([node], device.label) if ranks else ""
        over = f"rank {ranks} {groups}".rstrip() if ranks else "down" if down else ""
        texts += [(device.name or "").removeprefix("NVIDIA "), over]
    else:
        kind_class = kind
        name, _, rest = branch.title.partition("  ")
        texts = [name.rpartition(" ")[0], name.rpartition(" ")[2], rest] if kind != "numa" else [name, rest]
    yield (f'<rect class="{kind_class}" x="{x - _BOX_W / 2:g}" y="{y:g}" width="{_BOX_W}" height="{_BOX_H}">'
           f"<title>{_text(' '.join(filter(None, texts)))}</title></rect>")  # fmt: skip
    for index, text in enumerate(texts[:3]):
        yield _label(x, y + 15 + 13 * index, text if len(text) <= 17 else text[:16] + "…", "small" if index else "")


def _nvlink_lines(fleet: TopologySnapshot, node: str, placed: Sequence[_Placed], top: float) -> Iterator[str]:
    """A bar for the NVSwitches with a line to each GPU; arcs between directly connected GPUs."""
    topology = fleet.nodes[node]
    x_of = {item.branch.device.label: item.x for item in _all(placed) if item.branch.device}
    y = top - 0.6 * _ROW
    ends = {gpu.label: nvlinks_of(topology, gpu) for gpu in topology.gpus}
    attached = [(label, bandwidth) for label, links in ends.items() for name, bandwidth in links if name not in x_of]
    if attached:
        left, right = (edge(x_of[label] for label, _ in attached) for edge in (min, max))
        yield (f'<rect class="switch" x="{left - _BOX_W / 2:g}" y="{y - 16:g}" width="{right - left + _BOX_W:g}" '
               'height="20"/>')  # fmt: skip
        names = sorted({name for links in ends.values() for name, _ in links if name not in x_of})
        titles = [topology.switch_title if name == NVSWITCH else name for name in names]
        yield _label((left + right) / 2, y - 2, ", ".join(titles))
    for label, bandwidth in attached:
        yield f'<line class="nvlink" x1="{x_of[label]:g}" y1="{y + 4:g}" x2="{x_of[label]:g}" y2="{top:g}"/>'
        yield _label(x_of[label], y + 18, bandwidth.text if bandwidth else link_name(topology), "link")
    for label, links in ends.items():
        for other, bandwidth in links:
            if other in x_of and x_of[label] < x_of[other]:
                middle, high = (x_of[label] + x_of[other]) / 2, top - min(60.0, (x_of[other] - x_of[label]) / 3)
                curve = f"M {x_of[label]:g} {top:g} Q {middle:g} {high - 10:g} {x_of[other]:g} {top:g}"
                yield f'<path class="nvlink" d="{curve}"/>'
                yield _label(middle, high - 2, bandwidth.text if bandwidth else link_name(topology), "link")


def _label(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="middle">{_text(text)}</text>'


def _text(text: str) -> str:
    return escape(printable(text))


#: Format → writer, for all nodes or one node.
FORMATS: Final[Mapping[str, Callable[[TopologySnapshot, str | None], str]]] = {
    "text": to_text, "dot": to_dot, "json": to_json, "svg": to_svg,
}  # fmt: skip
#: Format → file extension.
ENDINGS: Final[Mapping[str, str]] = {"text": "txt", "dot": "dot", "json": "json", "svg": "svg"}
