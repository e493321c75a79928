"""Ranks missing from an operation that others wait in.

The sequence number decides which ranks are late, never their count. Ranks of a running job differ by a number for a
moment: it is a fault once a rank has waited long enough, on the clock of its own node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...records import Confidence
from ...text.nodeset_fold import fold_numbers
from .align import NONE, Member, ProcessGroup, kind_at
from .fault import Fault
from .operations import shape_text

#: Seconds. Dumps written further apart than this do not describe one instant.
ONE_INSTANT_S: Final = 30.0


def absence(group: ProcessGroup, least_wait_s: float) -> Fault | None:
    """The fault at the lowest sequence number that one rank waits in and another has not entered; None without one."""
    waits = {rank: member.waits_in() for rank, member in group.members.items()}
    numbers = sorted({seq for waiting_in in waits.values() for seq in waiting_in})
    for seq in numbers:
        waiting = [rank for rank, waiting_in in waits.items() if seq in waiting_in]
        behind = tuple(rank for rank, member in sorted(group.members.items()) if member.last < seq)
        if not behind and (group.is_whole and not group.unseen):
            continue
        waited_s = waited_s_of([group.members[rank] for rank in waiting], seq)
        if waited_s is not None and waited_s < least_wait_s:
            continue
        return Fault(
            kind="missing_rank", witness=group.witness, group=group.name, title=group.title,
            op=op_at(group.members[waiting[0]], seq), seq=seq, ranks=behind, waiting=tuple(waiting),
            unseen=group.unseen, waited_s=waited_s, confidence=_confidence(group, behind, waited_s),
            evidence=_absence_evidence(group, seq, waiting, behind),
        )  # fmt: skip
    return None


def waited_s_of(members: Sequence[Member], seq: int) -> float | None:
    """The longest wait when the ranks were read, s, each on its own clock; None without timestamps."""
    waits = [
        (member.read_at - entry.time_created_ns) / 1e9
        for member in members
        for entry in member.entered[seq]
        if member.read_at is not None and entry.time_created_ns is not None and entry.retired is False
    ]
    return max(0.0, *waits) if len(waits) > 1 else max(0.0, waits[0]) if waits else None


def _confidence(group: ProcessGroup, behind: tuple[int, ...], waited_s: float | None) -> Confidence:
    if not behind:
        return "none"
    instants = [member.read_at for member in group.members.values() if member.read_at is not None]
    apart_s = (max(instants) - min(instants)) / 1e9 if instants else 0.0
    is_complete = group.is_whole and not group.unseen
    if waited_s is None:  # files without timestamps are usually written after a collective timeout
        return "likely" if is_complete else "possible"
    if apart_s > max(ONE_INSTANT_S, waited_s):
        return "possible"
    return "certain" if is_complete else "likely"


def _absence_evidence(group: ProcessGroup, seq: int, waiting: Sequence[int], behind: Sequence[int]) -> tuple[str, ...]:
    lines = []
    for rank in waiting[:4]:
        member = group.members[rank]
        entry = member.entered[seq][0]
        lines.append(
            f"collective {member.path} group {group.title} seq {seq} {entry.profiling_name} {shape_text(entry)}"
            f" retired {str(entry.retired).lower()}"
        )
    for rank in behind[:4]:
        member = group.members[rank]
        last = member.entered.get(member.last, ())
        what = f" {last[-1].profiling_name}" if last else ""
        number = "none" if member.last == NONE else str(member.last)
        lines.append(f"pg_status {member.path} group {group.title} last_enqueued_collective {number}{what}")
    if group.unseen:
        lines.append(f"pg_status group {group.title}: no record of [{fold_numbers(group.unseen)}]")
    return tuple(lines)


def op_at(member: Member, seq: int) -> str:
    """The kind of operation of a rank at a sequence number; `a+b` where they were coalesced."""
    kinds = kind_at(member, seq)
    return kinds[0] if len(set(kinds)) == 1 else "+".join(dict.fromkeys(kinds))


def unlaunched(group: ProcessGroup) -> Fault | None:
    """Ranks behind by a launch log: only possible, because a late log and a momentary difference look the same."""
    newest = max((member.last for member in group.members.values()), default=NONE)
    behind = tuple(rank for rank, member in sorted(group.members.items()) if member.last < newest)
    if not behind:
        return None
    ahead = [rank for rank in sorted(group.members) if rank not in behind]
    return Fault(
        kind="missing_rank", witness=group.witness, group=group.name, title=group.title,
        op=op_at(group.members[ahead[0]], newest), seq=newest, ranks=behind, waiting=tuple(ahead), unseen=group.unseen,
        waited_s=None, confidence="possible", evidence=_absence_evidence(group, newest, ahead, behind),
    )  # fmt: skip
