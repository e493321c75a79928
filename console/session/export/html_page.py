"""`html`: one page that needs nothing else, for a ticket: the verdicts, the findings, the stacks, the figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import BinaryIO, Final

import numpy as np

from ...core.store import Store
from ...monitor.hang import verdicts
from ...present.verdict import verdict_text
from ...records import Gpu
from ...records.metrics import HISTORY, fields_for
from ...report.captures import capture_text
from ...text import format
from ...text.nodeset_fold import fold, fold_ranks
from ...text.sanitize import printable_lines
from ..format.table_schema import unit_of
from ..store_snapshot import metric_history
from .gpu_curves import Curves, Floats, folded_rows, median
from .slice import SessionSlice

#: Figures of GPUs that are drawn, each over all of them.
_FIGURES: Final = fields_for(Gpu, "page")
#: SVG units: width and height of a line plot, its left margin, height of a heat map's row.
_WIDTH, _HEIGHT, _LEFT, _ROW = 960, 150, 70, 10
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


def write(what: SessionSlice, out: BinaryIO) -> None:
    """Write the page. Raises OSError, and what reading the session raises."""
    store, curves = Store(), Curves(_FIGURES)
    for record in what.records():
        store.apply([record])
        curves.add(record)
    for line in _page(_told(what.meta.name or what.path.name, store, _began(what, store)), curves):
        out.write(line.encode(errors="replace") + b"\n")


def _began(what: SessionSlice, store: Store) -> int:
    """When it begins: what it begins with had arrived before."""
    if what.choice.from_rx is not None:
        return what.choice.from_rx
    began = what.meta.parts[0].began if what.meta.parts else 0
    return began if store.started_rx <= began <= store.newest_rx else store.started_rx


def page_of(name: str, store: Store) -> Callable[[], str]:
    """The same page of a console that watches, or that plays a session: of what its store knows and keeps.

    What changes is taken at once; what is returned draws the plots, may take long, and may run in a thread.
    """
    told = list(_told(name, store))
    kept = metric_history(store, "gpu")

    def drawn() -> str:
        curves = Curves(_FIGURES)
        if kept is not None:
            names = {key: (head["node"], head["index"], head["uuid"]) for key, head in kept.heads.items()
                     if head["index"] is not None}  # fmt: skip
            curves = Curves.of_history(_FIGURES, kept.metrics, HISTORY["gpu"], names)
        return "\n".join(_page(iter(told), curves)) + "\n"

    return drawn


def _page(told: Iterator[str], curves: Curves) -> Iterator[str]:
    yield from told
    yield from _plots(curves)
    yield "</html>"


def _told(name: str, store: Store, since: int = 0) -> Iterator[str]:
    """What the page says before its plots. `since` is when it begins, where that is not with its oldest record."""
    yield f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(name)} · gconsole</title>"
    # nothing that a node wrote may run or load anything, even if it were taken for markup
    yield "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style>"
    yield from _head(name, store, since or store.started_rx)
    yield from _verdicts(store)
    yield from _findings(store)
    yield from _stacks(store)


def _head(name: str, store: Store, since: int) -> Iterator[str]:
    cluster = store.console.cluster if store.console else ""
    begun = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(since / 1e9)) if since else "–"
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
    found = verdicts(store)
    if found:
        yield "<h2>Verdict</h2>"
        yield from (f"<pre>{escape(printable_lines(verdict_text(verdict)))}</pre>" for verdict in found)


def _findings(store: Store) -> Iterator[str]:
    order = {"error": 0, "warning": 1, "info": 2}
    found = sorted(
        store.findings.values(), key=lambda finding: (order[finding.severity], finding.first_seen, finding.id)
    )
    yield f"<h2>Findings: {len(found)}</h2>"
    if found:
        rows = (
            f"<tr><td class={one.severity}>{one.severity}<td>{escape(one.id)}<td>{escape(one.text)}"
            f"<td class=muted>{format.clock_time(one.first_seen)}"
            + (f" to {format.clock_time(one.cleared_at)}" if one.cleared_at else "")
            for one in found
        )
        yield f"<table>{''.join(rows)}</table>"


def _stacks(store: Store) -> Iterator[str]:
    text = capture_text(store)
    if text:
        yield f"<h2>Stacks</h2><pre>{escape(printable_lines(text))}</pre>"


def _plots(curves: Curves) -> Iterator[str]:
    for figure in _FIGURES:
        names, table = curves.table(figure)
        if not names:
            continue
        unit = unit_of(figure)
        yield f"<h2>{escape(figure)} <span class=muted>{escape(unit)}, {len(names)} GPUs</span></h2>"
        lines = [np.fmin.reduce(table, axis=0), median(table), np.fmax.reduce(table, axis=0)]
        yield line_svg(lines, ("least", "median", "most"), curves.seconds, unit)
        yield heat_svg(names, table)


# -- SVG ---------------------------------------------------------------------------------------------------------------


def line_svg(lines: Sequence[Floats], names: Sequence[str], seconds: int, unit: str) -> str:
    """Curves over the same time; what is unknown is a gap."""
    known = np.concatenate(list(lines))
    most = float(np.nanmax(known)) if (~np.isnan(known)).any() else 1.0
    top = most if most > 0 else 1.0
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 30}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for share in (0.0, 0.5, 1.0):
        y = 10 + (1 - share) * (_HEIGHT - 20)
        label = escape(f"{short(share * top)} {unit}")
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.0f}" y2="{y:.0f}" stroke="#8884"/>')
        parts.append(_text(_LEFT - 6, y + 4, label))
    for line, name, color in zip(lines, names, _COLORS, strict=True):
        parts.append(f'<path d="{_path(line, top)}" fill="none" stroke="{color}"><title>{escape(name)}</title></path>')
    legend = "".join(
        f'<tspan fill="{color}">{escape(name)}  </tspan>' for name, color in zip(names, _COLORS, strict=True)
    )
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT + 18}" font-size="12">{legend}</text>')
    parts.append(_text(_WIDTH, _HEIGHT + 18, f"{seconds} s"))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y:.0f}" text-anchor="end" font-size="11" fill="gray">{text}</text>'


def _path(line: Floats, top: float) -> str:
    step = (_WIDTH - _LEFT) / max(1, len(line) - 1)
    words, is_down = [], False
    for at, value in enumerate(line):
        if np.isnan(value):
            is_down = False
            continue
        y = 10 + (1 - value / top) * (_HEIGHT - 20)
        words.append(f"{'L' if is_down else 'M'}{_LEFT + at * step:.1f} {y:.1f}")
        is_down = True
    return "".join(words)


def heat_svg(names: Sequence[str], table: Floats) -> str:
    """A row a GPU, or a row a few of them, dark where the figure is high; white where nothing is known."""
    names, table = folded_rows(names, table)
    known = table[~np.isnan(table)]
    least, most = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    height = len(names) * _ROW
    step = (_WIDTH - _LEFT * 2) / max(1, table.shape[1])
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for row, (name, values) in enumerate(zip(names, table, strict=True)):
        y = row * _ROW
        parts.append(f'<text x="{_LEFT * 2 - 6}" y="{y + _ROW - 2}" text-anchor="end" font-size="9" fill="gray">'
                     f"{escape(name)}</text>")  # fmt: skip
        parts += [
            f'<rect x="{_LEFT * 2 + at * step:.1f}" y="{y}" width="{length * step:.2f}" height="{_ROW - 1}" '
            f'fill="{_shade(value, least, most)}"/>'
            for at, length, value in _runs(values, least, most)
        ]
    return "".join([*parts, "</svg>"])


def _runs(values: Floats, least: float, most: float) -> list[tuple[int, int, float]]:
    """Neighbours of the same shade as one: (first, how many, value)."""
    found: list[tuple[int, int, float]] = []
    for at, value in enumerate(values):
        if found and _shade(found[-1][2], least, most) == _shade(value, least, most):
            first, length, same = found[-1]
            found[-1] = (first, length + 1, same)
        else:
            found.append((at, 1, float(value)))
    return [run for run in found if not np.isnan(run[2])]


def _shade(value: float, least: float, most: float) -> str:
    if np.isnan(value):
        return "none"
    level = round(15 * (value - least) / (most - least)) if most > least else 15
    return f"hsl(215 65% {92 - 4 * level}%)"


def short(value: float) -> str:
    """A figure of an axis."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 9_999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.0f}{unit}" if abs(value) >= 99.5 or value == int(value) else f"{value:.1f}{unit}"
