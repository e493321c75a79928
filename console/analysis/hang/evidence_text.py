"""The evidence lines of a verdict: each names the record it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...text.rank_ranges import ranges
from . import wording
from .job_view import JobView
from .rank_state import RankState
from .workers import guilty_worker

_NAMED: Final = 8


def evidence_of(scene: JobView, culprits: Sequence[RankState]) -> tuple[str, ...]:
    """What the stacks, the kernel and the counters of collectives say; culprits first."""
    lines: list[str] = []
    for culprit in list(culprits)[:_NAMED]:
        lines += _of_one(scene, culprit)
    lines.append(_stacks(scene))
    lines += _of_the_others(scene, culprits)
    for source in scene.evidence.collectives:
        for absence in source.absences:
            number = "" if absence.seq is None else f" #{absence.seq}"
            lines.append(
                f"{source.source}: {absence.op}{number} of group {absence.group}: entered [{ranges(absence.entered)}], "
                f"missing [{ranges(absence.ranks)}]"
            )
        for mismatch in source.mismatches:
            camps = "; ".join(f"[{ranges(members)}] {what}" for what, members in mismatch.camps)
            lines.append(f"{source.source}: group {mismatch.group}: {camps}")
    return tuple(lines)


def _of_one(scene: JobView, one: RankState) -> list[str]:
    thread = one.thread or "MainThread"
    kernel = ", ".join(
        f"{name} {value}" for name, value in (
            ("state", one.last.proc_state), ("wchan", one.last.wchan), ("syscall", one.last.syscall),
        ) if value
    )  # fmt: skip
    where = wording.place(one.site) or f"no stack ({one.status})"
    who = f"stack rank {one.rank} {one.node} pid {one.pid} {thread}"
    lines = [f"{who}: {one.cls} in {where}" + (f"; {kernel}" if kernel else "")]
    if one.site is not None and one.site.source:
        lines.append(f"source {one.site.file}:{one.site.line}: {one.site.source}")
    worker = guilty_worker(scene, one)
    if worker is not None:
        where = wording.place(worker.site) or f"no stack ({worker.status})"
        state = f"; state {worker.last.proc_state}" if worker.last.proc_state else ""
        lines.append(f"stack {worker.role} of rank {one.rank} pid {worker.pid}: {worker.cls} in {where}{state}")
    return lines


def _stacks(scene: JobView) -> str:
    captured = {one.rank for one in scene.captured}
    same = {one.rank for one in scene.captured if one.frozen_s > 0 and one.frozen_s >= one.watched_s}
    world = scene.evidence.job.world_size
    return (
        f"stacks {len(captured)}/{world if world is not None else '–'} ranks, {len(same)} unchanged over "
        f"{wording.counted(scene.samples, 'sample')} in {wording.seconds(scene.watched_s)}"
    )


def _of_the_others(scene: JobView, culprits: Sequence[RankState]) -> list[str]:
    """Where those who wait stand."""
    places = Counter[tuple[str, str, str]]()
    ranks: dict[tuple[str, str, str], set[int]] = {}
    named = set(culprits)
    for one in (*scene.waiting, *scene.opaque):
        if one in named or one.rank is None:
            continue
        key = (one.cls, one.call, wording.place(one.caller))
        places[key] += 1
        ranks.setdefault(key, set()).add(one.rank)
    return [
        f"stack ranks [{ranges(ranks[key])}]: {key[0]} in {key[1]}" + (f" from {key[2]}" if key[2] else "")
        for key in sorted(places, key=lambda place: (-places[place], place))[:_NAMED]
    ]  # fmt: skip
