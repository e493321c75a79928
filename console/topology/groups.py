"""Parallel groups of jobs (tensor, data, pipeline …) mapped to nodes and GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final

import msgspec

from ..analysis.collectives.align import JobKey, Membership, memberships
from ..analysis.collectives.communication import jobs_in
from ..analysis.topology.classes import labels_folded
from ..records import Collective, PgStatus, Rank
from ..text.format import plural
from ..text.nodeset_fold import fold, fold_ranks, natural
from ..text.sanitize import printable

if TYPE_CHECKING:
    from ..core.store import Store
    from .snapshot import TopologySnapshot

#: Collectives and group statuses of one capture, copied for use in any thread.
CapturedGroups = tuple[Sequence[Collective], Sequence[PgStatus]]
#: Text without a known group.
NONE_KNOWN: Final = "none known; run a capture to read them from the ranks' Flight Recorder or the NCCL log"
#: The group of all ranks, omitted because it is everywhere.
_EVERYBODY: Final = "default_pg"
#: Descriptions of groups without a description.
_UNDESCRIBED: Final = ("", "undefined")
#: Matrix words, nearest first; NVLink is nearer than all, unknown words are last.
_WORDS: Final = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "?")
#: Maximum groups of one kind listed individually.
MOST: Final = 32


class ParallelGroup(msgspec.Struct, frozen=True):
    """One process group; `kind` such as `tp`, `label` such as `tp 3`."""

    job: str
    kind: str
    label: str
    name: str
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool


def captured_of(store: Store) -> tuple[CapturedGroups, ...]:
    """Captures with collectives or groups, newest first."""
    captures = reversed(store.captures.values())
    return tuple(
        (list(capture.collectives), list(capture.groups))
        for capture in captures
        if capture.collectives or capture.groups
    )


def parallel_groups(captured: Iterable[CapturedGroups], ranks: Sequence[Rank]) -> tuple[ParallelGroup, ...]:
    """Groups of every job from the newest capture of its newest attempt, ordered by kind."""
    newest: dict[str, tuple[JobKey, CapturedGroups]] = {}
    wanted = {rank.job for rank in ranks if rank.status == "present"}
    for capture in captured:
        for job in reversed(jobs_in(*capture)):
            if job[0] not in newest or newest[job[0]][0][1] < job[1]:
                newest[job[0]] = job, capture
        if wanted and wanted <= newest.keys():
            break  # older captures could only add finished jobs
    groups: list[ParallelGroup] = []
    for name in sorted(newest, key=natural):
        job, capture = newest[name]
        groups += _named(name, memberships(*capture, job, ranks))
    return tuple(groups)


def _named(job: str, members: Sequence[Membership]) -> Iterator[ParallelGroup]:
    kinds: dict[str, list[Membership]] = {}
    for membership in members:
        kinds.setdefault(_kind(membership), []).append(membership)
    for kind in sorted(kinds, key=lambda kind: (kind == _EVERYBODY, natural(kind))):
        alike = sorted(kinds[kind], key=lambda membership: (membership.ranks, natural(membership.name)))
        for number, membership in enumerate(alike):
            own = membership.desc if membership.desc not in _UNDESCRIBED and membership.desc != kind else ""
            label = own or (f"{kind} {number}" if len(alike) > 1 else kind)
            yield ParallelGroup(
                job, kind, label, membership.name, membership.desc, membership.ranks, membership.is_whole
            )


def _kind(membership: Membership) -> str:
    """`dp` for `dp_17`; `group` without a description."""
    if membership.desc in _UNDESCRIBED:
        return "group"
    return re.sub(r"[\s_:.-]*\d+$", "", membership.desc) or membership.desc


# -- over the GPUs -----------------------------------------------------------------------------------------------------


class GroupPlacement:
    """Maps groups to the GPUs of their ranks."""

    def __init__(self, fleet: TopologySnapshot) -> None:
        self._fleet = fleet
        self.groups = fleet.groups
        self._where: dict[tuple[str, int], tuple[str, str]] = {}  # (job, rank): node and label of its GPU
        labels = {gpu.vertex: gpu.label for topology in fleet.nodes.values() for gpu in topology.gpus}
        for vertex, on in fleet.ranks.items():
            for job, rank in on.ranks:
                if vertex in labels:
                    self._where[job, rank] = vertex.node, labels[vertex]
        self._on: dict[tuple[str, str], list[ParallelGroup]] = {}
        for group in self.groups:
            for place in dict.fromkeys(self.places(group)):
                self._on.setdefault(place, []).append(group)

    def places(self, group: ParallelGroup) -> list[tuple[str, str]]:
        """(node, GPU label) of the members with a known GPU."""
        return [self._where[group.job, rank] for rank in group.ranks if (group.job, rank) in self._where]

    def on(self, node: str, label: str) -> Sequence[ParallelGroup]:
        """Groups of the ranks on one GPU."""
        return self._on.get((node, label), ())

    def text(self, nodes: Iterable[str], label: str) -> str:
        """`tp 0 · dp 3` for the groups on that GPU of these nodes; `tp ×64` for several of a kind."""
        groups = dict.fromkeys(group for node in nodes for group in self.on(node, label))
        kinds: dict[str, list[ParallelGroup]] = {}
        for group in groups:
            if group.kind != _EVERYBODY:
                kinds.setdefault(group.kind, []).append(group)
        return " · ".join(alike[0].label if len(alike) == 1 else f"{kind} ×{len(alike)}"
                          for kind, alike in kinds.items())  # fmt: skip

    def shared(self, node: str, label: str, other: str) -> list[ParallelGroup]:
        """Groups with ranks on both GPUs of a node, except the group of all ranks."""
        theirs = set(self.on(node, other))
        return [group for group in self.on(node, label) if group in theirs and group.kind != _EVERYBODY]

    def span(self, group: ParallelGroup) -> str:
        """Location: `node1 GPU0-7, NV18`, or `64 nodes node[001-064]`, with the ranks on unknown GPUs."""
        places = self.places(group)
        absent = len(group.ranks) - len(places)
        rest = f"; {absent} of {len(group.ranks)} on no known GPU" if absent else ""
        gpus: dict[str, list[str]] = {}
        for node, label in dict.fromkeys(places):
            gpus.setdefault(node, []).append(label)
        if not gpus:
            return "on no known GPU"
        if len(gpus) == 1:
            ((node, labels),) = gpus.items()
            word = self._farthest(node, labels)
            return f"{node} {labels_folded(sorted(labels, key=natural))}{f', {word}' if word else ''}{rest}"
        same = {tuple(sorted(labels, key=natural)) for labels in gpus.values()}
        each = f", {labels_folded(next(iter(same)))} of each" if len(same) == 1 else ""
        return f"{len(gpus)} nodes {fold(list(gpus))}{each}{rest}"

    def nodes(self, group: ParallelGroup) -> tuple[str, ...]:
        """Nodes of its GPUs."""
        return tuple(sorted({node for node, _ in self.places(group)}, key=natural))

    def relation(self, group: ParallelGroup) -> str | None:
        """Farthest relation between its GPUs (NV18, SYS) if all are on one node; else None."""
        places = dict.fromkeys(self.places(group))
        nodes = {node for node, _ in places}
        return self._farthest(nodes.pop(), [label for _, label in places]) or None if len(nodes) == 1 else None

    def _farthest(self, node: str, labels: Sequence[str]) -> str:
        topology = self._fleet.nodes[node]
        words = [topology.word(label, other) for label, other in combinations(labels, 2)]
        return max(words, key=_distance, default="")


def _distance(word: str) -> tuple[int, int]:
    """Sort key of a relation, by distance; fewer NVLinks are farther."""
    if word.startswith("NV"):
        count = word.removeprefix("NV")
        return 0, -int(count) if count.isdecimal() else 0
    return 1 + _WORDS.index(word) if word in _WORDS else len(_WORDS), 0


# -- in words ----------------------------------------------------------------------------------------------------------


def group_lines(fleet: TopologySnapshot, nodes: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """(label, text) per kind, then per group; with `nodes` only groups with ranks there."""
    group_placement = fleet.group_placement
    mine = set(nodes) if nodes is not None else None
    kinds: dict[tuple[str, str], list[ParallelGroup]] = {}
    for group in group_placement.groups:
        kinds.setdefault((group.job, group.kind), []).append(group)
    jobs = {job for job, _ in kinds}
    for (job, kind), alike in kinds.items():
        yield printable(f"{job}: {kind}" if len(jobs) > 1 else kind), _kind_text(group_placement, alike)
        here = [group for group in alike if mine is None or mine & set(group_placement.nodes(group))]
        for group in here[:MOST] if len(alike) > 1 else ():
            yield printable(f"  {group.label}"), printable(f"{_who(group)}  {group_placement.span(group)}")
        if len(here) > MOST:
            yield "", f"  … and {len(here) - MOST} more"


def _kind_text(group_placement: GroupPlacement, alike: Sequence[ParallelGroup]) -> str:
    """`64 groups of 8 ranks; within one node 60, over 2 nodes 4`."""
    if len(alike) == 1:
        return printable(
            f"1 group of {_ranks(len(alike[0].ranks))}, {_who(alike[0])}  {group_placement.span(alike[0])}"
        )
    sizes = sorted({len(group.ranks) for group in alike})
    size = f"{sizes[0]} to {sizes[-1]} ranks" if len(sizes) > 1 else _ranks(sizes[0])
    spans = Counter(len(group_placement.nodes(group)) for group in alike)
    where = [(f"over {count} nodes" if count > 1 else "within one node" if count else "on no known GPU", often)
             for count, often in sorted(spans.items())]  # fmt: skip
    spread = f"each {where[0][0]}" if len(where) == 1 else ", ".join(f"{often} {place}" for place, often in where)
    return f"{len(alike)} groups of {size}; {spread}"


def _ranks(count: int) -> str:
    return plural(count, "rank")


def _who(group: ParallelGroup) -> str:
    """`[0-7]`, with the group's own name if it differs, and `at least` if members may be missing."""
    more = "" if group.is_whole else " at least"
    name = f' "{group.name}"' if group.name and group.name != group.label else ""
    return f"[{fold_ranks(group.ranks)}]{more}{name}"


def unknown_lines(fleet: TopologySnapshot) -> Iterator[str]:
    """Jobs without known groups, and how to get them."""
    covered = {group.job for group in fleet.groups}
    jobs = sorted({job for on in fleet.ranks.values() for job, _ in on.ranks}, key=natural)
    lacking = [job for job in jobs if job not in covered]
    if not jobs and not covered:
        yield f"{NONE_KNOWN}; no ranks known either"
    elif lacking:
        yield NONE_KNOWN if len(lacking) == len(jobs) else printable(f"{', '.join(lacking)}: {NONE_KNOWN}")
