"""Trends, resources and newest events on the Overview as lines.

Trends are a table of curves where it fits, else a few lines a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ....present.spans import Line, Span, cut, plain, wrapped
from ....text import format
from ....text.cells import clean, fit, width_of
from ...models.detail import PageItem
from ...models.plot import columns, filled
from ...models.resources import Resource
from ...models.trends import Trend, TrendGroup, TrendName
from ..events.model import EventLog, EventRow

#: Panels of the left and of the right column, from the top; events are in the one that has more room.
LEFT: Final = ("jobs-panel", "findings-panel", "trends-panel")
RIGHT: Final = ("nodes-panel", "heat-panel", "resources-panel")
#: Lines below its title without which a panel is left out. The one that is dropped last is the first one; panels of
#: `_MORE` get only what the others leave free.
_NEEDED: Final = {"jobs-panel": 2, "findings-panel": 1, "nodes-panel": 1, "heat-panel": 2}
_FAIR: Final = 5  # lines up to which all of the needed ones grow first
_MORE: Final = {"trends-panel": 3, "resources-panel": 3, "events-panel": 3}


def fill_columns(wanted: Mapping[str, int], height: int, *, wide: bool) -> list[dict[str, int]]:
    """Lines of each panel with its title, column by column, from the top; 0: it is left out.

    `wanted` are the lines below the title that each would fill.
    """
    if not wide:
        shared = share_room(wanted, [*LEFT, *RIGHT, "events-panel"], height)
        return [{id: shared[id] for id in (*LEFT, *RIGHT, "events-panel")}]
    sizes = [sum(1 + wanted[id] for id in ids) for ids in (LEFT, RIGHT)]
    with_events = 0 if sizes[0] <= sizes[1] else 1
    columns = []
    for index, ids in enumerate((LEFT, RIGHT)):
        own = (*ids, "events-panel") if index == with_events else ids
        shared = share_room(wanted, own, height)
        columns.append({id: shared[id] for id in own})
    return columns


def share_room(wanted: Mapping[str, int], ids: Sequence[str], height: int) -> dict[str, int]:
    """Lines of each of these panels, title included; 0 where there is no room for it.

    The needed ones are shown with their least lines, as far as they fit, then grow up to what they fill: at first all
    of them a little, and beyond half of the height only if the others leave that free. Of the rest, those are shown
    that still fit; the last panel takes the remaining lines.
    """
    given = dict.fromkeys(ids, 0)
    needed, more = ({id: lines for id, lines in part.items() if id in given} for part in (_NEEDED, _MORE))
    free = _show(needed, given, height)
    for most in (_FAIR, height // 2, height):
        free = _grow(needed, wanted, given, free, most)
    free = _show(more, given, free)
    free = _grow(more, wanted, given, free, height)
    shown = [id for id, lines in given.items() if lines]
    if shown:
        given[shown[-1]] += free
    return given


def _show(least: Mapping[str, int], given: dict[str, int], free: int) -> int:
    for id, lines in least.items():
        needed = 1 + lines if any(given.values()) else min(1 + lines, free)
        if needed > free:
            break
        given[id] = needed
        free -= needed
    return free


def _grow(least: Mapping[str, int], wanted: Mapping[str, int], given: dict[str, int], free: int, most: int) -> int:
    for id in least:
        grown = max(0, min(free, min(1 + wanted[id], most) - given[id])) if given[id] else 0
        given[id] += grown
        free -= grown
    return free


def trends_height(groups: int) -> int:
    """Lines that the trends of so many groups would fill: curves of few groups are higher."""
    return 1 + groups * max(1, min(_HIGHEST, _TRENDS // max(1, groups)))


class _Figure(NamedTuple):
    """How one trend is written; `is_fault`: a value above 0 is a warning."""

    name: TrendName
    title: str
    text: Callable[[float], str]
    is_fault: bool = False


def _watts(value: float) -> str:
    """Power in at most seven characters: "566 W", "19.2 kW", "1.25 MW"."""
    if value < 9_999.5:
        return f"{value:.0f} W"
    return f"{value / 1e3:.3g} kW" if value < 999_500 else f"{value / 1e6:.3g} MW"


def _seconds(value: float) -> str:
    """Duration of a step in at most seven characters: "85 ms", "0.92 s", "41 s"."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    return (
        f"{value:.2f} s"
        if value < 9.995
        else f"{value:.0f} s"
        if value < 9_999.5
        else format.duration(int(value * 1e9))
    )


_FIGURES: Final = (
    _Figure("util", "GPU util", lambda value: f"{format.percent(value)} %"),
    _Figure("power", "power", _watts),
    _Figure("step", "step time", _seconds),
    _Figure("network", "network", lambda value: f"{format.size_compact(value)}/s"),
    _Figure("throttle", "throttle", lambda value: f"{format.percent(value)} %", is_fault=True),
)
#: Cells: of a value, of a curve at least and at most, between two figures, and of a group's title at least.
_VALUE, _CURVE, _LONGEST_CURVE, _GAP, _TITLE = 7, 6, 30, 2, 12
#: Cells of a figure's title where it stands before its curve, and curves that stand side by side then.
_LABEL, _SIDE = 10, 2
#: Lines of a curve at most, and of all trends.
_HIGHEST, _TRENDS = 6, 30


def trend_lines(groups: Sequence[TrendGroup], width: int, room: int) -> tuple[Line, ...]:
    """The trends in lines of `width` cells, `room` of them wanted: higher curves where there is room for these.

    Groups that do not fit are counted in the last line.
    """
    if not groups:
        return (plain("no data yet", "muted"),)
    figures = [figure for figure in _FIGURES if any(_known(group, figure) for group in groups)]
    if not figures:
        return (plain("no metrics yet", "muted"),)
    if width >= _TITLE + len(_FIGURES) * (_CURVE + 1 + _VALUE + _GAP):
        return _table(groups, figures, width, room)
    return _blocks(groups, figures, width, room)


def _known(group: TrendGroup, figure: _Figure) -> bool:
    trend = group.trends.get(figure.name)
    return trend is not None and trend.is_known


def _table(groups: Sequence[TrendGroup], figures: Sequence[_Figure], width: int, room: int) -> tuple[Line, ...]:
    """A heading, and under it each group with its curves side by side."""
    height = min(_HIGHEST, max(1, (room - 1) // len(groups)))
    shown = groups[: max(1, (room - 1) // height)]
    if len(shown) < len(groups):
        shown = groups[: max(1, room - 2)]
    longest = max(width_of(text) for group in shown for text in (group.title, _members(group)))
    least = len(figures) * (_CURVE + 1 + _VALUE + _GAP)
    title = max(_TITLE, min(longest, width - least))
    curve = min(_LONGEST_CURVE, (width - title) // len(figures) - 1 - _VALUE - _GAP)
    head = [Span(" " * title)]
    head += [Span(" " * _GAP + fit(figure.title, curve + 1 + _VALUE), "muted") for figure in figures]
    lines = [Line(tuple(head))]
    for group in shown:
        lines += _rows(group, figures, title, curve, height)
    return (*lines, *_more(groups, shown))


def _rows(group: TrendGroup, figures: Sequence[_Figure], title: int, curve: int, height: int) -> list[Line]:
    notes = [fit(part, title) for part in (clean(group.title), *wrapped(_members(group), title))]
    drawn = [(figure, group.trends.get(figure.name)) for figure in figures]
    curves = [_curve(figure, trend, curve, height) for figure, trend in drawn]
    lines = []
    for y in range(height):
        spans = [Span(notes[y] if y < len(notes) else " " * title, "strong" if y == 0 else "muted")]
        for (figure, trend), dots in zip(drawn, curves, strict=True):
            value = _value(figure, trend) if y == 0 else _highest(figure, trend) if y == 1 else Span("")
            spans += [Span(" " * _GAP), Span(dots[y], _style(figure, trend)), Span(" ")]
            spans.append(value._replace(text=fit(value.text, _VALUE)))
        lines.append(Line(tuple(spans), (group.kind, group.key)))
    return lines


def _blocks(groups: Sequence[TrendGroup], figures: Sequence[_Figure], width: int, room: int) -> tuple[Line, ...]:
    """Each group with a line of its own, and its curves below, as many side by side as there is room for."""
    aside = _SIDE if width >= _SIDE * (_LABEL + _CURVE + 1 + _VALUE + _GAP) else 1
    curve = min(_LONGEST_CURVE, (width - (aside - 1) * _GAP) // aside - _LABEL - 1 - _VALUE)
    lines: list[Line] = []
    shown: list[TrendGroup] = []
    for group in groups:
        own = [figure for figure in figures if _known(group, figure)]
        block = [Line((Span(fit(clean(group.title), width).rstrip(), "strong"),), (group.kind, group.key))]
        for start in range(0, len(own), aside):
            spans: list[Span] = []
            for figure in own[start : start + aside]:
                trend = group.trends[figure.name]
                spans += [Span(" " * _GAP)] if spans else []
                spans += [
                    Span(fit(figure.title, _LABEL), "muted"),
                    Span(_curve(figure, trend, curve, 1)[0], _style(figure, trend)),
                ]
                value = _value(figure, trend)
                spans += [Span(" "), value._replace(text=fit(value.text, _VALUE))]
            block.append(Line(tuple(spans), (group.kind, group.key)))
        if shown and len(lines) + len(block) + (len(shown) + 1 < len(groups)) > room:
            break
        shown.append(group)
        lines += block
    return (*lines, *_more(groups, shown))


def _more(groups: Sequence[TrendGroup], shown: Sequence[TrendGroup]) -> list[Line]:
    rest = len(groups) - len(shown)
    return [plain(f"and {format.plural(rest, 'further group')}", "muted")] if rest else []


def _members(group: TrendGroup) -> str:
    gpus = f", {format.plural(group.gpus, 'GPU')}" if group.gpus else ""
    return f"{format.plural(group.nodes, 'node')}{gpus}"


def _curve(figure: _Figure, trend: Trend | None, width: int, height: int) -> list[str]:
    """Bars of the five minutes, the newest at the right; blank where nothing is known.

    A bar shows the worst of its values: the lowest utilisation, else the highest value.
    """
    if trend is None or not trend.is_known:
        return [" " * width] * height
    lowest, highest = columns(trend.values, width)
    top = trend.high or max(1.25 * float(np.nanmax(trend.values)), 1e-9)
    return filled(lowest if figure.name == "util" else highest, height, top)


def _value(figure: _Figure, trend: Trend | None) -> Span:
    """The present value; a dash where it is not known, and how long a step has taken so far where it is overdue."""
    if trend is not None and trend.overdue_s is not None:
        return Span(f">{_seconds(trend.overdue_s)}", "strong")
    if trend is None or trend.now is None:
        return Span(format.UNKNOWN, "unknown")
    return Span(figure.text(trend.now), "warning" if figure.is_fault and trend.now > 0 else "text")


def _highest(figure: _Figure, trend: Trend | None) -> Span:
    """The highest value of the five minutes, in the second line of a curve."""
    most = float(np.nanmax(trend.values)) if trend is not None and trend.is_known else 0.0
    if most <= 0:
        return Span("")
    text = figure.text(most).replace(" ", "")
    return Span(f"↑{text}", "muted") if width_of(text) < _VALUE else Span("")


def _style(figure: _Figure, trend: Trend | None) -> str:
    is_fault = figure.is_fault and trend is not None and trend.is_known and float(np.nanmax(trend.values)) > 0
    return "warning" if is_fault else "accent"


# -- resources and events ----------------------------------------------------------------------------------------------

#: Cells of a resource's title and of its value over all, and of the time and the node of an event.
_RESOURCE, _ALL, _TIME, _NODE = 13, 20, 9, 12


def resource_lines(rows: Sequence[Resource], width: int, room: int = 0) -> tuple[Line, ...]:
    """One line a figure; with room for more, below each as many of the next worst nodes or GPUs as fit for all."""
    if not rows:
        return (plain("no data yet", "muted"),)
    share = min(_ALL, max(len(row.all_of_it) for row in rows))
    below = _others_shown(rows, room)
    shown = [text for row in rows for text in (row.worst, *(other.text for other in row.others[:below]))]
    worst = max(map(width_of, shown), default=0)
    lines = []
    for row in rows:
        style = "warning" if row.is_bad else "text"
        spans = [
            Span(fit(row.title, _RESOURCE), "muted"), Span(fit(row.all_of_it, share)), Span("  "),
            Span(fit(row.worst, worst), style), Span("  "), Span(clean(row.where), style if row.is_bad else "muted"),
        ]  # fmt: skip
        lines.append(Line(cut(spans, width), row.key))
        for other in row.others[:below]:
            spans = [
                Span(" " * (_RESOURCE + share + 2)), Span(fit(other.text, worst), "muted"), Span("  "),
                Span(clean(other.name), "muted"),
            ]  # fmt: skip
            lines.append(Line(cut(spans, width), other.key))
    return tuple(lines)


def _others_shown(rows: Sequence[Resource], room: int) -> int:
    """Lines below each figure: the most with which all of them still fit."""
    most = max(len(row.others) for row in rows)
    return max((n for n in range(most + 1) if sum(1 + len(row.others[:n]) for row in rows) <= room), default=0)


def event_lines(events: EventLog, most: int, width: int, room: int = 0) -> tuple[Line, ...]:
    """The newest events, newest first: time, node, what happened.

    Long ones are wrapped as far as `room` lines, beyond one for each event, allow that: the newest first.
    """
    rows = events.newest(lambda record: True, most)
    lines: list[Line] = []
    spare = max(0, room - len(rows))
    for row in rows:
        added = _event(row, width, 1 + spare)
        spare -= len(added) - 1
        lines += added
    return tuple(lines) or (plain("no events yet", "muted"),)


def _event(row: EventRow, width: int, most: int) -> list[Line]:
    """An event in at most `most` lines; what does not fit is cut."""
    when = format.clock_time(row.record.rx) if row.record.rx else format.UNKNOWN
    head = (Span(fit(when, _TIME), "muted"), row.mark, Span(" "), Span(fit(row.node, _NODE), "muted"), Span(" "))
    beside, target = sum(width_of(span.text) for span in head), PageItem("event", row.key)
    parts = wrapped(row.span.text, max(12, width - beside))
    if most == 1 or len(parts) < 2:
        return [Line(cut((*head, row.span), width), target)]
    parts = [*parts[: most - 1], " ".join(parts[most - 1 :])] if len(parts) > most else parts
    below = [(Span(" " * beside), Span(part, row.span.style)) for part in parts[1:]]
    return [Line(cut(spans, width), target) for spans in ((*head, Span(parts[0], row.span.style)), *below)]
