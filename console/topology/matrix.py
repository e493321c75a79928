"""The matrix of `nvidia-smi topo -m`: every device against every other, CPUs and NUMA node beside it, the ranks and
their parallel groups over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analysis.topology.node import NodeTopology
from ..text.sanitize import printable
from ..text.table import table
from .snapshot import TopologySnapshot

#: What the words mean, nearest last, as nvidia-smi lists them.
LEGEND = (
    ("X", "the device itself"),
    ("SYS", "PCIe and the link between NUMA nodes (QPI, UPI, Infinity Fabric)"),
    ("NODE", "PCIe and the link between host bridges of one NUMA node"),
    ("PHB", "PCIe and a host bridge, mostly the CPU's"),
    ("PXB", "several PCIe bridges, but no host bridge"),
    ("PIX", "one PCIe bridge at most"),
    ("NV#", "# NVLinks, bonded"),
    ("?", "nobody tells"),
)


@dataclass(frozen=True)
class TopologyMatrix:
    """`rows` hold a word for each label, then CPU affinity, NUMA node, ranks and groups of the row's device."""

    labels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    nics: tuple[tuple[str, str], ...]  # (label, device)
    presumed: bool  # whether some rank is only presumed to be where it stands

    @property
    def heads(self) -> tuple[str, ...]:
        over = (*(["Ranks"] if self.has_ranks else []), *(["Groups"] if self.has_groups else []))
        return (*self.labels, "CPU Affinity", "NUMA Affinity", *over)

    @property
    def has_ranks(self) -> bool:
        return any(row[-2] for row in self.rows)

    @property
    def has_groups(self) -> bool:
        return self.has_ranks and any(row[-1] for row in self.rows)

    @property
    def words(self) -> set[str]:
        """The words that occur, NV# for any number of links."""
        found = {word for row in self.rows for word in row[: len(self.labels)]}
        return {"NV#" if word.startswith("NV") else word for word in found}


def matrix(fleet: TopologySnapshot, topology: NodeTopology, nodes: Sequence[str]) -> TopologyMatrix:
    """The matrix of a node, or of the class of these nodes: then the ranks are those of all of them."""
    labels = tuple(device.label for device in topology.devices)
    rows = []
    for device in topology.devices:
        ranks = fleet.ranks_text(nodes, device.label) if device.info else ""
        words = (topology.word(device.label, other) for other in labels)
        cpus = device.cpus if device.info else None  # a card's traffic is handled by any CPU
        groups = fleet.group_placement.text(nodes, device.label) if device.info else ""
        rows.append((*words, *(printable(text or "") for text in (cpus, device.numa, ranks, groups))))
    nics = tuple((nic.label, printable(nic.name or "")) for nic in topology.nics)
    return TopologyMatrix(labels, tuple(rows), nics, any(row[-2].endswith("?") for row in rows))


def matrix_lines(made: TopologyMatrix) -> list[str]:
    """The matrix as text, its header first; relations are centred."""
    rows = [(label, *made.rows[i][: len(made.heads)]) for i, label in enumerate(made.labels)]
    return table(rows, header=("", *made.heads), align="<" + "^" * len(made.labels))


def legend(made: TopologyMatrix) -> list[tuple[str, str]]:
    """The words that occur and what they mean, and what a question mark at a rank means."""
    lines = [(word, means) for word, means in LEGEND if word in made.words]
    if made.presumed:
        lines.append(("rank?", "presumed from its local rank: neither driver nor environment tells its GPU"))
    return lines
