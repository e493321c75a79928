"""The parallel groups of jobs (tensor, data, pipeline …) over nodes and GPUs: which GPUs they join, and by what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from ..analysis.collectives.align import JobKey, Membership, memberships
from ..analysis.topology.classes import labels_folded
from ..records import Collective, PgStatus, Rank
from ..text.nodeset_fold import fold, fold_ranks, natural
from ..text.sanitize import printable

if TYPE_CHECKING:
    from ..core.store import Store
    from .snapshot import TopologySnapshot

#: What is said where no group is known.
NONE_KNOWN: Final = "none is known: a capture reads them from the ranks' Flight Recorder or from NCCL's log"
#: The group of all ranks is in every line, and says nothing there.
_EVERYBODY: Final = "default_pg"
#: What stands for a group that nobody has described.
_UNDESCRIBED: Final = ("", "undefined")
#: The words of the matrix, nearest first; NVLink goes before all of them, and what nobody knows comes last.
_WORDS: Final = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "?")
#: So many groups of one kind are named on their own.
MOST: Final = 32


@dataclass(frozen=True, slots=True)
class ParallelGroup:
    """One process group. `kind` is what its like have in common (`tp`), `label` how it is called here (`tp 3`)."""

    job: str
    kind: str
    label: str
    name: str
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool


@dataclass(frozen=True)
class CapturedGroups:
    """What communication libraries said in one capture: copies of lists, to be read in any thread."""

    collectives: Sequence[Collective]
    statuses: Sequence[PgStatus]


def captured_of(store: Store) -> tuple[CapturedGroups, ...]:
    """The captures in which any of them said anything, the newest first."""
    captures = reversed(store.captures.values())
    return tuple(
        CapturedGroups(list(capture.collectives), list(capture.groups))
        for capture in captures
        if capture.collectives or capture.groups
    )


def parallel_groups(captured: Iterable[CapturedGroups], ranks: Sequence[Rank]) -> tuple[ParallelGroup, ...]:
    """The groups of every job, as the newest capture of its newest attempt tells them; those of one kind together."""
    found: dict[str, tuple[JobKey, CapturedGroups]] = {}
    wanted = {rank.job for rank in ranks if rank.status == "present"}
    for capture in captured:
        said: tuple[Sequence[Collective | PgStatus], ...] = (capture.statuses, capture.collectives)
        for job in sorted({(record.job, record.attempt) for records in said for record in records}, reverse=True):
            if job[0] not in found or found[job[0]][0][1] < job[1]:
                found[job[0]] = job, capture
        if wanted and wanted <= found.keys():
            break  # in older ones only jobs that are over could be found
    groups: list[ParallelGroup] = []
    for name in sorted(found, key=natural):
        job, capture = found[name]
        groups += _named(name, memberships(capture.collectives, capture.statuses, job, ranks))
    return tuple(groups)


def _named(job: str, found: Sequence[Membership]) -> Iterator[ParallelGroup]:
    kinds: dict[str, list[Membership]] = {}
    for one in found:
        kinds.setdefault(_kind(one), []).append(one)
    for kind in sorted(kinds, key=lambda kind: (kind == _EVERYBODY, natural(kind))):
        alike = sorted(kinds[kind], key=lambda one: (one.ranks, natural(one.name)))
        for number, one in enumerate(alike):
            own = one.desc if one.desc not in _UNDESCRIBED and one.desc != kind else ""
            label = own or (f"{kind} {number}" if len(alike) > 1 else kind)
            yield ParallelGroup(job, kind, label, one.name, one.desc, one.ranks, one.is_whole)


def _kind(one: Membership) -> str:
    """`dp` for `dp_17`; groups that nobody has described are of one kind."""
    if one.desc in _UNDESCRIBED:
        return "group"
    return re.sub(r"[\s_:.-]*\d+$", "", one.desc) or one.desc


# -- over the GPUs -----------------------------------------------------------------------------------------------------


class GroupPlacement:
    """Groups over the GPUs on which their ranks are."""

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
        """(node, GPU) of the members that are on a known one."""
        return [self._where[group.job, rank] for rank in group.ranks if (group.job, rank) in self._where]

    def on(self, node: str, label: str) -> Sequence[ParallelGroup]:
        """The groups of the ranks on one GPU."""
        return self._on.get((node, label), ())

    def text(self, nodes: Iterable[str], label: str) -> str:
        """`tp 0 · dp 3` for the groups on that GPU of these nodes; `tp ×64` where they are many."""
        found = dict.fromkeys(group for node in nodes for group in self.on(node, label))
        kinds: dict[str, list[ParallelGroup]] = {}
        for group in found:
            if group.kind != _EVERYBODY:
                kinds.setdefault(group.kind, []).append(group)
        return " · ".join(alike[0].label if len(alike) == 1 else f"{kind} ×{len(alike)}"
                          for kind, alike in kinds.items())  # fmt: skip

    def shared(self, node: str, one: str, other: str) -> list[ParallelGroup]:
        """The groups that have a rank on either of two GPUs of a node, but for that of all ranks."""
        theirs = set(self.on(node, other))
        return [group for group in self.on(node, one) if group in theirs and group.kind != _EVERYBODY]

    def span(self, group: ParallelGroup) -> str:
        """Where it lies: `node1 GPU0-7, NV18`, or `64 nodes node[001-064]`; what is not known is said."""
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
        """The nodes that it lies on."""
        return tuple(sorted({node for node, _ in self.places(group)}, key=natural))

    def relation(self, group: ParallelGroup) -> str | None:
        """The farthest relation of any two of its GPUs where they are on one node: NV18, SYS; else None."""
        places = dict.fromkeys(self.places(group))
        nodes = {node for node, _ in places}
        return self._farthest(nodes.pop(), [label for _, label in places]) or None if len(nodes) == 1 else None

    def _farthest(self, node: str, labels: Sequence[str]) -> str:
        topology = self._fleet.nodes[node]
        words = [topology.word(one, other) for one, other in combinations(labels, 2)]
        return max(words, key=_distance, default="")


def _distance(word: str) -> tuple[int, int]:
    """Farther is more; of NVLinks the fewer are the farther."""
    if word.startswith("NV"):
        count = word.removeprefix("NV")
        return 0, -int(count) if count.isdecimal() else 0
    return 1 + _WORDS.index(word) if word in _WORDS else len(_WORDS), 0


# -- in words ----------------------------------------------------------------------------------------------------------


def group_lines(fleet: TopologySnapshot, nodes: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """(what, in words): a line a kind, then one a group of it; with `nodes` only groups that have a rank there."""
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
    told = f"each {where[0][0]}" if len(where) == 1 else ", ".join(f"{often} {place}" for place, often in where)
    return f"{len(alike)} groups of {size}; {told}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def _who(group: ParallelGroup) -> str:
    """`[0-7]`, with the group's own name where it has another one, and a word where members may be missing."""
    more = "" if group.is_whole else " at least"
    name = f' "{group.name}"' if group.name and group.name != group.label else ""
    return f"[{fold_ranks(group.ranks)}]{more}{name}"


def unknown_lines(fleet: TopologySnapshot) -> Iterator[str]:
    """What is not known of the groups, and how to come to know it."""
    known = {group.job for group in fleet.groups}
    jobs = sorted({job for on in fleet.ranks.values() for job, _ in on.ranks}, key=natural)
    lacking = [job for job in jobs if job not in known]
    if not jobs and not known:
        yield f"{NONE_KNOWN}; no rank is known here either"
    elif lacking:
        yield NONE_KNOWN if len(lacking) == len(jobs) else printable(f"{', '.join(lacking)}: {NONE_KNOWN}")
