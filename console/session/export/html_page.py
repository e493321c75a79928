"""`html`: a self-contained page for a ticket: verdicts, findings, stacks, plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import BinaryIO, Final

import numpy as np

from ...core.store import Store
from ...monitor.captures import newest_of
from ...monitor.hang import hang_models, verdicts
from ...present.stacks import captures_text
from ...present.verdict import verdict_text
from ...records import Gap, Gpu
from ...records.metrics import HISTORY, fields_for
from ...text import format
from ...text.nodeset_fold import fold, fold_ranks
from ...text.sanitize import printable_lines
from ..format.table_schema import unit_of
from ..store_snapshot import metric_history
from .gpu_curves import Curves, Floats, folded_rows, median
from .slice import SampleClock, SessionSlice

#: GPU metrics with a plot.
_METRICS: Final = fields_for(Gpu, "page")
#: SVG units: width and height of a line plot, its left margin, height of a heat map's row.
_WIDTH, _HEIGHT, _LEFT, _ROW = 960, 150, 70, 10
#: Width of a character of labels, per unit of font size.
_CHARACTER: Final = 0.6
#: Colours of minimum, median and maximum.
_COLORS: Final = ("#7aa2d6", "#2457a6", "#b3261e")
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1d2127; }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #c9d0d8 }
pre { background: #f3f5f7; padding: .8em 1em; overflow-x: auto; font-size: 12.5px }
table { border-collapse: collapse } td, th { padding: .2em .8em .2em 0; text-align: left; vertical-align: top }
.error { color: #b3261e } .warning { color: #8a5300 } .muted { color: #66707c } svg { max-width: 100% }
@media (prefers-color-scheme: dark) { body { background: #14171b; color: #dde3ea } pre { background: #1e2329 } }
"""


def write(source: SessionSlice, out: BinaryIO) -> None:
    """Write the page of a session. Raises OSError, and what reading the session raises."""
    store, curves, clock = Store(), Curves(_METRICS), SampleClock(source)
    gaps: list[Gap] = []
    for record in source.records():
        store.apply([record])
        curves.add(record, clock.at(record))
        gaps += [record] if isinstance(record, Gap) else []
    for line in _page(_sections(source.name, store, gaps, _began(source, store)), curves):
        out.write(line.encode(errors="replace") + b"\n")


def _began(source: SessionSlice, store: Store) -> int:
    """Begin of the slice, ns; the initial state arrived before."""
    if source.choice.from_rx is not None:
        return source.choice.from_rx
    began = source.meta.parts[0].began if source.meta.parts else 0
    return began if store.started_rx <= began <= store.newest_rx else store.started_rx


def page_of(name: str, store: Store) -> Callable[[], str]:
    """Return a function that renders the page of a store; it may run in a thread. What may change is copied now."""
    gaps = [record for _, record in store.events if isinstance(record, Gap)]
    sections = list(_sections(name, store, gaps))
    history = metric_history(store, "gpu")

    def render() -> str:
        curves = Curves(_METRICS)
        if history is not None:
            gpus = {key: (head["node"], head["index"], head["uuid"]) for key, head in history.heads.items()
                    if head["index"] is not None}  # fmt: skip
            curves = Curves.of_history(_METRICS, history.metrics, HISTORY["gpu"], gpus)
        return "\n".join(_page(sections, curves)) + "\n"

    return render


def _page(sections: Iterable[str], curves: Curves) -> Iterator[str]:
    yield from sections
    yield from _plots(curves)
    yield "</html>"


def _sections(name: str, store: Store, gaps: Sequence[Gap], since: int = 0) -> Iterator[str]:
    """The page up to its plots. `since` is its begin in ns; 0: that of the oldest record."""
    yield f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(name)} · gconsole</title>"
    # texts of nodes must not run or load anything, even if they were parsed as markup
    yield "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield from _head(name, store, since or store.started_rx)
    yield from _verdicts(store)
    yield from _findings(store)
    yield from _gaps(gaps)
    yield from _stacks(store)


def _head(name: str, store: Store, since: int) -> Iterator[str]:
    cluster = store.console.cluster if store.console else ""
    begun = format.date_time_zone(since)
    lasted = max(0, store.newest_rx - since) if since else None
    yield f"<h1>{escape(name)}</h1>"
    ranks = [now.rank.rank for now in store.ranks.values() if now.rank.rank is not None]
    facts = [("cluster", cluster or "–"), ("began", begun), ("lasted", format.duration(lasted)),
             ("nodes", fold(list(store.nodes)) or "–"), ("GPUs", str(len(store.gpus))),
             ("ranks", f"{len(ranks)}: {fold_ranks(ranks)}" if ranks else "–")]  # fmt: skip
    simulated = [now.name for now in store.nodes.values() if now.node is not None and now.node.simulated]
    if simulated:
        facts.append(("SIM", f"simulated: {fold(simulated)}"))
    rows = "".join(f"<tr><th>{escape(key)}<td>{escape(value)}" for key, value in facts)
    yield f"<table>{rows}</table>"


def _verdicts(store: Store) -> Iterator[str]:
    results = verdicts(store)
    if results:
        yield "<h2>Verdict</h2>"
        yield from (f"<pre>{escape(printable_lines(verdict_text(verdict)))}</pre>" for verdict in results)


def _findings(store: Store) -> Iterator[str]:
    order = {"error": 0, "warning": 1, "info": 2}
    findings = sorted(
        store.findings.values(), key=lambda finding: (order[finding.severity], finding.first_seen, finding.id)
    )
    yield f"<h2>Findings: {len(findings)}</h2>"
    if findings:
        rows = (
            f"<tr><td class={finding.severity}>{finding.severity}<td>{escape(finding.id)}<td>{escape(finding.text)}"
            f"<td class=muted>{format.clock_time(finding.first_seen)}"
            + (f" to {format.clock_time(finding.cleared_at)}" if finding.cleared_at else "")
            for finding in findings
        )
        yield f"<table>{''.join(rows)}</table>"


def _gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    """What is missing, by node, source and reason: curves have holes there."""
    if not gaps:
        return
    groups: dict[tuple[str, str, str], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.node, gap.source, gap.reason), []).append(gap)
    counts = [gap.count for gap in gaps if gap.count is not None]
    yield f"<h2>Gaps: {format.count(sum(counts))} records or ticks are missing</h2><table>"
    for (node, source, reason), some in groups.items():
        numbers = [gap.count for gap in some if gap.count is not None]
        count = format.count(sum(numbers)) if numbers else format.UNKNOWN
        times = f"{format.clock_time(some[0].rx)}" + (f" to {format.clock_time(some[-1].rx)}" if len(some) > 1 else "")
        yield (f"<tr><td>{escape(node)}<td>{count}<td>{escape(source)}<td>{escape(reason)}"
               f"<td class=muted>{times}")  # fmt: skip
    yield "</table>"


def _stacks(store: Store) -> Iterator[str]:
    text = captures_text(newest_of(store.captures.values(), hang_models(store)))
    if text:
        yield f"<h2>Stacks</h2><pre>{escape(printable_lines(text))}</pre>"


def _plots(curves: Curves) -> Iterator[str]:
    for metric in _METRICS:
        names, table = curves.table(metric)
        if not names:
            continue
        unit = unit_of(metric)
        yield f"<h2>{escape(metric)} <span class=muted>{escape(unit)}, {len(names)} GPUs</span></h2>"
        lines = [np.fmin.reduce(table, axis=0), median(table), np.fmax.reduce(table, axis=0)]
        yield line_svg(lines, ("min", "median", "max"), curves.seconds, unit)
        yield heat_svg(names, table, unit)


# -- SVG ---------------------------------------------------------------------------------------------------------------


def line_svg(lines: Sequence[Floats], names: Sequence[str], seconds: int, unit: str) -> str:
    """Return a line plot of curves over the same time; unknown values are gaps."""
    values = np.concatenate(list(lines))
    largest = float(np.nanmax(values)) if (~np.isnan(values)).any() else 1.0
    top = largest if largest > 0 else 1.0
    labels = {share: f"{_axis_label(share * top)} {unit}" for share in (0.0, 0.5, 1.0)}
    left = _margin(labels.values(), 11)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 30}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for share, label in labels.items():
        y = 10 + (1 - share) * (_HEIGHT - 20)
        parts.append(f'<line x1="{left}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#8884"/>')
        parts.append(_text(left - 6, y + 4, escape(label)))
    for line, name, color in zip(lines, names, _COLORS, strict=True):
        path = f'<path d="{_path(line, top, left)}" fill="none" stroke="{color}">'
        parts.append(f"{path}<title>{escape(name)}</title></path>")
    legend = "".join(
        f'<tspan fill="{color}">{escape(name)}  </tspan>' for name, color in zip(names, _COLORS, strict=True)
    )
    parts.append(f'<text x="{left}" y="{_HEIGHT + 18}" font-size="12">{legend}</text>')
    parts.append(_text(_WIDTH, _HEIGHT + 18, f"{seconds} s"))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y:.0f}" text-anchor="end" font-size="11" fill="gray">{text}</text>'


def _margin(labels: Iterable[str], font_size: int) -> int:
    """Width of the longest label before a plot, with the space after it."""
    return max(_LEFT, round(max(map(len, labels), default=0) * font_size * _CHARACTER) + 10)


def _path(line: Floats, top: float, left: int) -> str:
    """The commands of a curve; a value between unknown ones is a short line."""
    step = (_WIDTH - left) / max(1, len(line) - 1)
    commands, command = [], "M"
    for column, value in enumerate(line):
        if np.isnan(value):
            command = "M"
            continue
        y = 10 + (1 - value / top) * (_HEIGHT - 20)
        commands.append(f"{command}{left + column * step:.1f} {y:.1f}")
        if command == "M" and (column + 1 == len(line) or np.isnan(line[column + 1])):
            commands.append(f"h{max(2.0, step / 2):.1f}")
        command = "L"
    return "".join(commands)


def heat_svg(names: Sequence[str], table: Floats, unit: str = "") -> str:
    """Return a heat map, a row per GPU or group of GPUs, and its key: white where the value is unknown."""
    names, table = folded_rows(names, table)
    values = table[~np.isnan(table)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    height = len(names) * _ROW
    left = _margin(names, 9)
    step = (_WIDTH - left) / max(1, table.shape[1])
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height + 22}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for row, (name, cells) in enumerate(zip(names, table, strict=True)):
        y = row * _ROW
        parts.append(f'<text x="{left - 6}" y="{y + _ROW - 2}" text-anchor="end" font-size="9" fill="gray">'
                     f"{escape(name)}</text>")  # fmt: skip
        parts += [
            f'<rect x="{left + column * step:.1f}" y="{y}" width="{length * step:.2f}" height="{_ROW - 1}" '
            f'fill="{_shade(value, low, high)}"/>'
            for column, length, value in _runs(cells, low, high)
        ]
    return "".join([*parts, *_heat_key(left, height + 8, low, high, unit), "</svg>"])


def _heat_key(left: int, y: int, low: float, high: float, unit: str) -> Iterator[str]:
    """The shades of a heat map with the values of the lightest and the darkest."""
    text = f'y="{y + 9}" font-size="11" fill="gray"'
    lowest = f"{_axis_label(low)} {unit}".strip()
    begin = left + round(len(lowest) * 11 * _CHARACTER) + 6
    yield f'<text x="{left}" {text}>{escape(lowest)}</text>'
    for level in range(16):
        shade = _shade(low + level / 15 * (high - low), low, high)
        yield f'<rect x="{begin + level * 8}" y="{y}" width="8" height="10" fill="{shade}"/>'
    yield f'<text x="{begin + 16 * 8 + 6}" {text}>{escape(f"{_axis_label(high)} {unit}".strip())}</text>'


def _runs(values: Floats, low: float, high: float) -> list[tuple[int, int, float]]:
    """Neighbours of the same shade as one: (first column, columns, value)."""
    runs: list[tuple[int, int, float]] = []
    for column, value in enumerate(values):
        if runs and _shade(runs[-1][2], low, high) == _shade(value, low, high):
            first, length, same = runs[-1]
            runs[-1] = (first, length + 1, same)
        else:
            runs.append((column, 1, float(value)))
    return [run for run in runs if not np.isnan(run[2])]


def _shade(value: float, low: float, high: float) -> str:
    if np.isnan(value):
        return "none"
    level = round(15 * (value - low) / (high - low)) if high > low else 15
    return f"hsl(215 65% {92 - 4 * level}%)"


def _axis_label(value: float) -> str:
    """A value in four characters with a decimal prefix."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 9_999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if abs(value) >= 99.5 or value == int(value) else f"{value:.1f}{unit}"
