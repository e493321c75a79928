"""Widgets of one line: bars, the headings of panels, the progress of a capture; and the tabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.containers import Vertical
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from ...present.spans import Span
from ...text import format
from ...text.cells import clean, fit, width_of
from ..keymap.actions import Action, bindings, in_scope, key_names
from .painting import Painting


class OneLine(Painting):
    """A widget of one line, whose text can be selected with the mouse."""

    DEFAULT_CSS = "OneLine { height: 1; width: 1fr; }"

    def spans(self) -> list[Span]:
        """What the line shows."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        if y:
            return Strip.blank(self.size.width, self.rich_style)
        return self.located(self.strip(self.spans(), self.size.width, selection=self.text_selection), y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse."""
        return selection.extract("".join(span.text for span in self.spans())), "\n"


class Bar(OneLine):
    """One line with something at its left and something at its right; what does not fit is cut from the left part.

        gconsole  h100-pod  62/64 nodes                                   2 findings

    A click on a span with an action runs that action.
    """

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

    def spans(self) -> list[Span]:
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

    async def on_click(self, event: events.Click) -> None:
        end = 0
        for span in self.spans():
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


class Panel(Vertical):
    """A titled part of a view; the title is highlighted while the part has the focus.

    ── NODES ─────────────────────────────────── 4 ● ──
    """

    DEFAULT_CSS = "Panel { height: 1fr; width: 1fr; }"

    def __init__(self, title: str, body: Widget, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = title
        self._left: tuple[Span, ...] = ()
        self._right: tuple[Span, ...] = ()
        self._bar = Bar(fill="─")
        self._body = body

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self._body

    def on_mount(self) -> None:
        self._draw()

    def head(self, title: str, left: Sequence[Span] = (), right: Sequence[Span] = ()) -> None:
        """Set the title, the spans beside it and those at the far right."""
        self._title, self._left, self._right = title, tuple(left), tuple(right)
        self._draw()

    def _draw(self) -> None:
        style = "accent" if self._body.has_focus else "strong"
        right = (Span(" "), *self._right, Span(" "), Span("─", "rule")) if self._right else ()
        self._bar.show((Span("─ ", "rule"), Span(self._title, style), Span(" "), *self._left, Span(" ")), right)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._draw()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._draw()


_EIGHTHS = " ▏▎▍▌▋▊▉"
_HINT = "Esc cancels"


class Progress(OneLine, can_focus=True):
    """A counter with a bar. With the focus, Esc posts `Cancelled` once; the receiver stops the work.

    captured 371/512 ranks  ████████████████▋       1.8 s   Esc cancels
    """

    BINDINGS = bindings(in_scope("progress"))

    class Cancelled(Message):
        """The user pressed Esc."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._shown: tuple[str, int, int | None, str, float | None] = ("", 0, None, "", None)
        self.is_cancelled = False

    def show(self, verb: str, done: int, total: int | None, what: str, elapsed_s: float | None = None) -> None:
        """Show `verb done/total what`; `total` may be unknown. A count of 0 resets the cancellation."""
        shown = (clean(verb), done, total, clean(what), elapsed_s)
        if done == 0:
            self.is_cancelled = False
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def action_cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.refresh()
            self.post_message(self.Cancelled())

    def spans(self) -> list[Span]:
        """The count, then if they fit: bar, time, key hint."""
        verb, done, total, what, elapsed_s = self._shown
        width = self.size.width
        count = f"{verb} {format.seen(done, total)} {what}"
        time = "" if elapsed_s is None else f"  {format.age(int(elapsed_s * 1e9)):>6}"
        hint = "  cancelling …" if self.is_cancelled else f"  {_HINT}"
        room = width - width_of(count) - len(time) - len(hint) - 2
        bar = _bar(done, total, room) if room >= 4 else ""
        spans = [Span(fit(count, min(width, width_of(count))), "text")]
        if bar:
            spans += [Span("  "), Span(bar, "accent")]
        spans.append(Span(time, "muted"))
        if self.is_cancelled:
            spans.append(Span(hint, "warning"))
        else:
            spans += [Span("  "), Span("Esc", "key"), Span(" cancels", "muted")]
        return spans


def _bar(done: int, total: int | None, width: int) -> str:
    """A bar of `width` cells in eighths of a cell; dots if the total is unknown."""
    if not total:
        return "·" * width
    eighths = min(8 * width, max(0, 8 * width * done // total))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


class Tab(msgspec.Struct, frozen=True):
    """One tab; `short` is its title if space is scarce, `action` runs on a click."""

    name: str
    key: str
    title: str
    short: str
    action: str


class TabBar(Painting):
    """A line of tabs and, in a second line, a rule. `show` sets the name of the current view.

    1 Overview  2 Ranks  3 Hang  4 Skew  5 Topology
    ━━━━━━━━━━─────────────────────────────────────
    """

    DEFAULT_CSS = "TabBar { height: 2; width: 1fr; }"

    def __init__(self, tabs: Sequence[Tab], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tabs = tuple(tabs)
        self._current = ""

    def show(self, current: str) -> None:
        """Mark the view of that name as current."""
        if current != self._current:
            self._current = current
            self.refresh()

    def laid_out(self) -> list[tuple[Tab, str]]:
        """Each tab with its text: full titles, else short ones, else only that of the current tab."""
        room = self.size.width - 1
        for gap, is_short in ((2, False), (2, True), (1, True)):
            texts = [f"{tab.key} {self._title_of(tab, is_short)}{' ' * gap}" for tab in self._tabs]
            if sum(map(width_of, texts)) - gap <= room:
                return list(zip(self._tabs, texts, strict=True))
        return [
            (tab, f"{tab.key} {tab.title}  " if tab.name == self._current else f"{tab.key}  ") for tab in self._tabs
        ]

    def _title_of(self, tab: Tab, is_short: bool) -> str:
        return tab.short if is_short and tab.name != self._current else tab.title

    def render_line(self, y: int) -> Strip:
        spans = [Span(" " if y == 0 else "─", "rule")]
        for tab, text in self.laid_out():
            here, label = tab.name == self._current, text.rstrip()
            if y == 0:
                key_style = "accent" if here else "key"
                spans += [Span(tab.key, key_style), Span(label[len(tab.key) :], "tab" if here else "muted")]
                spans.append(Span(" " * (len(text) - len(label))))
            else:
                spans.append(Span(("━" if here else "─") * width_of(label), "accent" if here else "rule"))
                spans.append(Span("─" * (len(text) - len(label)), "rule"))
        if y:
            spans.append(Span("─" * self.size.width, "rule"))
        return self.located(self.strip(spans, self.size.width, y=y), y)

    async def on_click(self, event: events.Click) -> None:
        end = 1
        for tab, text in self.laid_out():
            end += width_of(text)
            if event.x < end:
                await self.app.run_action(tab.action)
                return
