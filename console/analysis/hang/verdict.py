"""The verdict: its form in reports, records and views."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import Confidence
from ..stacks.frame_models import FrameClass

State = Literal["moving", "slow", "hung", "undecided", "no_ranks"]
Kind = Literal[
    "rank_dead", "rank_absent", "rank_missing", "rank_stopped", "rank_blocked", "collective_mismatch", "p2p_cycle",
    "straggler", "external", "none",
]  # fmt: skip


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
