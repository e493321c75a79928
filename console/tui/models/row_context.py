"""What is around a row at one frame: its node, GPUs, tags. Filters and groups look at a row together with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from ...core.store import NodeNow
from ...text import format
from ...text.cells import clean
from .heat_map import GpuIndex
from .job_ranks import JobsSummary
from .node_summary import FleetSummary

R = TypeVar("R")


@dataclass
class RowContext:
    """What is known of nodes, GPUs and jobs at one frame. A node that nobody knows has no tags, no jobs, no class."""

    fleet: FleetSummary
    nodes: Mapping[str, NodeNow]
    gpus: GpuIndex
    jobs: JobsSummary

    def tags(self, node: str | None) -> tuple[str, ...]:
        """What hosts.toml calls that node."""
        now = self.nodes.get(node or "")
        return tuple(clean(tag) for tag in now.state.tags) if now and now.state else ()

    def all_tags(self, node: str | None) -> str | None:
        """All its tags as one text: a node stands in one group only."""
        return ", ".join(self.tags(node)) or None

    def is_simulated(self, node: str | None) -> bool:
        summary = self.fleet.by_name.get(node or "")
        return bool(summary and summary.simulated)

    @cached_property
    def jobs_of(self) -> Mapping[str, tuple[str, ...]]:
        """The jobs with a rank on each node."""
        by_node: dict[str, set[str]] = {}
        for job in self.jobs.jobs:
            for row in job.rows:
                if row.rank is not None and row.state != "exited":
                    by_node.setdefault(row.rank.node, set()).add(clean(row.job))
        return {node: tuple(sorted(names)) for node, names in by_node.items()}

    def class_of(self, node: str | None) -> str | None:
        """What that node is built of: nodes of one class are interchangeable. None until it has told."""
        if node not in self._classes:
            self._classes[node] = self._class_of(node)
        return self._classes[node]

    @cached_property
    def _classes(self) -> dict[str | None, str | None]:
        return {}

    def _class_of(self, node: str | None) -> str | None:
        now = self.nodes.get(node or "")
        if now is None or now.node is None:
            return None
        record = now.node
        names = Counter(clean(gpu.info.name or "GPU") for gpu in self.gpus.of(now.name) if gpu.info is not None)
        cards = [f"{count}× {name}" for name, count in sorted(names.items())]
        cpus = [f"{record.cpus} CPUs"] if record.cpus is not None else []
        memory = [format.size(record.mem_total_bytes)] if record.mem_total_bytes is not None else []
        return ", ".join([*cards, *cpus, *memory, clean(record.arch)])


class RowInContext(NamedTuple, Generic[R]):
    """A row and what is around it: what a filter and a group look at."""

    row: R
    context: RowContext
