"""Rows in the context of a frame, and groups of rows under headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ...core.store import NodeNow
from ...present.spans import Span, state_word
from ...text import format
from ...text.cells import clean
from ...text.format import plural
from ...text.nodeset_fold import natural
from .heat_map import GpuIndex
from .job_ranks import JobsSummary
from .node_summary import FleetSummary
from .rows import RowState, count_spans

R = TypeVar("R")


@dataclass
class RowContext:
    """Nodes, GPUs and jobs of one frame. Unknown nodes have no tags, jobs or class."""

    fleet: FleetSummary
    nodes: Mapping[str, NodeNow]
    gpus: GpuIndex
    jobs: JobsSummary

    def tags(self, node: str | None) -> tuple[str, ...]:
        """Tags of a node in hosts.toml."""
        now = self.nodes.get(node or "")
        return tuple(clean(tag) for tag in now.state.tags) if now and now.state else ()

    def all_tags(self, node: str | None) -> str | None:
        """All tags of a node as one text, for grouping."""
        return ", ".join(self.tags(node)) or None

    def is_simulated(self, node: str | None) -> bool:
        """Whether data of the node is simulated."""
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
        """Hardware of a node as text, equal for interchangeable nodes; None until it is reported."""
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
    """A row with its context, as filters and groupings read it."""

    row: R
    context: RowContext


class Grouping(msgspec.Struct, Generic[R], frozen=True):
    """Something to group rows by; `value` is that of a row, None if unknown. Without `value` there are no groups.

    `is_state`: the values are states, which headers then do not count.
    """

    name: str
    value: Callable[[RowInContext[R]], str | None] | None
    order: Callable[[str], Any] = natural
    is_state: bool = False


#: No groups.
NONE: Final[Grouping[Any]] = Grouping("none", None)


class GroupHeader(msgspec.Struct, frozen=True):
    """The line above a group. `part` separates groups of equal value: their job."""

    by: str
    value: str | None
    banner: tuple[Span, ...]
    part: str = ""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Identity of the group."""
        return (self.part, self.by, self.value)

    @property
    def version(self) -> tuple[Span, ...]:
        """The text."""
        return self.banner

    @property
    def note(self) -> None:
        """Text in place of values: none."""

    @property
    def node(self) -> str | None:
        """The node of a group by node."""
        return self.value if self.by == "node" else None


def grouped(
    rows: Iterable[R], by: Grouping[R], context: RowContext, noun: str, row_state: Callable[[R], RowState | None], *,
    part: str = "", title: str = "",
) -> list[GroupHeader | R]:  # fmt: skip
    """The rows under group headers, in their order within a group; unknown values last.

    `title` names the part that these rows are of, if there are several.
    """
    if by.value is None:
        return list(rows)
    groups: dict[str | None, list[R]] = {}
    for row in rows:
        groups.setdefault(by.value(RowInContext(row, context)), []).append(row)
    values = sorted((value for value in groups if value is not None), key=by.order)
    listed: list[GroupHeader | R] = []
    for value in [*values, *(None,) * (None in groups)]:
        listed.append(GroupHeader(by.name, value, _spans(by, value, groups[value], noun, row_state, title), part))
        listed += groups[value]
    return listed


def _spans(
    by: Grouping[R], value: str | None, rows: Sequence[R], noun: str, row_state: Callable[[R], RowState | None],
    title: str,
) -> tuple[Span, ...]:  # fmt: skip
    name = state_word(value) if by.is_state and value else value
    label = clean(name) if name else f"{by.name} unknown"
    named = (Span(f"  {title}", "text"),) if title else ()
    states = () if by.is_state else count_spans(Counter(state for row in rows if (state := row_state(row))))
    count, _, nouns = plural(len(rows), noun).partition(" ")
    return (
        Span(" ▾ ", "muted"), Span(label, "strong"), *named, Span("  "), Span(count, "text"),
        Span(f" {nouns}   ", "muted"), *states,
    )  # fmt: skip


def group_under(rows: Sequence[GroupHeader | R], chosen: GroupHeader | R | None) -> list[R]:
    """The chosen row, or all rows of the chosen header."""
    if chosen is None or not isinstance(chosen, GroupHeader):
        return [chosen] if chosen is not None else []
    members: list[R] = []
    index = next(
        (index for index, row in enumerate(rows) if isinstance(row, GroupHeader) and row.key == chosen.key), len(rows)
    )
    for row in rows[index + 1 :]:
        if isinstance(row, GroupHeader):
            break
        members.append(row)
    return members
