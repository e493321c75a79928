"""The input of a diagnosis. All of it comes from records, so that a recording gives the same verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...records import Rank, Stack
from ..jobs import JobRanks
from ..stacks.frame_models import Model

#: A process, unique over time: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Still:
    """Between captures: the process has neither run nor woken up for `for_s` seconds."""

    until_s: float  # CLOCK_REALTIME of the node at the last of those samples
    for_s: float


@dataclass(frozen=True, slots=True)
class Absence:
    """Ranks that have not entered a collective that others of their group wait in."""

    group: str  # name or description of the process group
    op: str  # all_reduce, …
    seq: int | None  # collective_seq_id
    ranks: tuple[int, ...]  # global ranks that have not entered it
    entered: tuple[int, ...]  # ranks that wait in it


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of one group that do different things at the same sequence number."""

    group: str
    seq: int | None
    sides: tuple[tuple[str, tuple[int, ...]], ...]  # (what: the operation, or its shape or type; global ranks)


@dataclass(frozen=True, slots=True)
class CollectiveEvidence:
    """The evidence of one source that counts collectives (Flight Recorder, NCCL RAS, NCCL logs) on a job.

    `absences` are ordered by dependence of the groups where known: the first is the cause of the others. `complete` are
    the ranks that the source covers.
    """

    source: str  # display name: "flight recorder"
    complete: tuple[int, ...]
    absences: tuple[Absence, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All data on one job, at its newest attempt."""

    job: JobRanks
    ranks: tuple[Rank, ...]  # current records of its processes, including exited ones
    stacks: tuple[Stack, ...]  # of all retained captures, with their frames
    still: Mapping[ProcessKey, Still]
    nodes: tuple[str, ...]  # reachable ones, with or without ranks
    models: tuple[Model, ...] = ()
    min_frozen_s: float = 5.0
    collectives: tuple[CollectiveEvidence, ...] = ()
