"""Graphviz output of the topology: `dot -Tsvg`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analysis.topology.node import NVSWITCH
from ..text import format
from ..text.nodeset_fold import fold
from ..text.sanitize import quoted_for_dot
from .snapshot import TopologySnapshot
from .tree import TopologyBranch, nvlinks_of, pci_tree

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
            label = f"{bandwidth.text}" if bandwidth else "NVLink"
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
