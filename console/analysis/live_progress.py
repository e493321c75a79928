"""The progress of each rank as it shows without a capture, by the cheapest source that shows any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ..text.format import plural, seconds, size, step_time
from .hang.verdict import ProcessKey
from .pace import Pulse
from .places import PlaceFacts
from .rank_progress import ProgressState, RankProgress, Source

#: Seconds for which a read of the Flight Recorder counts as current.
READ_LASTS_S: Final = 60.0
#: A curve that was high within this many of its periods, or seconds, goes on.
PERIODS: Final = 3.0
PAUSE_S: Final = 10.0


class CollectiveReads(msgspec.Struct, frozen=True):
    """The sequence numbers of one rank's process groups in the newest two reads of its Flight Recorder."""

    gained: int  # collectives between the two
    apart_s: float
    age_s: float  # of the newer one


class Signs(msgspec.Struct, frozen=True):
    """What is known of one rank at an instant. Durations are in seconds; None is unknown."""

    key: ProcessKey
    at: int  # CLOCK_REALTIME of the node, ns
    step: int | None = None
    step_age_s: float | None = None  # since its watched step was seen to change
    place: PlaceFacts | None = None  # of its newest light stack sample
    sampled_s: float = 0.0  # age of that sample
    path_s: float = 0.0  # in the same calls for at least this long
    samples: int = 0  # consecutive samples in the same calls
    places: int = 0  # samples so far
    moved_bytes: int | None = None  # by its data connections since the previous sample; 0: they are silent
    transfers: bool | None = None  # its GPU exchanges data with others
    collectives: CollectiveReads | None = None  # None: not read twice
    pulse: Pulse | None = None  # the steps of its job in the traffic of its node, or in the power of a GPU there


def live_progress(ranks: Sequence[Signs], least_s: float) -> dict[ProcessKey, RankProgress]:
    """The progress of the ranks of one job, all of them different processes.

    `least_s` seconds without a sign of progress are too many. `stalled` is never among it: that takes a verdict.
    """
    advancing = {rank.key: _advance(rank, least_s) for rank in ranks}
    going_on = sum(sign is not None for sign in advancing.values())
    return {
        rank.key: _progress(rank, sign, _absence(rank, least_s), going_on > (sign is not None))
        for rank, sign in zip(ranks, advancing.values(), strict=True)
    }


def _advance(rank: Signs, least_s: float) -> tuple[Source, str] | None:
    """The source that shows that a rank goes on, and how; None where none does."""
    if rank.step_age_s is not None:
        if rank.step_age_s >= least_s:
            return None  # its step stands still, whatever else moves
        return "steps", f"step {rank.step} since {seconds(rank.step_age_s)}"
    reads = rank.collectives if rank.collectives is not None and rank.collectives.age_s <= READ_LASTS_S else None
    if reads is not None and reads.gained:
        return "collectives", f"{plural(reads.gained, 'collective')} in {seconds(reads.apart_s)}, between two reads"
    if reads is not None and reads.apart_s >= least_s:
        return None  # no collective meanwhile: its bytes are those of keepalives, or of others
    if rank.moved_bytes:
        return "connections", f"its connections moved {size(rank.moved_bytes)} in the last interval"
    if rank.transfers:
        return "gpu", "its GPU exchanges data with others"
    pulse = rank.pulse
    if pulse is not None and pulse.age_s < max(PERIODS * pulse.period_s, PAUSE_S) and rank.path_s < least_s:
        return pulse.source, f"{pulse.curve} is high every {step_time(pulse.period_s)}, last {seconds(pulse.age_s)} ago"
    if rank.place is not None and rank.samples == 1 and rank.places > 1 and rank.moved_bytes is None:
        return "stacks", f"at {rank.place.text}, elsewhere in the sample before"
    return None


def _absence(rank: Signs, least_s: float) -> tuple[Source, str] | None:
    """The source that shows that a rank does not go on, and how; None where none does."""
    reads, pulse = rank.collectives, rank.pulse
    if rank.step_age_s is not None and rank.step_age_s >= least_s:
        return "steps", f"step {rank.step} for {seconds(rank.step_age_s)}"
    if reads is not None and reads.age_s <= READ_LASTS_S and not reads.gained and reads.apart_s >= least_s:
        return "collectives", f"no collective in {seconds(reads.apart_s)}, between two reads"
    if pulse is not None and pulse.age_s >= max(least_s, PERIODS * pulse.period_s):
        return (
            pulse.source,
            f"{pulse.curve} is low for {seconds(pulse.age_s)}, was high every {step_time(pulse.period_s)}",
        )
    return None


def _progress(
    rank: Signs, advance: tuple[Source, str] | None, absence: tuple[Source, str] | None, others_go_on: bool
) -> RankProgress:
    place = rank.place
    if place is not None and place.activity is not None:
        return _entry(rank, place.activity, "stacks", _where(rank, place))
    if advance is not None:
        return _entry(rank, "progressing", *advance)
    if place is None:
        return _entry(rank, "unknown", *(absence or ("none", "no step is watched, and no stack was sampled")))
    if place.waits and others_go_on and rank.samples > 1:
        return _entry(rank, "waiting", "stacks", f"{_where(rank, place)}, while others go on")
    if absence is not None:
        return _entry(rank, "unknown", absence[0], f"{absence[1]}; {_where(rank, place)}")
    return _entry(rank, "unknown", "stacks", _where(rank, place))


def _where(rank: Signs, place: PlaceFacts) -> str:
    lasting = f" for at least {seconds(rank.path_s)}, {rank.samples} samples" if rank.samples > 1 else ""
    cls = f" ({place.cls})" if place.cls is not None else ""
    return f"at {place.text}{cls}{lasting}"


def _entry(rank: Signs, state: ProgressState, source: Source, evidence: str) -> RankProgress:
    return RankProgress(state, evidence, rank.at, slept=False, source=source)


def prevailing(verdict: RankProgress | None, live: RankProgress) -> RankProgress:
    """The progress that counts: a verdict that a rank stands still, unless steps or data have moved since."""
    if verdict is None:
        return live
    if verdict.state not in ("waiting", "stalled"):
        return verdict if live.state == "unknown" else live
    goes_on = live.state == "progressing" and live.source in ("steps", "connections", "gpu")
    return live if goes_on and not verdict.slept and live.at > verdict.at else verdict
