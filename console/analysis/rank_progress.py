"""The progress of each rank, apart from the state of its process; here as the verdict on its job shows it.

A process whose main thread stands still may use CPU time all the while: a watchdog thread, a heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from .hang.diagnosis import Judgement
from .hang.rank_state import RankState
from .hang.verdict import ProcessKey
from .hang.wording import doing
from .places import ACTIVITIES
from .stacks.frame_models import FrameClass

#: `waiting` is for other ranks; `stalled` ranks make no progress and block others, or what they wait for is unknown.
ProgressState = Literal[
    "progressing", "waiting", "stalled", "compiling", "checkpointing", "evaluating", "starting", "unknown"
]
#: What a statement on progress comes from: a watched step, sequence numbers of the Flight Recorder, the rank's TCP
#: connections, its GPU's traffic or power, its node's ports, the traffic of one rank of its job, light stack samples, a
#: verdict on a capture.
Source = Literal["none", "steps", "collectives", "connections", "gpu", "nic", "traffic", "stacks", "verdict"]
#: Activities that have a state of their own while a rank makes progress in them.
_BUSY: Final[Mapping[FrameClass, ProgressState]] = {**ACTIVITIES}


def shown_state(process_state: str, progress: ProgressState | None) -> str:
    """The progress in place of the state of a process, where that is only whether it used CPU time."""
    is_shown = progress not in (None, "unknown") and process_state in ("moving", "idle", "unknown")
    return progress if is_shown and progress is not None else process_state


class RankProgress(msgspec.Struct, frozen=True):
    """The progress of one process."""

    state: ProgressState
    evidence: str  # `sleeps in train.py:30 step; hung (rank_missing)`
    at: int  # CLOCK_REALTIME of the node, ns, when it was sampled last
    slept: bool  # its main thread did not run while it was sampled
    source: Source = "verdict"


def progress_of(judgement: Judgement) -> dict[ProcessKey, RankProgress]:
    """The progress of the ranks of one job; without those that its verdict says nothing about."""
    verdict = judgement.verdict
    culprits = {culprit.rank for culprit in verdict.culprits}
    victims = frozenset(verdict.victims)
    reason = verdict.state if verdict.kind == "none" else f"{verdict.state} ({verdict.kind})"
    progress = {}
    for rank in judgement.view.states:
        state = _state(judgement, rank, rank.rank in culprits, rank.rank in victims)
        if state is not None:
            sampled_ns = rank.last.looked or rank.last.t
            slept = rank.frozen_s > 0 and not rank.runs
            progress[rank.key] = RankProgress(state, f"{doing(rank)}; verdict: {reason}", sampled_ns, slept)
    return progress


def _state(judgement: Judgement, rank: RankState, is_culprit: bool, is_victim: bool) -> ProgressState | None:
    verdict = judgement.verdict
    if verdict.state == "moving" or (verdict.kind == "straggler" and is_culprit):
        return _BUSY.get(rank.cls, "progressing") if rank.samples else None
    if verdict.stalled:
        return "stalled"
    if verdict.state not in ("hung", "slow"):
        return None
    if is_culprit:
        return "stalled" if verdict.state == "hung" else _BUSY.get(rank.cls, "progressing")
    if is_victim:
        return "waiting" if verdict.culprits or verdict.state == "slow" else "stalled"
    return _BUSY.get(rank.cls, "progressing") if verdict.state == "slow" and rank.samples else None
