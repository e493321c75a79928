"""Why a rank is slow: profiles of all ranks, sampled over the fleet, and the comparison of the one that stands out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from ..analysis.stacks.profiles import RankProfile, profiles_of, straggler_of
from ..core.control import Captures
from ..core.store import Store
from .rank_gpus import rank_gpus

#: Seconds of one block of samples (`BLOCK_S` of the agent's profiles), and by default of all.
BLOCK_S: Final = 2
FOR_S: Final = 10.0
#: Both sides of a comparison by name: what is compared, and with what.
Sides = dict[str, Sequence[RankProfile]]


async def sample_ranks(control: Captures, store: Store, for_s: float = FOR_S) -> tuple[list[RankProfile], list[str]]:
    """The profiles of all ranks, with the clock of their GPU, and a sentence for each node or rank without one."""
    replies = await control.profile(math.ceil(for_s / BLOCK_S))
    clocks = {key: now.gpu.sm_clock_mhz for key, _, now in rank_gpus(store) if now.gpu is not None}
    profiles: list[RankProfile] = []
    problems = []
    for reply in replies:
        if reply.failure is not None:
            problems.append(f"{reply.node}: {reply.failure.text}")
            continue
        try:
            profiles += profiles_of(reply.value, reply.node)
        except msgspec.ValidationError as error:
            problems.append(f"{reply.node}: invalid profile: {error}")
    problems += [f"rank {profile.rank} on {profile.node}: {profile.problem}" for profile in profiles if profile.problem]
    sampled = [
        _with_clock(profile, clocks.get((profile.job, profile.attempt, profile.rank)))
        for profile in profiles
        if profile.blocks
    ]
    return sampled, problems


def sides_of(
    profiles: Sequence[RankProfile], rank: int | None = None, earlier: Sequence[RankProfile] = ()
) -> Sides | None:
    """Both sides of the comparison of one job; None without a rank that stands out. Raises LookupError for `rank`."""
    if earlier:
        return {"this run": profiles, "the earlier run": earlier}
    chosen = straggler_of(profiles) if rank is None else next((own for own in profiles if own.rank == rank), None)
    if chosen is None and rank is not None:
        raise LookupError(f"rank {rank} was not sampled")
    if chosen is None:
        return None
    return {f"rank {chosen.rank}": [chosen], "its peers": [other for other in profiles if other is not chosen]}


def _with_clock(profile: RankProfile, sm_clock_mhz: float | None) -> RankProfile:
    return msgspec.structs.replace(profile, counters={**profile.counters, "sm_clock_mhz": sm_clock_mhz})
