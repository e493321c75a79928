"""A folded capture as a tree of calls with their ranks: branches for the screen, and the same tree as text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ..analysis.stacks.async_tasks import main_first, newest_tasks, task_text
from ..analysis.stacks.fold import PLAIN, Fold, Shape, StackBranch, StackGroup, StackStep
from ..core.store import CaptureNow
from ..records import Stack
from ..text.cells import clean, width_of
from ..text.format import duration, millis, plural
from ..text.nodeset_fold import fold_numbers
from ..text.sanitize import Printable, join_lines, printable, printable_lines
from .spans import GLYPHS, Line, Span, TreeNode, as_text, cut, plain, state_word

#: Deeper branches are not indented further in text.
_DEEPEST: Final = 20
#: Tasks of one event loop that are listed.
_MOST_TASKS: Final = 16
_ROLES: Final = {
    "rank": "stacks",
    "dataloader_worker": "DataLoader workers",
    "compile_worker": "compile workers",
    "peer": "other processes",
}


class StackTree(msgspec.Struct, frozen=True):
    """Branches of all roles, and by branch key its ranks and its calls from the outermost one inward."""

    roots: tuple[TreeNode, ...] = ()
    ranks: Mapping[Hashable, tuple[int, ...]] = msgspec.field(default_factory=dict)
    paths: Mapping[Hashable, tuple[StackStep, ...]] = msgspec.field(default_factory=dict)


def tree_of(fold: Fold, culprits: Sequence[int] = ()) -> StackTree:
    """The calls of the ranks, then one root per role of their child processes; branches of only culprits in red."""
    ranks: dict[Hashable, tuple[int, ...]] = {}
    paths: dict[Hashable, tuple[StackStep, ...]] = {}
    roots: list[TreeNode] = []
    for role in _roles(fold):
        branches = role_branches(fold, role, culprits, ranks, paths)
        if role == "rank":
            roots += branches
        elif branches:
            ranks[(role,)] = tuple(sorted({rank for group in _groups(fold, role) for rank in group.ranks}))
            roots.append(TreeNode((role,), (Span(_title(role), "accent"),), fold_numbers(ranks[role,]), "", branches))
    return StackTree(tuple(roots), ranks, paths)


def role_branches(
    fold: Fold, role: str, culprits: Sequence[int], ranks: dict[Hashable, tuple[int, ...]],
    paths: dict[Hashable, tuple[StackStep, ...]],
) -> tuple[TreeNode, ...]:  # fmt: skip
    """Branches of the processes of one role, then its groups without a stack; fills `ranks` and `paths` by key."""
    red = frozenset(culprits)

    def grow(
        branches: Sequence[StackBranch], above: tuple[Hashable, ...], path: tuple[StackStep, ...]
    ) -> tuple[TreeNode, ...]:
        nodes = []
        for branch in branches:
            step = branch.step
            lines = step.lines if fold.shape != PLAIN or not branch.branches else ()  # siblings may differ in them
            key = (*above, step.function, step.file, branch.cls, lines, step.values)
            ranks[key], paths[key] = branch.ranks, (*path, step)
            style = "failed" if red and red.issuperset(branch.ranks) and branch.ranks else "text"
            values = "".join(f"  {clean(name)} = {clean(value)}" for name, value in step.values)
            text = [Span(clean(step.function), style), Span(f"  {place_of(step)}", "muted")]
            text += [Span(values, "accent")] if values else []
            inner = grow(branch.branches, key, paths[key])
            nodes.append(TreeNode(key, tuple(text), fold_numbers(branch.ranks), state_word(branch.cls or ""), inner))
        return tuple(nodes)

    return (*grow(fold.trees.get(role, ()), (role,), ()), *_unread(fold, role, ranks))


def _unread(fold: Fold, role: str, ranks: dict[Hashable, tuple[int, ...]]) -> Iterator[TreeNode]:
    """Groups without a stack, with the reason and the remedy."""
    for group in _groups(fold, role):
        if not group.path:
            key = (role, group.status, group.reason, group.cls)
            ranks[key] = group.ranks
            why = group.status.replace("_", " ") + (f": {group.reason}" if group.reason else "")
            text = [Span(f"{GLYPHS['unknown']} {clean(why)}", "unknown")]
            text += [Span(f"  try: {clean(group.try_)}", "accent")] if group.try_ else []
            note = "" if group.cls == "unknown" else state_word(group.cls)
            yield TreeNode(key, tuple(text), fold_numbers(group.ranks), note)


def place_of(step: StackStep) -> str:
    """File of a call, and its lines if the ranks are at three or fewer."""
    file = clean(step.file)
    return f"{file}:{','.join(map(str, step.lines))}" if 0 < len(step.lines) <= 3 and step.lines != (0,) else file


def shape_words(shape: Shape) -> list[str]:
    """Folding options that differ from the default."""
    threads = {"main": [], "blocking": ["threads that block"], "all": ["all threads"]}[shape.threads]
    return threads + {"function": [], "line": ["by line"], "locals": ["by variables"]}[shape.granularity]


def captures_text(captures: Iterable[tuple[CaptureNow, Fold]]) -> Printable:
    """Stack trees of each folded job with the capture it is of; "" without captures."""
    parts: list[Printable] = []
    for capture, folded in captures:
        name = folded.job + (f" attempt {folded.attempt}" if folded.attempt else "")
        parts.append(join_lines([f"capture {capture.id}  {name}", *stacks_text(folded).split("\n")]))
        own = [stack for stack in capture.stacks if (stack.job, stack.attempt) == (folded.job, folded.attempt)]
        if tasks := task_lines(newest_tasks(own)):
            parts.append(as_text(tasks))
        if capture.lost or capture.dropped:
            lost = f"{capture.lost} stacks lost, {capture.dropped} dropped (too many)"
            parts.append(printable(f"  ▲ incomplete: {lost}"))
    return printable_lines("\n\n".join(parts))


def task_lines(stacks: Sequence[Stack]) -> list[Line]:
    """The asyncio tasks of these processes under a header; none without tasks. At most `_MOST_TASKS` of each."""
    lines: list[Line] = []
    for stack in stacks:
        tasks = stack.tasks or ()
        who = clean(stack.role).replace("_", " ") if stack.rank is None else f"rank {stack.rank}"
        lines.append(plain(f"  {who}  {clean(stack.node)} pid {stack.pid}  {plural(len(tasks), 'task')}"))
        lines += [plain(f"    {clean(task_text(task, tasks))}") for task in main_first(tasks)[:_MOST_TASKS]]
        if len(tasks) > _MOST_TASKS:
            lines.append(plain(f"    … and {len(tasks) - _MOST_TASKS} more", "muted"))
    return [plain("ASYNCIO TASKS"), *lines] if lines else []


def stacks_text(fold: Fold, width: int = 110) -> Printable:
    """The tree of each role under a header with its figures, in about `width` columns."""
    lines: list[Line] = []
    for role in _roles(fold):
        if groups := _groups(fold, role):
            lines.append(plain(_head(fold, role, groups, width)))
            for branch in role_branches(fold, role, (), {}, {}):
                lines += _rows(branch, 0, width)
    return as_text(lines)


def _head(fold: Fold, role: str, groups: Sequence[StackGroup], width: int) -> str:
    count = sum(group.processes for group in groups)
    left = f"{_title(role).upper()}  {plural(count, 'rank' if role == 'rank' else 'process')}"
    left += "".join(f", {part}" for part in (plural(len(groups), "group"), *shape_words(fold.shape)))
    if role != "rank":
        return left
    right = [plural(fold.samples, "sample"), *timing_words(fold)]
    return left + "   ".join(right).rjust(max(2, width - len(left)))


def timing_words(fold: Fold) -> list[str]:
    """How far apart the stacks were captured, and how long the capture took, where known."""
    words = [f"spread {millis(fold.spread_ns)} ms"] if fold.spread_ns is not None else []
    return words + ([f"took {duration(fold.took_ns)}"] if fold.took_ns is not None else [])


def _rows(branch: TreeNode, depth: int, width: int) -> Iterator[Line]:
    """A branch and what is below it; a reason without a stack is not cut."""
    indent = "  " * min(depth, _DEEPEST) + ("▼ " if branch.children else "  ")
    spans = (Span(indent), *branch.text)
    room = max(30, width - 40)
    if branch.text[0].style != "unknown":
        spans = cut(spans, room)
    padding = max(0, room - width_of("".join(span.text for span in spans)))
    yield Line((*spans, Span(f"{'':{padding}}  {branch.note:15}  [{branch.ranks}]")))
    for inner in branch.children:
        yield from _rows(inner, depth + 1, width)


def _roles(fold: Fold) -> list[str]:
    return ["rank", *sorted({group.role for group in fold.groups} - {"rank"})]


def _groups(fold: Fold, role: str) -> list[StackGroup]:
    return [group for group in fold.groups if group.role == role]


def _title(role: str) -> str:
    return _ROLES.get(role) or clean(role).replace("_", " ")
