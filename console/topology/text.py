"""Text output of the topology (`gconsole topo`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analysis.topology.classes import NodeClass
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from ..text.table import table
from .groups import group_lines, unknown_lines
from .matrix import TopologyMatrix, legend, matrix, matrix_lines
from .pair_queries import pair_lines
from .snapshot import TopologySnapshot
from .tree import SOURCES, drawing


def to_text(fleet: TopologySnapshot, node: str | None = None) -> str:
    """Every class with its matrix, or one node with its matrix and PCIe tree."""
    lines = list(_of_node(fleet, node) if node is not None else _of_classes(fleet))
    return "\n".join(lines or ["no topology: no GPUs or NICs reported"])


def _of_classes(fleet: TopologySnapshot) -> Iterator[str]:
    shown: list[TopologyMatrix] = []
    for made in fleet.classes:
        yield headline(fleet, made)
        yield from (f"  {line}" for line in difference_lines(made))
        made_matrix = matrix(fleet, made.model, made.nodes)
        shown.append(made_matrix)
        yield ""
        yield from _matrix_lines(made_matrix)
        yield ""
    if shown:
        yield from _group_lines(fleet, None)
    yield from _legend_lines(shown)


def _of_node(fleet: TopologySnapshot, node: str) -> Iterator[str]:
    topology = fleet.nodes[node]
    made = fleet.class_of(node)
    sim = "  SIM" if topology.simulated else ""
    yield f"{node}{sim}" + (f"  class {made.name} of {len(made.nodes)}: {printable(made.title)}" if made else "")
    if made is not None:
        yield from (f"  {line}" for line in difference_lines(made, node))
    shown = matrix(fleet, topology, [node])
    yield ""
    yield from _matrix_lines(shown)
    yield ""
    for line in drawing(fleet, node):
        yield printable(f"{line.indent}{line.title}  {line.facts}".rstrip())
    yield ""
    for pairs, text in pair_lines(topology):
        yield printable(f"{pairs}: {text}")
    yield ""
    yield from _group_lines(fleet, [node])
    yield from _legend_lines([shown])
    yield f"  {SOURCES}"


def headline(fleet: TopologySnapshot, made: NodeClass) -> str:
    """`class A  62 nodes: node[001-062]  8 × NVIDIA H100 80GB HBM3, 4 NICs`."""
    count = f"{len(made.nodes)} node{'s' * (len(made.nodes) != 1)}"
    sim = "  SIM" if made.model.simulated else ""
    return f"class {made.name}{sim}  {count}: {fold(made.nodes)}  {printable(made.title)}"


def difference_lines(made: NodeClass, node: str | None = None) -> Iterator[str]:
    """Differences of the class, and of single nodes (or only `node`) within it."""
    for difference in made.differences:
        yield printable(f"▲ {difference.phrase}" if node else f"▲ {difference.text}")
    for difference in made.odd:
        if node is None or node in difference.nodes:
            yield printable(f"▲ {difference.phrase}" if node else f"▲ {difference.text}")


def _matrix_lines(made: TopologyMatrix) -> Iterator[str]:
    yield from matrix_lines(made)
    if made.nics:
        yield ""
        yield ", ".join(f"{label}: {device}" for label, device in made.nics)


def _group_lines(fleet: TopologySnapshot, nodes: Sequence[str] | None) -> Iterator[str]:
    yield "Parallel groups:"
    yield from table(list(group_lines(fleet, nodes)), indent="  ")
    yield from (f"  {line}" for line in unknown_lines(fleet))
    yield ""


def _legend_lines(shown: list[TopologyMatrix]) -> Iterator[str]:
    entries = {line: None for made in shown for line in legend(made)}
    if entries:
        yield "Legend:"
        yield from table(list(entries), indent="  ")
