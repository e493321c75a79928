"""Faults of a process group: missing ranks, mismatched operations or shapes, launch counts of NCCL RAS.

The sequence number decides which ranks are late, never their count. Ranks of a running job differ by a number for a
moment: it is a fault once a rank has waited long enough, on the clock of its own node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from ...records import Confidence, PgStatus
from ...text.format import seconds
from ...text.nodeset_fold import fold_numbers
from .align import NONE, Member, ProcessGroup, Witness, kind_at
from .operations import dtypes, moved_numel, operation, shape_text

FaultKind = Literal["missing_rank", "op_mismatch", "shape_dtype_mismatch"]
#: Seconds. Dumps written further apart than this do not describe one instant.
ONE_INSTANT_S: Final = 30.0


class MismatchSide(msgspec.Struct, frozen=True):
    """Ranks that did the same at the sequence number where ranks differ."""

    what: str  # `all_reduce`, or its shape and dtype
    ranks: tuple[int, ...]


class Fault(msgspec.Struct, frozen=True):
    """One fault in one group.

    `ranks` are the missing ranks or the minority; empty where undecided (a tie, or a rank without data). `held` are
    missing ranks that wait in another group themselves.
    """

    kind: FaultKind
    witness: Witness
    group: str  # name of the process group
    title: str  # display name
    op: str
    seq: int | None
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]  # ranks that have entered and wait
    unseen: tuple[int, ...]  # members without data
    waited_s: float | None  # the longest wait; None where the source has no timestamps
    confidence: Confidence
    evidence: tuple[str, ...]  # each names its source, rank and field
    sides: tuple[MismatchSide, ...] = ()
    held: tuple[tuple[int, str], ...] = ()  # (rank, title of the group it waits in)
    follows: bool = False  # all missing ranks wait in other groups: the cause is elsewhere

    @property
    def text(self) -> str:
        """One sentence."""
        place = f"{self.op or 'operation'}{f' #{self.seq}' if self.seq is not None else ''} of group {self.title}"
        if self.sides:
            return f"ranks differ at {place}: " + ", ".join(
                f"[{fold_numbers(side.ranks)}] {side.what}" for side in self.sides
            )
        waits = "waits" if len(self.waiting) == 1 else "wait"
        waited = f" for {seconds(self.waited_s)}" if self.waited_s is not None else ""
        who = f"which [{fold_numbers(self.ranks)}] {'has' if len(self.ranks) == 1 else 'have'} not entered"
        if not self.ranks:
            who = "missing ranks unknown" + ("" if self.unseen else ": group members are not recorded")
        tail = f"; no data on [{fold_numbers(self.unseen)}]" if self.unseen else ""
        return f"[{fold_numbers(self.waiting)}] {waits}{waited} in {place}, {who}{tail}"


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


def mismatches(group: ProcessGroup) -> list[Fault]:
    """The first sequence number at which members differ; ignored if all have completed it."""
    seqs: dict[int, list[int]] = defaultdict(list)
    for rank, member in group.members.items():
        for seq in member.entered:
            seqs[seq].append(rank)
    passed = min((member.completed for member in group.members.values()), default=NONE)
    for seq in sorted(seqs):
        if len(seqs[seq]) < 2 or seq < passed:
            continue
        fault = _mismatch_at(group, seq, seqs[seq])
        if fault is not None:
            return [fault]
    return []


def _mismatch_at(group: ProcessGroup, seq: int, ranks: Sequence[int]) -> Fault | None:
    kinds: dict[str, list[int]] = defaultdict(list)
    shapes: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        member = group.members[rank]
        kinds[op_at(member, seq)].append(rank)
        shape = _comparable(member, seq)
        if shape is not None:
            shapes[shape].append(rank)
    if len(kinds) > 1:
        return _split(group, seq, "op_mismatch", kinds, "+".join(sorted(kinds)))
    if len(shapes) > 1:
        return _split(group, seq, "shape_dtype_mismatch", shapes, next(iter(kinds)))
    if next(iter(kinds)) == "all_to_all":
        return _uneven(group, seq, ranks)
    return None


def _comparable(member: Member, seq: int) -> str | None:
    """What must be equal on all ranks, as text; None where nothing must be equal or it is unknown."""
    parts = []
    for entry in member.entered[seq]:
        numel = moved_numel(entry)
        if numel is None and not dtypes(entry):
            return None
        elements = f"{numel} elements" if numel is not None else ""
        parts.append(f"{elements} {'/'.join(dtypes(entry))}".strip())
    return ", ".join(parts)


def _split(group: ProcessGroup, seq: int, kind: FaultKind, ranks_by_what: dict[str, list[int]], op: str) -> Fault:
    """Two or more sides. The minority is named if most of the whole group are on another side; a tie names no rank."""
    made = (MismatchSide(what, tuple(ranks)) for what, ranks in ranks_by_what.items())
    sides = sorted(made, key=lambda side: -len(side.ranks))
    voters = sum(len(side.ranks) for side in sides) + len(group.unseen)
    is_tie = len(sides[0].ranks) * 2 <= voters or not group.is_whole
    odd = () if is_tie else tuple(sorted(rank for side in sides[1:] for rank in side.ranks))
    members = sorted(rank for side in sides for rank in side.ranks)
    waiting = tuple(rank for rank in members if seq in group.members[rank].waits_in())
    return Fault(
        kind=kind, witness=group.witness, group=group.name, title=group.title, op=op, seq=seq, ranks=odd,
        waiting=waiting, unseen=group.unseen, waited_s=waited_s_of([group.members[rank] for rank in waiting], seq),
        confidence="none" if is_tie else "likely", sides=tuple(sides),
        evidence=tuple(
            f"collective {group.members[side.ranks[0]].path} group {group.title} seq {seq}"
            f" {_first(group.members[side.ranks[0]], seq)}, as [{fold_numbers(side.ranks)}]"
            for side in sides[:4]
        ),
    )  # fmt: skip


def _first(member: Member, seq: int) -> str:
    entry = member.entered[seq][0]
    return f"{entry.profiling_name} {shape_text(entry)}"


def _uneven(group: ProcessGroup, seq: int, ranks: Sequence[int]) -> Fault | None:
    """An all_to_all whose total input and output differ: a rank is wrong, and it is unknown which."""
    if not group.is_whole or group.unseen or len(ranks) != len(group.ranks):
        return None
    given = made = 0
    for rank in ranks:
        for entry in group.members[rank].entered[seq]:
            if operation(entry.profiling_name).kind != "all_to_all" or None in (entry.input_numel, entry.output_numel):
                return None
            given += entry.input_numel or 0
            made += entry.output_numel or 0
    if given == made:
        return None
    members = tuple(sorted(ranks))
    waiting = tuple(rank for rank in members if seq in group.members[rank].waits_in())
    line = f"collective group {group.title} seq {seq} all_to_all: {given} elements are sent and {made} expected"
    return Fault(
        kind="shape_dtype_mismatch", witness=group.witness, group=group.name, title=group.title, op="all_to_all",
        seq=seq, ranks=(), waiting=waiting, unseen=(), waited_s=None, confidence="none", evidence=(line,),
        sides=(MismatchSide(f"{given} elements sent, {made} expected", members),),
    )  # fmt: skip


def count_faults(statuses: Sequence[PgStatus]) -> list[Fault]:
    """Ranks that do not respond to RAS, and ranks whose launch counts are behind.

    Launches are counted on the CPU and RAS has no timestamps, so a count is never more than `possible`. The lowest
    count is behind, even if most ranks have it.
    """
    groups: dict[str, list[PgStatus]] = defaultdict(list)
    for status in statuses:
        if status.source == "ras" and status.status == "ok" and status.process_group:
            groups[status.process_group[0]].append(status)
    faults = []
    for name in sorted(groups):
        faults += _unresponsive(name, groups[name])
        faults += _count_behind(name, groups[name])
    return faults


def _unresponsive(name: str, lines: Sequence[PgStatus]) -> list[Fault]:
    silent = {_who(line): line for line in lines if line.group_state in ("considered_dead", "unresponsive")}
    if not silent:
        return []
    dead = [line for line in silent.values() if line.group_state == "considered_dead"]
    return [Fault(
        kind="missing_rank", witness="NCCL RAS", group=name, title=name, op="", seq=None,
        ranks=_numbers(silent.values()), waiting=_numbers(line for line in lines if line.group_state == "running"),
        unseen=(), waited_s=None, confidence="likely" if dead else "possible",
        evidence=tuple(f"pg_status ras group {name} {who} {line.group_state}" for who, line in sorted(silent.items())),
    )]  # fmt: skip


def _count_behind(name: str, lines: Sequence[PgStatus]) -> list[Fault]:
    faults = []
    for op in sorted({op for line in lines for op in line.op_counts}):
        counts = {_who(line): (line.op_counts[op], line) for line in lines if op in line.op_counts}
        most = max(count for count, _ in counts.values())
        behind = {who: (count, line) for who, (count, line) in counts.items() if count < most}
        if not behind:
            continue
        ahead = [line for count, line in counts.values() if count == most]
        faults.append(Fault(
            kind="missing_rank", witness="NCCL RAS", group=name, title=name,
            op=operation("nccl:" + op).kind, seq=most, ranks=_numbers(line for _, line in behind.values()),
            waiting=_numbers(ahead), unseen=(), waited_s=None, confidence="possible",
            evidence=tuple(
                f"pg_status ras group {name} {who} op_counts.{op} {count}, others {most}"
                for who, (count, _) in sorted(behind.items())[:8]
            ),
        ))  # fmt: skip
    return faults


def _who(line: PgStatus) -> str:
    if line.rank is not None:
        return f"rank {line.rank}"
    place = f" (pid {line.pid} on {line.host})" if line.pid is not None else ""
    return f"group rank {line.group_rank}{place}"


def _numbers(lines: Iterable[PgStatus]) -> tuple[int, ...]:
    return tuple(sorted({line.rank for line in lines if line.rank is not None}))
