"""Who is in which process group, and nothing else: what a topology is drawn with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...records import Collective, PgStatus, Rank
from .align import WITNESSES, GroupKey, who_is_in, with_ranks

#: A job and its attempt.
JobKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Membership:
    """One process group of a job: `ranks` are its members as far as anybody says, `is_whole` whether those are all."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool


def memberships(
    collectives: Iterable[Collective], statuses: Iterable[PgStatus], job: JobKey, ranks: Sequence[Rank] = ()
) -> tuple[Membership, ...]:
    """The groups of a job in one capture, by name; of one witness, for each names groups in its own way.

    The Flight Recorder goes before NCCL's log: it has PyTorch's names. `ranks` are the current records of processes.
    """
    own = [rank for rank in ranks if (rank.job, rank.attempt) == job]
    world_size = max((one.world_size for one in own if one.world_size), default=None)
    said: dict[GroupKey, set[int]] = defaultdict(set)
    seen: dict[GroupKey, set[int]] = defaultdict(set)
    sizes: dict[GroupKey, set[int]] = defaultdict(set)
    descs: dict[GroupKey, str] = {}
    lines = with_ranks([status for status in statuses if (status.job, status.attempt) == job], own)
    entries = [collective for collective in collectives if (collective.job, collective.attempt) == job]
    spoken: list[Collective | PgStatus] = [*lines, *entries]
    for one in spoken:
        if one.process_group is None or one.rank is None or one.source in ("ras", "inspector"):
            continue
        key = (WITNESSES[one.source], one.process_group[0])
        descs[key] = descs.get(key) or one.process_group[1]
        seen[key].add(one.rank)
        said[key].update((one.ranks or ()) if isinstance(one, PgStatus) else ())
        if one.group_size:
            sizes[key].add(one.group_size)
    first = min((witness for witness, _ in descs), key=list(WITNESSES.values()).index, default=None)
    return tuple(
        Membership(key[1], descs[key], *who_is_in(said[key], seen[key], sizes[key], descs[key], world_size))
        for key in sorted(descs)
        if key[0] == first
    )
