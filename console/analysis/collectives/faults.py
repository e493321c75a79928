"""What is wrong between the ranks of a group: somebody has not come, or they do different things at one number.

The sequence number decides who is behind, never how many they are. A number that is not yet everybody's is everyday
life of a job that moves: it is a fault once somebody has waited for it long enough, on the clock of its own node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...records import Confidence, PgStatus
from ..ranges import ranges
from .groups import NONE, Group, Member, Witness, kind_at
from .operations import dtypes, moved_numel, operation, shape_text

FaultKind = Literal["missing_rank", "op_mismatch", "shape_dtype_mismatch"]
#: A wait shorter than this is no fault: ranks of a job that moves are apart by as much, seconds.
LEAST_WAIT_S: Final = 5.0
#: Dumps that were written further apart than this are not of one instant, seconds.
ONE_INSTANT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Camp:
    """Ranks that did the same at the number where ranks differ."""

    what: str  # `all_reduce`, or its shape and type
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in one group.

    `ranks` are those it is about: who has not come, or the smaller camp; empty where it cannot be told (a tie, or a
    rank of which nothing is known). With `held` in it, a rank that has not come waits in another group itself.
    """

    kind: FaultKind
    witness: Witness
    group: str  # its name
    title: str  # as it is shown
    op: str
    seq: int | None
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]  # that have entered and wait
    unseen: tuple[int, ...]  # members that nothing is known of
    waited_s: float | None  # the longest of them; None where the source has no instants
    confidence: Confidence
    evidence: tuple[str, ...]  # each names its source, rank and field
    camps: tuple[Camp, ...] = ()
    held: tuple[tuple[int, str], ...] = ()  # (rank, title of the group it waits in)
    follows: bool = False  # all whom it is about wait themselves: the cause is elsewhere

    @property
    def text(self) -> str:
        """One sentence."""
        at = f"{self.op or 'operation'}{f' #{self.seq}' if self.seq is not None else ''} of group {self.title}"
        if self.camps:
            return f"ranks differ at {at}: " + ", ".join(f"[{ranges(one.ranks)}] {one.what}" for one in self.camps)
        waits = "waits" if len(self.waiting) == 1 else "wait"
        waited = f" for {self.waited_s:.0f} s" if self.waited_s is not None else ""
        who = f"which [{ranges(self.ranks)}] {'has' if len(self.ranks) == 1 else 'have'} not entered"
        if not self.ranks:
            who = "and who has not come is not known" + ("" if self.unseen else ": its members are not recorded")
        tail = f"; of [{ranges(self.unseen)}] nothing is known" if self.unseen else ""
        return f"[{ranges(self.waiting)}] {waits}{waited} in {at}, {who}{tail}"


def faults_of(groups: Iterable[Group], least_wait_s: float = LEAST_WAIT_S) -> list[Fault]:
    """Everything that is wrong in these groups, mismatches before absences; `waiting.ordered` says what follows."""
    found = []
    for group in groups:
        found += _mismatches(group)
        absence = _unlaunched(group) if group.witness == "NCCL log" else _absence(group, least_wait_s)
        if absence is not None:
            found.append(absence)
    return found


# -- who has not come --------------------------------------------------------------------------------------------------


def _absence(group: Group, least_wait_s: float) -> Fault | None:
    """The lowest number that somebody waits in and somebody else has not entered."""
    waits = {rank: member.waits_in() for rank, member in group.members.items()}
    numbers = sorted({seq for found in waits.values() for seq in found})
    for seq in numbers:
        waiting = [rank for rank, found in waits.items() if seq in found]
        behind = tuple(rank for rank, member in sorted(group.members.items()) if member.last < seq)
        if not behind and (group.is_whole and not group.unseen):
            continue
        waited_s = _waited_s([group.members[rank] for rank in waiting], seq)
        if waited_s is not None and waited_s < least_wait_s:
            continue
        return Fault(
            kind="missing_rank", witness=group.witness, group=group.name, title=group.title,
            op=_op(group.members[waiting[0]], seq), seq=seq, ranks=behind, waiting=tuple(waiting),
            unseen=group.unseen, waited_s=waited_s, confidence=_confidence(group, behind, waited_s),
            evidence=_absence_evidence(group, seq, waiting, behind),
        )  # fmt: skip
    return None


def _waited_s(members: Sequence[Member], seq: int) -> float | None:
    """How long the first of them had waited when it was read: each on its own clock, so clocks need not agree."""
    waits = [
        (member.read_at - entry.time_created_ns) / 1e9
        for member in members
        for entry in member.entered[seq]
        if member.read_at is not None and entry.time_created_ns is not None and entry.retired is False
    ]
    return max(0.0, *waits) if len(waits) > 1 else max(0.0, waits[0]) if waits else None


def _confidence(group: Group, behind: tuple[int, ...], waited_s: float | None) -> Confidence:
    if not behind:
        return "none"
    instants = [member.read_at for member in group.members.values() if member.read_at is not None]
    apart_s = (max(instants) - min(instants)) / 1e9 if instants else 0.0
    everybody = group.is_whole and not group.unseen
    if waited_s is None:  # files without an instant: they are mostly written when a collective has timed out
        return "likely" if everybody else "possible"
    if apart_s > max(ONE_INSTANT_S, waited_s):
        return "possible"
    return "certain" if everybody else "likely"


def _absence_evidence(group: Group, seq: int, waiting: Sequence[int], behind: Sequence[int]) -> tuple[str, ...]:
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
        lines.append(f"pg_status group {group.title}: no record of [{ranges(group.unseen)}]")
    return tuple(lines)


def _op(member: Member, seq: int) -> str:
    kinds = kind_at(member, seq)
    return kinds[0] if len(set(kinds)) == 1 else "+".join(dict.fromkeys(kinds))


def _unlaunched(group: Group) -> Fault | None:
    """Who is behind by a log of launches: a moment's difference, or a log that is written late, looks the same."""
    newest = max((member.last for member in group.members.values()), default=NONE)
    behind = tuple(rank for rank, member in sorted(group.members.items()) if member.last < newest)
    if not behind:
        return None
    ahead = [rank for rank in sorted(group.members) if rank not in behind]
    return Fault(
        kind="missing_rank", witness=group.witness, group=group.name, title=group.title,
        op=_op(group.members[ahead[0]], newest), seq=newest, ranks=behind, waiting=tuple(ahead), unseen=group.unseen,
        waited_s=None, confidence="possible", evidence=_absence_evidence(group, newest, ahead, behind),
    )  # fmt: skip


# -- who does something else -------------------------------------------------------------------------------------------


def _mismatches(group: Group) -> list[Fault]:
    """The first number at which members differ, unless they have gone on after it: then it was none."""
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


def _mismatch_at(group: Group, seq: int, ranks: Sequence[int]) -> Fault | None:
    kinds: dict[str, list[int]] = defaultdict(list)
    shapes: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        member = group.members[rank]
        kinds[_op(member, seq)].append(rank)
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
    """What must be the same on all ranks, as text; None where nothing must, or nobody says."""
    parts = []
    for entry in member.entered[seq]:
        numel = moved_numel(entry)
        if numel is None and not dtypes(entry):
            return None
        elements = f"{numel} elements" if numel is not None else ""
        parts.append(f"{elements} {'/'.join(dtypes(entry))}".strip())
    return ", ".join(parts)


def _split(group: Group, seq: int, kind: FaultKind, sides: dict[str, list[int]], op: str) -> Fault:
    """Two or more camps. The smaller may be named, where most of the whole group are in another; a tie names nobody."""
    camps = sorted((Camp(what, tuple(ranks)) for what, ranks in sides.items()), key=lambda one: -len(one.ranks))
    voters = sum(len(one.ranks) for one in camps) + len(group.unseen)
    is_tie = len(camps[0].ranks) * 2 <= voters or not group.is_whole
    odd = () if is_tie else tuple(sorted(rank for one in camps[1:] for rank in one.ranks))
    everybody = sorted(rank for one in camps for rank in one.ranks)
    waiting = tuple(rank for rank in everybody if seq in group.members[rank].waits_in())
    return Fault(
        kind=kind, witness=group.witness, group=group.name, title=group.title, op=op, seq=seq, ranks=odd,
        waiting=waiting, unseen=group.unseen, waited_s=_waited_s([group.members[rank] for rank in waiting], seq),
        confidence="none" if is_tie else "likely", camps=tuple(camps),
        evidence=tuple(
            f"collective {group.members[one.ranks[0]].path} group {group.title} seq {seq}"
            f" {_first(group.members[one.ranks[0]], seq)}, as [{ranges(one.ranks)}]"
            for one in camps[:4]
        ),
    )  # fmt: skip


def _first(member: Member, seq: int) -> str:
    entry = member.entered[seq][0]
    return f"{entry.profiling_name} {shape_text(entry)}"


def _uneven(group: Group, seq: int, ranks: Sequence[int]) -> Fault | None:
    """An all_to_all may be uneven, but what all hand in is what all get: else somebody is wrong, nobody knows who."""
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
    everybody = tuple(sorted(ranks))
    waiting = tuple(rank for rank in everybody if seq in group.members[rank].waits_in())
    line = f"collective group {group.title} seq {seq} all_to_all: {given} elements are sent and {made} expected"
    return Fault(
        kind="shape_dtype_mismatch", witness=group.witness, group=group.name, title=group.title, op="all_to_all",
        seq=seq, ranks=(), waiting=waiting, unseen=(), waited_s=None, confidence="none", evidence=(line,),
        camps=(Camp(f"{given} elements sent, {made} expected", everybody),),
    )  # fmt: skip


# -- counts only -------------------------------------------------------------------------------------------------------


def count_faults(statuses: Sequence[PgStatus]) -> list[Fault]:
    """What RAS tells: who does not answer it, and whose counts of launched operations are behind.

    Launches are counted on the CPU, a moment's difference is everyday life and RAS has no instants: never more than
    `possible` for a count. The lowest count is behind, also where most ranks have it.
    """
    groups: dict[str, list[PgStatus]] = defaultdict(list)
    for status in statuses:
        if status.source == "ras" and status.status == "ok" and status.process_group:
            groups[status.process_group[0]].append(status)
    found = []
    for name in sorted(groups):
        found += _unanswered(name, groups[name])
        found += _uncounted(name, groups[name])
    return found


def _unanswered(name: str, lines: Sequence[PgStatus]) -> list[Fault]:
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


def _uncounted(name: str, lines: Sequence[PgStatus]) -> list[Fault]:
    found = []
    for op in sorted({op for line in lines for op in line.op_counts}):
        counts = {_who(line): (line.op_counts[op], line) for line in lines if op in line.op_counts}
        most = max(count for count, _ in counts.values())
        behind = {who: (count, line) for who, (count, line) in counts.items() if count < most}
        if not behind:
            continue
        ahead = [line for count, line in counts.values() if count == most]
        found.append(Fault(
            kind="missing_rank", witness="NCCL RAS", group=name, title=name,
            op=operation("nccl:" + op).kind, seq=most, ranks=_numbers(line for _, line in behind.values()),
            waiting=_numbers(ahead), unseen=(), waited_s=None, confidence="possible",
            evidence=tuple(
                f"pg_status ras group {name} {who} op_counts.{op} {count}, others {most}"
                for who, (count, _) in sorted(behind.items())[:8]
            ),
        ))  # fmt: skip
    return found


def _who(line: PgStatus) -> str:
    if line.rank is not None:
        return f"rank {line.rank}"
    place = f" (pid {line.pid} on {line.host})" if line.pid is not None else ""
    return f"number {line.group_rank} of the group{place}"


def _numbers(lines: Iterable[PgStatus]) -> tuple[int, ...]:
    return tuple(sorted({line.rank for line in lines if line.rank is not None}))
