"""The Hang view as text: verdicts, ranks of a branch, threads of a rank, comparison of captures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from ....analysis.hang.wait_for import target_words
from ....analysis.stacks.async_tasks import main_first, task_text
from ....analysis.stacks.fold import Fold, StackGroup, StackStep
from ....monitor.crash import Crash
from ....present import verdict as present
from ....present.crash import crash_lines
from ....present.spans import GLYPHS, Line, Span, cut, plain, state_word, wrapped
from ....present.stacks import place_of
from ....records import Local, Stack, StackFrame
from ....text import format
from ....text.cells import clean, fit
from ....text.documents import redacted
from ....text.nodeset_fold import fold_numbers
from ....text.secrets import value_without_secrets, without_secrets
from ...derived import JobDiagnosis
from ...models.job_ranks import RankListRow

_ORDER: Final = tuple(present.VERDICT_STATUS)


def worst_first(jobs: Sequence[JobDiagnosis]) -> list[JobDiagnosis]:
    """Hung jobs first."""
    return sorted(jobs, key=lambda job: (_ORDER.index(job.judgement.verdict.state), job.job))


def verdict_lines(jobs: Sequence[JobDiagnosis], width: int) -> tuple[Line, ...]:
    """The verdicts of all jobs, the worst first, separated by an empty line."""
    lines: list[Line] = []
    for job in worst_first(jobs):
        lines += [plain("")] if lines else []
        verdict = redacted(job.judgement.verdict)  # it quotes source lines
        lines += present.verdict_lines(verdict, width, watched_s=job.judgement.watched_s)
    return tuple(lines)


def all_verdict_lines(jobs: Sequence[JobDiagnosis], crashes: Sequence[Crash], width: int) -> tuple[Line, ...]:
    """The verdicts on jobs that died, then those on jobs that live, then those on attempts that were restarted."""
    dead = [crash for crash in crashes if crash.course.newer is None]
    restarted = [crash for crash in crashes if crash.course.newer is not None]
    names = {crash.verdict.job for crash in dead}
    living = [job for job in jobs if job.job not in names or job.judgement.verdict.state != "no_ranks"]
    blocks = [crash_lines(crash.verdict, width) for crash in dead]
    blocks += [list(verdict_lines(living, width))] if living else []
    blocks += [crash_lines(crash.verdict, width) for crash in restarted]
    lines: list[Line] = []
    for block in blocks:
        lines += [plain("")] if lines else []
        lines += block
    return tuple(lines)


def culprits_of(job: JobDiagnosis | None) -> tuple[int, ...]:
    """The ranks that the verdict names."""
    culprits = job.judgement.verdict.culprits if job else ()
    return tuple(culprit.rank for culprit in culprits if culprit.rank is not None)


#: Changes. Further ones are listed without their calls.
_MOST_SHOWN: Final = 8


def side_by_side(
    left_path: tuple[StackStep, ...], left_ranks: Sequence[int],
    right_path: tuple[StackStep, ...], right_ranks: Sequence[int], width: int,
) -> list[str]:  # fmt: skip
    """The calls of two branches, outermost first; `=` while they are the same, `│` from the first difference on."""
    half = max(10, (width - 3) // 2)
    lines = [f"{fit(f'[{fold_numbers(left_ranks)}]', half)}   {fit(f'[{fold_numbers(right_ranks)}]', half)}"]
    same = True
    for left, right in zip_longest(left_path, right_path):
        same = same and left is not None and right is not None and _name(left) == _name(right)
        lines.append(f"{fit(_text(left), half)} {'=' if same else '│'} {fit(_text(right), half)}".rstrip())
    return lines


def _name(step: StackStep) -> tuple[str, str]:
    return step.function, step.file


def _text(step: StackStep | None) -> str:
    return "" if step is None else f"{clean(step.function)}  {place_of(step)}"


def moved(before: Fold, after: Fold, width: int) -> list[str]:
    """Ranks that moved between two captures, ranks that did not, then the calls of the moved ones before and after."""
    then, now = _places(before), _places(after)
    changes: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    stayed = []
    for rank in sorted(then.keys() | now.keys()):
        was, place = _place(then.get(rank)), _place(now.get(rank))
        if was == place:
            stayed.append(rank)
        else:
            changes[was, place].append(rank)
    lines = [
        f"[{fold_numbers(ranks)}]  {_leaf(then.get(ranks[0]))}  →  {_leaf(now.get(ranks[0]))}"
        for ranks in changes.values()
    ]
    lines.append(f"[{fold_numbers(stayed)}]  unchanged" if stayed else "no rank unchanged")
    for ranks in [ranks for ranks in changes.values() if ranks[0] in then and ranks[0] in now][:_MOST_SHOWN]:
        was_path, path = then[ranks[0]].path, now[ranks[0]].path
        lines += ["", *side_by_side(was_path, ranks, path, ranks, width)]
    return lines


def _place(group: StackGroup | None) -> Hashable:
    """Equal for groups at the same place."""
    return (group.calls, group.cls) if group is not None else None


def _places(fold: Fold) -> dict[int, StackGroup]:
    """The group of each rank."""
    return {rank: group for group in fold.groups if group.role == "rank" for rank in group.ranks}


def _leaf(group: StackGroup | None) -> str:
    if group is None:
        return "not captured"
    if not group.path:
        return group.status.replace("_", " ")
    return f"{_text(group.path[-1])} ({state_word(group.cls)})"


#: Calls shown of one thread: outermost and innermost ones of a deep recursion.
_OUTER, _INNER = 20, 60


def rank_lines(
    ranks: Sequence[int], rows: Mapping[int, RankListRow], culprits: Sequence[int], width: int
) -> tuple[Line, ...]:
    """One line per rank of a branch: its process, and what that does now. The key is the rank."""
    lines = []
    for rank in ranks:
        row = rows.get(rank)
        named = Span(f"{rank:>5} ", "failed" if rank in culprits else "text")
        if row is None or row.rank is None:
            lines.append(Line((named, Span("not found on any connected node", "muted")), rank))
            continue
        stat = row.stat
        wchan = stat.wchan if stat and stat.wchan not in (None, "0") else ""
        state = Span(f"{GLYPHS[row.status]} {fit(state_word(row.state), 15)} ", row.status)
        who = Span(f"{clean(row.rank.node)} pid {row.rank.pid}", "text")
        busy = Span(f"  {format.percent(stat.cpu_pct if stat else None)} %  {clean(wchan or '')}", "muted")
        lines.append(Line(cut((named, state, who, busy), width), rank))
    return tuple(lines)


def thread_lines(stacks: Sequence[Stack], rank: int, width: int) -> tuple[Line, ...]:
    """The newest stacks of all threads of a rank, main thread first, outermost call first."""
    own = [stack for stack in stacks if stack.rank == rank]
    if not own:
        return (plain(f"No stacks of rank {rank} in this capture.", "muted"),)
    last: dict[tuple[str, int], int] = {}
    for stack in own:
        key = (stack.role, stack.pid)
        last[key] = max(last.get(key, 0), stack.sample)
    lines: list[Line] = []
    for role, pid in sorted(last, key=lambda key: (key[0] != "rank", key)):
        threads = [
            thread for thread in own if (thread.role, thread.pid) == (role, pid) and thread.sample == last[(role, pid)]
        ]
        lines += [plain("")] if lines else []
        lines += _process_lines(threads[0], width)
        for stack in sorted(threads, key=_main_first):
            lines += _thread_lines(stack, width)
    return tuple(lines)


def _main_first(stack: Stack) -> tuple[bool, int]:
    is_main = stack.thread_name == "MainThread" or stack.os_thread_id == stack.pid
    return (not is_main, stack.os_thread_id or stack.thread_id or 0)


def _process_lines(stack: Stack, width: int) -> Iterator[Line]:
    """Kernel state of the process, and why a stack is missing."""
    role = "" if stack.role == "rank" else f"{clean(stack.role).replace('_', ' ')} "
    parts = [f"{role}pid {stack.pid}", f"state {stack.proc_state or format.UNKNOWN}"]
    parts += [f"wchan {clean(stack.wchan)}"] if stack.wchan and stack.wchan != "0" else []
    parts += [f"in {clean(stack.syscall)}"] if stack.syscall else []
    parts += [f"CPU +{stack.cpu_delta_s:.2f} s"] if stack.cpu_delta_s is not None else []
    parts += [f"traced by pid {stack.tracer_pid}"] if stack.tracer_pid else []
    yield Line(cut((Span("  ".join(parts), "muted"),), width), ("process", stack.pid))
    if stack.status != "ok":
        why = f"{stack.status.replace('_', ' ')}: {clean(stack.reason or '')}"
        for part in wrapped(why, width):
            yield plain(part, "warning")
        for part in wrapped(f"try: {clean(stack.try_)}", width) if stack.try_ else ():
            yield plain(part, "accent")


def _thread_lines(stack: Stack, width: int) -> Iterator[Line]:
    if stack.frames is None:
        return
    words = [clean(stack.thread_name or "thread")]
    words += [f"{stack.os_thread_id}"] if stack.os_thread_id is not None else []
    words += ["holds the GIL"] if stack.gil else []
    words += ["active" if stack.active else "idle"] if stack.active is not None else []
    words += ["paused while sampling"] if stack.mode == "blocking" else []
    key = ("thread", stack.pid, stack.os_thread_id, stack.thread_id)
    yield Line(cut((Span("  ".join(words), "accent"),), width), key)
    for target in stack.waits_for or ():
        held = f" (pid {', '.join(map(str, target.pids))})" if target.pids else ""
        yield Line(cut((Span(f"    waits for {clean(target_words(target))}{held}", "warning"),), width))
    named: dict[int, list[Local]] = {}
    for local in stack.locals or ():
        named.setdefault(local.frame, []).append(local)
    count = len(stack.frames)
    for index, frame in enumerate(stack.frames):
        if _OUTER <= index < count - _INNER:
            if index == _OUTER:
                yield plain(f"    … {count - _OUTER - _INNER} calls …", "muted")
            continue
        yield from _frame_lines(frame, named.get(index, ()), width, is_leaf=index == count - 1)
    for task in main_first(stack.tasks or ()):
        for number, part in enumerate(wrapped(clean(task_text(task, stack.tasks or ())), max(20, width - 8))):
            yield Line((Span("       " if number else "  task ", "muted"), Span(part)))


def _frame_lines(frame: StackFrame, named: Sequence[Local], width: int, *, is_leaf: bool) -> Iterator[Line]:
    line = f":{frame.line}" if frame.line else ""
    style = "strong" if is_leaf else "muted" if frame.native else "text"
    file = clean(frame.file.rsplit("/", 1)[-1])
    yield Line(cut((Span(f"  {clean(frame.function)}", style), Span(f"  {file}{line}", "muted")), width))
    if frame.source:
        source = clean(without_secrets(frame.source.strip()))
        yield Line(cut((Span("      │ ", "muted"), Span(source, "accent")), width))
    for local in named:
        value = clean(value_without_secrets(local.name, local.value))
        yield Line(cut((Span(f"      {clean(local.name)} = ", "muted"), Span(value)), width))
