"""What counts alone tell: NCCL RAS knows how many operations each rank has launched, not which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...records import PgStatus
from .fault import Fault
from .operations import operation


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
