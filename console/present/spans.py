"""Lines of styled spans, for a terminal, a text file or a page; the five statuses with their glyphs and display words.

Styles are names; the theme gives their colours."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..text.cells import fit, width_of
from ..text.format import state_word as state_word
from ..text.sanitize import Printable, join_lines

#: Every style name: plain, quiet, loud, the five states, badges (drawn reversed), the selection, tabs.
STYLES = (
    "text", "muted", "strong", "accent", "rule", "key",
    "ok", "warning", "failed", "unknown", "stale",
    "badge", "badge-warning", "badge-failed", "pick", "tab",
)  # fmt: skip


class Span(NamedTuple):
    """Some text in one style; `action` is what a click on it runs."""

    text: str
    style: str = "text"
    action: str = ""


class Line(NamedTuple):
    """One line; `key` names what it is about, where a cursor may stand on it."""

    spans: tuple[Span, ...] = ()
    key: Hashable | None = None

    @property
    def text(self) -> str:
        """The text of all spans."""
        return "".join(span.text for span in self.spans)


class TreeNode(msgspec.Struct, frozen=True):
    """One row of a tree and the rows below it: `ranks` is the text of its rank set, `note` the words before it.

    `key` identifies the branch, also in the next tree, so that folded branches stay folded.
    """

    key: Hashable
    text: tuple[Span, ...]
    ranks: str = ""
    note: str = ""
    children: tuple[TreeNode, ...] = ()


def plain(text: str, style: str = "text") -> Line:
    """A line in one style that no cursor visits."""
    return Line((Span(text, style),))


def glyph(status: Status) -> Span:
    """The glyph of a state, in its colour."""
    return Span(GLYPHS[status], status)


def cut(spans: Sequence[Span], width: int) -> tuple[Span, ...]:
    """The spans in at most that many cells, with an ellipsis where something is missing."""
    kept: list[Span] = []
    for span in spans:
        size = width_of(span.text)
        if size > width:
            kept.append(span._replace(text=fit(span.text, width)))
            break
        kept.append(span)
        width -= size
    return tuple(kept)


def as_text(lines: Iterable[Line]) -> Printable:
    """Lines as plain text, without trailing blanks."""
    return join_lines(line.text.rstrip() for line in lines)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells (one at least), broken at blanks where possible."""
    width = max(1, width)
    if width_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while width_of(word) > width:
            end = _characters(word, width)
            lines.append(word[:end])
            word = word[end:]
        line = word
    return [*lines, line] if line else lines


def _characters(text: str, width: int) -> int:
    """Number of characters that fit into that many cells, one at least."""
    used = 0
    for index, character in enumerate(text):
        used += width_of(character)
        if used > width:
            return max(1, index)
    return len(text)


Status = Literal["ok", "warning", "failed", "unknown", "stale"]

GLYPHS: dict[Status, str] = {"ok": "●", "warning": "▲", "failed": "✖", "unknown": "◌", "stale": "◐"}
#: Order in which statuses are counted and listed, worst first.
BY_WEIGHT: tuple[Status, ...] = ("failed", "warning", "stale", "unknown", "ok")

#: State of a rank (`RankStat.state`, and those the console adds) → status.
RANK_STATUS: dict[str, Status] = {
    "moving": "ok",
    "progressing": "ok",
    "compiling": "ok",
    "checkpointing": "ok",
    "evaluating": "ok",
    "starting": "ok",
    "stalled": "failed",
    "waiting": "warning",
    "idle": "warning",
    "uninterruptible": "warning",
    "stuck": "failed",
    "stopped": "failed",
    "zombie": "failed",
    "exited": "failed",
    "no_permission": "warning",
    "stale": "stale",
    "lost": "stale",
    "missing": "unknown",
    "unknown": "unknown",
}
SEVERITY_STATUS: dict[str, Status] = {"error": "failed", "warning": "warning", "info": "unknown"}


#: Display words of confidences; a verdict from samples is never certain.
_CONFIDENCE_WORDS = {"certain": "high", "likely": "medium", "possible": "low"}


def confidence_word(confidence: str) -> str:
    """A confidence as the screen shows it: `high` for `certain`."""
    return _CONFIDENCE_WORDS.get(confidence, confidence)


def rank_status(state: str) -> Status:
    """Status of a rank's state; `unknown` for other states."""
    return RANK_STATUS.get(state, "unknown")
