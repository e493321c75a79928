"""`Bar`: one line with something at its left and something at its right, both clickable.

    gconsole  h100-pod  62/64 nodes                                   2 findings

The header, the tabs, the footer and every heading are bars. What does not fit is cut from the left part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.binding import ActiveBinding
from textual.selection import Selection
from textual.strip import Strip

from ...present.spans import Span
from ...text.cells import fit, width_of
from ..keymap.actions import Action, key_names
from .painting import Painting


class Bar(Painting):
    """One line. `show` gives it its text; a click on a span with an action runs that action."""

    DEFAULT_CSS = "Bar { height: 1; width: 1fr; }"

    def __init__(self, *, fill: str = " ", id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._fill = fill
        self._left: tuple[Span, ...] = ()
        self._right: tuple[Span, ...] = ()

    def show(self, left: Sequence[Span], right: Sequence[Span] = ()) -> None:
        """Show these spans; repaints only if they changed."""
        shown = tuple(left), tuple(right)
        if shown != (self._left, self._right):
            self._left, self._right = shown
            self.refresh()

    def laid_out(self) -> list[Span]:
        """The spans that fill the line exactly."""
        width = self.size.width
        right_width = sum(width_of(span.text) for span in self._right)
        room = max(0, width - right_width)
        spans: list[Span] = []
        for span in self._left:
            size = width_of(span.text)
            if size > room:
                spans.append(span._replace(text=fit(span.text, room)))
                room = 0
                break
            spans.append(span)
            room -= size
        spans.append(Span(self._fill * room, "rule" if self._fill != " " else "text"))
        return [*spans, *self._right]

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width, self.rich_style)
        return self.located(self.strip(self.laid_out(), self.size.width, selection=self.text_selection), y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse."""
        return selection.extract("".join(span.text for span in self.laid_out())), "\n"

    async def on_click(self, event: events.Click) -> None:
        end = 0
        for span in self.laid_out():
            end += width_of(span.text)
            if event.x < end:
                if span.action:
                    event.stop()
                    await self.app.run_action(span.action)
                return


def hints(active: Mapping[str, ActiveBinding], actions: Sequence[Action], room: int) -> list[Span]:
    """Key hints in at most `room` cells: each action with the key bound to it now.

    If they do not fit, the last ones before the last two (help and quit) are dropped.
    """
    bound = {item.binding.id or "": item for item in reversed(list(active.values()))}
    shown = [action for action in actions if action.footer and action.id in bound]
    while len(shown) > 2 and _width(shown, bound) > room:
        del shown[-3 if len(shown) > 2 else -1]
    spans: list[Span] = [Span(" ")]
    for action in shown:
        item = bound[action.id]
        run = f"app.run_bound('{action.id}')"
        spans.append(Span(_key(action, item), "key" if item.enabled else "rule", run))
        spans.append(Span(f" {action.label}  ", "muted" if item.enabled else "rule", run))
    return spans


def _key(action: Action, item: ActiveBinding) -> str:
    is_usual = item.binding.key in action.keys.split(",")
    return action.shown_key if action.shown_key and is_usual else key_names(item.binding.key)


def _width(shown: Sequence[Action], bound: Mapping[str, ActiveBinding]) -> int:
    return 1 + sum(width_of(_key(action, bound[action.id])) + width_of(action.label) + 3 for action in shown)
