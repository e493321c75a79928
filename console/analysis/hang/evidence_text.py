"""The evidence lines of a verdict; each names the record it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...text.format import plural
from ...text.nodeset_fold import fold_numbers
from . import wording
from .job_view import JobView
from .rank_state import RankState

#: Culprits, and places of waiting ranks, that get a line.
_NAMED: Final = 8


def evidence_of(view: JobView, culprits: Sequence[RankState]) -> tuple[str, ...]:
    """Evidence from stacks, kernel state and collective counters; culprits first."""
    lines: list[str] = []
    for culprit in list(culprits)[:_NAMED]:
        lines += _culprit_lines(view, culprit)
    lines.append(_stacks_line(view))
    lines += _waiting_lines(view, culprits)
    for source in view.evidence.collectives:
        for absence in source.absences:
            number = "" if absence.seq is None else f" #{absence.seq}"
            lines.append(
                f"{source.source}: {absence.op}{number} of group {absence.group}: "
                f"entered [{fold_numbers(absence.entered)}], missing [{fold_numbers(absence.ranks)}]"
            )
        for mismatch in source.mismatches:
            sides = "; ".join(f"[{fold_numbers(members)}] {what}" for what, members in mismatch.sides)
            lines.append(f"{source.source}: group {mismatch.group}: {sides}")
    return tuple(lines)


def _culprit_lines(view: JobView, state: RankState) -> list[str]:
    last = state.last
    kernel_state = (("state", last.proc_state), ("wchan", last.wchan), ("syscall", last.syscall))
    kernel = ", ".join(f"{name} {value}" for name, value in kernel_state if value)
    where = wording.place(state.site) or f"no stack ({state.status})"
    who = f"stack rank {state.rank} {state.node} pid {state.pid} {state.thread or 'MainThread'}"
    lines = [f"{who}: {state.cls} in {where}" + (f"; {kernel}" if kernel else "")]
    if state.site is not None and state.site.source:
        lines.append(f"source {state.site.file}:{state.site.line}: {state.site.source}")
    worker = view.blocking_worker(state)
    if worker is not None:
        where = wording.place(worker.site) or f"no stack ({worker.status})"
        proc_state = f"; state {worker.last.proc_state}" if worker.last.proc_state else ""
        lines.append(f"stack {worker.role} of rank {state.rank} pid {worker.pid}: {worker.cls} in {where}{proc_state}")
    return lines


def _stacks_line(view: JobView) -> str:
    captured = {state.rank for state in view.captured}
    same = {state.rank for state in view.captured if state.frozen_s > 0 and state.frozen_s >= state.watched_s}
    world = view.evidence.job.world_size
    return (
        f"stacks {len(captured)}/{world if world is not None else '–'} ranks, {len(same)} unchanged over "
        f"{plural(view.samples, 'sample')} in {wording.seconds(view.watched_s)}"
    )


def _waiting_lines(view: JobView, culprits: Sequence[RankState]) -> list[str]:
    """Where the waiting ranks are, the most frequent places first."""
    counts = Counter[tuple[str, str, str]]()
    ranks: dict[tuple[str, str, str], set[int]] = {}
    named = set(culprits)
    for state in (*view.waiting, *view.opaque):
        if state in named or state.rank is None:
            continue
        key = (state.cls, state.call, wording.place(state.caller))
        counts[key] += 1
        ranks.setdefault(key, set()).add(state.rank)
    return [
        f"stack ranks [{fold_numbers(ranks[key])}]: {key[0]} in {key[1]}" + (f" from {key[2]}" if key[2] else "")
        for key in sorted(counts, key=lambda place: (-counts[place], place))[:_NAMED]
    ]
