"""The order in which ranks issue collectives: which rank of a circular wait departs from its own pattern.

A training step repeats the same operations in the same groups. In a deadlock over several groups every rank waits in an
operation that it was bound to reach sooner or later; the cause is the rank whose order differs from its earlier steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...records import Collective
from .operations import operation
from .period import period_of

#: Newest operations of a rank that are compared.
MOST: Final = 192
#: Operations of a group from which on older ones may have been dropped by the agent.
KEPT: Final = 64
#: Repetitions of a pattern before an operation that departs from it.
LEAST_REPEATS: Final = 3
#: Ranks outside of the circle that are compared.
MOST_OTHERS: Final = 64

#: What one operation is, so that a repetition is recognised: group, kind of operation, elements.
Token = tuple[str, str, int | None]


def odd_ranks(cycle: Sequence[int], collectives: Iterable[Collective]) -> tuple[int, ...]:
    """The ranks of a circular wait whose newest operations depart from their own pattern; empty where unknown.

    Named only where all other ranks, also outside of the circle, follow theirs: else the departure may be intended.
    """
    sequences = _sequences(collectives)
    others = [rank for rank in sorted(sequences) if rank not in cycle][:MOST_OTHERS]
    departures = {rank: departs(sequences.get(rank, ())) for rank in (*cycle, *others)}
    if any(departures.get(rank) is None for rank in cycle):
        return ()
    if any(departed for rank, departed in departures.items() if rank not in cycle):
        return ()
    odd = tuple(rank for rank in sorted(cycle) if departures[rank])
    return odd if len(odd) < len(cycle) else ()


def departs(tokens: Sequence[Token]) -> bool | None:
    """Whether a sequence repeats a pattern at first and then departs from it; None where it shows no pattern."""
    tokens = tokens[-MOST:]
    if period_of(tokens, LEAST_REPEATS) is not None:
        return False
    for cut in range(1, len(tokens) // LEAST_REPEATS + 1):
        period = period_of(tokens[:-cut], LEAST_REPEATS)
        if period is not None:
            begin = len(tokens) - cut
            return cut <= period + 1 and tokens[begin] != tokens[begin - period]
    return None


def _sequences(collectives: Iterable[Collective]) -> dict[int, list[Token]]:
    """The operations of each rank in the order in which it issued them, without sends and receives.

    Begins where the record of every group is complete: the newest operations of each group are kept.
    """
    issued: dict[int, dict[int, Token]] = defaultdict(dict)
    for entry in collectives:
        if entry.rank is not None and entry.record_id is not None and entry.process_group and not entry.is_p2p:
            token = (entry.process_group[0], operation(entry.profiling_name).kind, entry.input_numel)
            issued[entry.rank][entry.record_id] = token
    return {rank: _complete(tokens) for rank, tokens in issued.items()}


def _complete(tokens: Mapping[int, Token]) -> list[Token]:
    oldest: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for number, (group, _, _) in tokens.items():
        counts[group] += 1
        oldest[group] = min(number, oldest.get(group, number))
    begin = max((oldest[group] for group, count in counts.items() if count >= KEPT), default=0)
    return [tokens[number] for number in sorted(tokens) if number >= begin]
