"""Ranks that differ from the rest of their group at the same sequence number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...text.nodeset_fold import fold_numbers
from .align import NONE, Member, ProcessGroup
from .fault import Fault, FaultKind, MismatchSide
from .missing import op_at, waited_s_of
from .operations import dtypes, moved_numel, operation, shape_text


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
