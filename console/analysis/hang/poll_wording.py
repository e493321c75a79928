"""Texts about ranks that poll."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from . import wording
from .job_view import JobView
from .rank_state import RankState

#: Why the rank that the others poll for is not certain.
UNSEEN_CAVEAT: Final = "what the others poll for is not visible"
#: Loops that a sentence lists.
_NAMED: Final = 4


def polls(view: JobView) -> str:
    """`All observed ranks poll: ranks 0,2 in a.py:16 meet (while not arrived()); … 4 ranks waiting ≥ 31 s.`"""
    others = f"; {wording.activities(view.behind)}" if view.behind else ""
    who = "some ranks poll" if view.behind else "all observed ranks poll"
    return f"{who}: {'; '.join(_loops(view))}{others}. {wording.waited(view)}."


def behind(view: JobView, late: Sequence[RankState]) -> str:
    """The ranks that stand still, and the loops in which the others poll."""
    return f"{wording.activities(late)}, while the others poll: {'; '.join(_loops(view))}. {wording.waited(view)}."


def next_step(view: JobView) -> str:
    """Which conditions to check, those of the fewest ranks first."""
    places = list(_by_place(view))
    return f"check what {' and '.join(places[-2:][::-1])} {'wait' if len(places) > 1 else 'waits'} for"


def _loops(view: JobView) -> list[str]:
    groups = list(_by_place(view).items())
    texts = [f"{wording.ranks(numbers)} in {place}" for place, numbers in groups[:_NAMED]]
    return [*texts, f"and {len(groups) - _NAMED} more"] if len(groups) > _NAMED else texts


def _by_place(view: JobView) -> dict[str, list[int]]:
    """Ranks by the loop in which they poll, the largest group first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for state in view.pollers:
        if state.poll is not None and state.rank is not None:
            frame = state.poll.frame
            name = f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} {frame.function.rsplit('.', 1)[-1]}"
            groups[f"{name} ({frame.loop})" if frame.loop else name].append(state.rank)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[1])))
