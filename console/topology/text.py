"""Text output of the topology (`gconsole topo`): matrix as in `nvidia-smi topo -m`, PCIe tree, pairs, groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..analysis.topology.classes import NodeClass
from ..analysis.topology.node import NodeTopology
from ..text.cells import table
from ..text.format import plural
from ..text.nodeset_fold import fold
from ..text.sanitize import printable
from .groups import group_lines, unknown_lines
from .pair_queries import pair_lines
from .snapshot import TopologySnapshot
from .tree import SOURCES, drawing

#: Legend, nearest last, as in nvidia-smi.
LEGEND = (
    ("X", "the device itself"),
    ("SYS", "PCIe and the link between NUMA nodes (QPI, UPI, Infinity Fabric)"),
    ("NODE", "PCIe and the link between host bridges of one NUMA node"),
    ("PHB", "PCIe and a host bridge, mostly the CPU's"),
    ("PXB", "several PCIe bridges, but no host bridge"),
    ("PIX", "one PCIe bridge at most"),
    ("NV#", "# NVLinks, bonded"),
    ("XGMI", "xGMI (Infinity Fabric) between GPUs of AMD"),
    ("?", "not reported"),
)


class TopologyMatrix(msgspec.Struct, frozen=True):
    """`rows` hold a word for each label, then CPU affinity, NUMA node, ranks and groups of the row's device."""

    labels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    nics: tuple[tuple[str, str], ...]  # (label, device)
    presumed: bool  # whether the GPU of some rank is only presumed

    @property
    def heads(self) -> tuple[str, ...]:
        """Column headers."""
        over = (*(["Ranks"] if self.has_ranks else []), *(["Groups"] if self.has_groups else []))
        return (*self.labels, "CPU Affinity", "NUMA Affinity", *over)

    @property
    def has_ranks(self) -> bool:
        """Whether any device has ranks."""
        return any(row[-2] for row in self.rows)

    @property
    def has_groups(self) -> bool:
        """Whether any device has parallel groups."""
        return self.has_ranks and any(row[-1] for row in self.rows)

    @property
    def words(self) -> set[str]:
        """Words in the matrix, NV# for any number of links."""
        words = {word for row in self.rows for word in row[: len(self.labels)]}
        return {"NV#" if word.startswith("NV") else word for word in words}


def matrix(fleet: TopologySnapshot, topology: NodeTopology, nodes: Sequence[str]) -> TopologyMatrix:
    """Matrix of a node or a class, with the ranks on all `nodes`."""
    labels = tuple(device.label for device in topology.devices)
    rows = []
    for device in topology.devices:
        ranks = fleet.ranks_text(nodes, device.label) if device.info else ""
        words = (topology.word(device.label, other) for other in labels)
        cpus = device.cpus if device.info else None  # NIC traffic is handled by any CPU
        groups = fleet.group_placement.text(nodes, device.label) if device.info else ""
        rows.append((*words, *(printable(text or "") for text in (cpus, device.numa, ranks, groups))))
    nics = tuple((nic.label, printable(nic.name or "")) for nic in topology.nics)
    return TopologyMatrix(labels, tuple(rows), nics, any(row[-2].endswith("?") for row in rows))


def matrix_lines(made: TopologyMatrix) -> list[str]:
    """Matrix as text lines, header first."""
    rows = [(label, *made.rows[i][: len(made.heads)]) for i, label in enumerate(made.labels)]
    return table(rows, header=("", *made.heads), align="<" + "^" * len(made.labels))


def legend(made: TopologyMatrix) -> list[tuple[str, str]]:
    """(word, meaning) for the words in the matrix, and `rank?` if needed."""
    lines = [(word, means) for word, means in LEGEND if word in made.words]
    if made.presumed:
        lines.append(("rank?", "presumed from the local rank; neither driver nor environment reports the GPU"))
    return lines


def to_text(fleet: TopologySnapshot, node: str | None = None) -> str:
    """Every class with its matrix, or one node with its matrix and PCIe tree."""
    lines = list(_of_node(fleet, node) if node is not None else _of_classes(fleet))
    return "\n".join(
        lines or ["no GPU or NIC was reported; check the GPU driver of the nodes with: gconsole doctor TARGET"]
    )


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
    count = plural(len(made.nodes), "node")
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
