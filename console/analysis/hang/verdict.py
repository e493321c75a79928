"""What a judgement is: the form of it in reports, in records and on screens."""

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
    """Where a culprit stands: the innermost call of the job's own, else the innermost of all."""

    function: str
    file: str  # as the process knows it
    line: int  # 0: nobody knows
    source: str | None  # that line, where the node could read the file


class Culprit(msgspec.Struct, frozen=True):
    """A rank that holds the others. `node`, `pid` and `site` are None for one that nobody found."""

    rank: int | None
    node: str | None
    pid: int | None
    class_: FrameClass = msgspec.field(name="class")
    site: Site | None


class Coverage(msgspec.Struct, frozen=True):
    """What the judgement rests on."""

    ranks: int | None  # that the job has; None where nobody says
    captured: int  # ranks with a readable stack
    samples: int  # looks at the rank that was looked at least


class Verdict(msgspec.Struct, frozen=True):
    """One job, judged. `confidence` is that of the names; with state `undecided` there are none."""

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
