"""Input and output of a diagnosis: the evidence on one job, from records only, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ...records import Confidence, Connection, Place, Rank, Stack
from ..jobs import JobRanks
from ..stacks.frame_models import FrameClass, Model
from .gpu_activity import GpuFigures

#: A process, unique over time: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]
State = Literal["moving", "slow", "hung", "undecided", "no_ranks"]
Kind = Literal[
    "rank_dead", "rank_absent", "rank_missing", "rank_stopped", "rank_blocked", "collective_mismatch", "p2p_cycle",
    "wait_cycle", "straggler", "external", "none",
]  # fmt: skip


class Still(msgspec.Struct, frozen=True):
    """Between captures: the process has neither run nor woken up for `for_s` seconds."""

    until_s: float  # CLOCK_REALTIME of the node at the last of those samples
    for_s: float


class Absence(msgspec.Struct, frozen=True):
    """Ranks that have not entered a collective that others of their group wait in."""

    group: str  # name or description of the process group
    op: str  # all_reduce, …
    seq: int | None  # collective_seq_id
    ranks: tuple[int, ...]  # global ranks that have not entered it
    entered: tuple[int, ...]  # ranks that wait in it


class Mismatch(msgspec.Struct, frozen=True):
    """Ranks of one group that do different things at the same sequence number."""

    group: str
    seq: int | None
    sides: tuple[tuple[str, tuple[int, ...]], ...]  # (what: the operation, or its shape or type; global ranks)


class Circle(msgspec.Struct, frozen=True):
    """Ranks that wait for each other over several groups, and those of them that issued operations out of order."""

    ranks: tuple[int, ...]  # in the order in which each waits for the next
    odd: tuple[int, ...]  # empty where the record does not show it
    waits: tuple[str, ...]  # `rank 4 waits for rank 5 in all_reduce #7 of group dp (3)`


class CollectiveEvidence(msgspec.Struct, frozen=True):
    """The evidence of one source that counts collectives (Flight Recorder, NCCL RAS, NCCL logs) on a job.

    `absences` are ordered by dependence of the groups where known: the first is the cause of the others. `complete` are
    the ranks that the source covers.
    """

    source: str  # display name: "flight recorder"
    complete: tuple[int, ...]
    absences: tuple[Absence, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    circles: tuple[Circle, ...] = ()


class Evidence(msgspec.Struct, frozen=True):
    """All data on one job, at its newest attempt."""

    job: JobRanks
    ranks: tuple[Rank, ...]  # current records of its processes, including exited ones
    stacks: tuple[Stack, ...]  # of all retained captures, with their frames
    still: Mapping[ProcessKey, Still]
    nodes: tuple[str, ...]  # reachable ones, with or without ranks
    models: tuple[Model, ...] = ()
    min_frozen_s: float = 5.0
    collectives: tuple[CollectiveEvidence, ...] = ()
    connections: tuple[Connection, ...] = ()  # of all retained captures
    gpus: Mapping[int, GpuFigures] = {}  # by rank, where each uses one GPU
    places: Mapping[ProcessKey, Place] = {}  # of main threads, in the newest light samples between captures
    longest_pause_s: float = 0.0  # the longest pause from which a rank of the job recovered while it was monitored


class Site(msgspec.Struct, frozen=True):
    """Where a culprit is: the innermost call in the job's own code, else the innermost call."""

    function: str
    file: str  # path as the process has it
    line: int  # 0: unknown
    source: str | None  # text of that line, where the node could read the file


class Culprit(msgspec.Struct, frozen=True):
    """A rank that blocks the others. `node`, `pid` and `site` are None where it was not found."""

    rank: int | None
    node: str | None
    pid: int | None
    class_: FrameClass = msgspec.field(name="class")
    site: Site | None


class Coverage(msgspec.Struct, frozen=True):
    """How much of the job the verdict is based on."""

    ranks: int | None  # world size; None where unknown
    captured: int  # ranks with a readable stack
    samples: int  # of the rank with the fewest


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on one job. `confidence` is that of the culprits; with state `undecided` there are none."""

    job: str
    state: State
    kind: Kind
    culprits: tuple[Culprit, ...]
    victims: tuple[int, ...]  # ranks that wait
    confidence: Confidence
    summary: str  # one sentence
    evidence: tuple[str, ...]  # each names its source
    next_step: str
    coverage: Coverage
    stalled: bool = False  # nothing of the job moves, but no culprit is known
    idle: bool = False  # its ranks wait for requests
