"""Sessions, and the stacks of captures, in the forms that other programs read: one file a form.

The forms of stacks are the table below, those of whole sessions that of `session.forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.stacks.fold import Shape
from ...analysis.stacks.frame_models import Model
from ...core.store import CaptureNow
from ...records import Stack
from ...report.captures import lines_of, newest_of, text_of
from ...text.json import pretty
from .dot import dot
from .folded import folded
from .speedscope import speedscope


@dataclass(frozen=True)
class StackForm:
    """One form. `write` makes it of each job in the newest of the captures that has all its ranks."""

    name: str  # as it is asked for: --format NAME
    title: str  # as it is shown
    suffix: str
    write: Callable[[Sequence[CaptureNow], Sequence[Model], Shape], str]


def _text(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return text_of(captures, models, shape) + "\n"


def _json(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return pretty(lines_of(captures, models, shape)) + "\n"


def _folded(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return folded(_stacks(captures, models))


def _speedscope(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return speedscope(_stacks(captures, models))


def _dot(captures: Sequence[CaptureNow], models: Sequence[Model], shape: Shape) -> str:
    return dot([found for _, found in newest_of(captures, models, shape)])


def _stacks(captures: Sequence[CaptureNow], models: Sequence[Model]) -> list[Stack]:
    """What was read of each job; calls that are no Python are left to those who look at one process."""
    return [
        stack
        for capture, found in newest_of(captures, models)
        for stack in capture.stacks
        if (stack.job, stack.attempt) == (found.job, found.attempt) and not stack.native
    ]


#: The forms, in the order in which they are offered.
FORMS: Final[tuple[StackForm, ...]] = (
    StackForm("folded", "folded", ".folded", _folded),
    StackForm("speedscope", "speedscope", ".speedscope.json", _speedscope),
    StackForm("dot", "DOT", ".dot", _dot),
    StackForm("text", "text", ".txt", _text),
    StackForm("json", "JSON", ".json", _json),
)
BY_NAME: Final = {form.name: form for form in FORMS}
