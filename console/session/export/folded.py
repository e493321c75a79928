"""A capture as folded stacks, the lines that flame graph programs read: `frame;frame;frame count`, outermost first.

Nothing is left out or judged here: every thread of every process in every sample counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...analysis.stacks.threads import name_of
from ...records import Stack
from ...text.nodeset_fold import fold_numbers


def folded(stacks: Iterable[Stack]) -> str:
    """A line a distinct stack, the commonest first. Before its frames stand the role, the ranks and the thread.

    Ranks that stand at the same place share a line, so that the odd one is seen beside the others.
    """
    counts: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    ranks: dict[tuple[str, str, tuple[str, ...]], set[int]] = {}
    for stack in stacks:
        if stack.frames is None:
            continue
        frames = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in stack.frames)
        key = (stack.role, name_of(stack), frames)
        counts[key] += 1
        if stack.rank is not None:
            ranks.setdefault(key, set()).add(stack.rank)
    lines = []
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        role, thread, frames = key
        who = f"{role} [{fold_numbers(sorted(ranks[key]))}]" if key in ranks else role
        lines.append(";".join(_word(part) for part in (who, thread, *frames)) + f" {count}\n")
    return "".join(lines)


def _word(text: str) -> str:
    """A part of a line: a semicolon would be two parts, and a control character none."""
    return "".join(letter if letter.isprintable() else "·" for letter in text.replace(";", ","))
