"""Faults from NCCL RAS, which counts the operations that each rank has launched, not which ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...records import PgStatus
from .fault import Fault
from .operations import operation


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
