"""What a judgement is made of. All of it comes from records, so that it can be made again from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...records import Rank, Stack
from ..jobs import JobSummary
from ..stacks.frame_models import Model

#: A process for ever: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Still:
    """What was watched before and between captures: the process has neither run nor woken up for so long."""

    until_s: float  # CLOCK_REALTIME of the node at the last of those looks
    for_s: float


@dataclass(frozen=True, slots=True)
class Absence:
    """Ranks that have not entered a collective that others of their group wait in."""

    group: str  # name or description of the process group
    op: str  # all_reduce, …
    seq: int | None  # collective_seq_id
    ranks: tuple[int, ...]  # global ranks that are not there
    entered: tuple[int, ...]  # those that wait


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of one group that do different things at the same sequence number."""

    group: str
    seq: int | None
    camps: tuple[tuple[str, tuple[int, ...]], ...]  # (what: the operation, or its shape or type; global ranks)


@dataclass(frozen=True, slots=True)
class CollectiveEvidence:
    """What one source that counts collectives (flight recorder, NCCL RAS, NCCL logs) says of a job.

    `absences` are in the order of the groups' dependence where the source knows it: the first is the wavefront, and the
    others follow from it. `complete` are ranks that the source has spoken for.
    """

    source: str  # as it is shown: "flight recorder"
    complete: tuple[int, ...]
    absences: tuple[Absence, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one job, at its newest attempt."""

    job: JobSummary
    ranks: tuple[Rank, ...]  # current records of its processes, those that exited too
    stacks: tuple[Stack, ...]  # of all captures that are kept, with their frames
    still: Mapping[ProcessKey, Still]
    nodes: tuple[str, ...]  # reachable ones, with or without ranks
    models: tuple[Model, ...] = ()
    min_frozen_s: float = 5.0
    collectives: tuple[CollectiveEvidence, ...] = ()
