"""Device matrix as in `nvidia-smi topo -m`, with CPU and NUMA affinity, ranks and parallel groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analysis.topology.node import NodeTopology
from ..text.sanitize import printable
from ..text.table import table
from .snapshot import TopologySnapshot

#: Legend, nearest last, as in nvidia-smi.
LEGEND = (
    ("X", "the device itself"),
    ("SYS", "PCIe and the link between NUMA nodes (QPI, UPI, Infinity Fabric)"),
    ("NODE", "PCIe and the link between host bridges of one NUMA node"),
    ("PHB", "PCIe and a host bridge, mostly the CPU's"),
    ("PXB", "several PCIe bridges, but no host bridge"),
    ("PIX", "one PCIe bridge at most"),
    ("NV#", "# NVLinks, bonded"),
    ("?", "not reported"),
)


@dataclass(frozen=True)
class TopologyMatrix:
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
