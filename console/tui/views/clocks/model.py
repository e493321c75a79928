"""The Clocks view: columns, filter fields and groupings of the list, the page of a clock, the matrix of edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ....present.clocks import ClockRow, ClockSummary, gpu_lines, service_text, state_text
from ....present.spans import GLYPHS, Line, Span, cut, plain
from ....records import ClockNode, ClockWindow
from ....records.metrics import CLOCK as METRICS
from ....records.metrics import Metric, Noise
from ....text import format
from ....text.cells import clean
from ....text.format import micro
from ....text.nodeset_fold import natural
from ...models.column import ColumnField, column_field, keyed, metric_columns, plain_style, text_or_unknown
from ...models.detail import Fact, fact_lines
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.list_kind import ListKind, attribute, state_order
from ...models.plot import Plot
from ..topology.model import CellGrid, MatrixCell


def _style(row: ClockRow, text: str) -> str:
    return "stale" if row.status == "stale" and text != format.UNKNOWN else plain_style(row, text)


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.1f}"


def _warned(row: ClockRow, text: str) -> str:
    return "warning" if text != format.UNKNOWN and row.status != "ok" else "muted"


def _claimed(row: ClockRow, text: str) -> str:
    source = row.source
    return "warning" if source is not None and source.synced is False else _style(row, text)


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[ClockRow], ...]]] = {
    "drift": (
        column_field("method", "method", attribute("line", "method"), text_or_unknown, _style),
        column_field("stamps", "stamps", attribute("line", "stamps"), text_or_unknown, _style),
    ),
    "edges": (
        column_field("loss", "loss %", lambda row: row.loss_pct, _percent, _style, noise=Noise(absolute=0.2)),
        column_field(
            "residual", "fit residual", lambda row: row.residual_ns, format.micro, _style, noise=Noise(share=0.2)
        ),
    ),
}
FIELDS: Final[dict[str, ColumnField[ClockRow]]] = keyed(
    column_field("state", "state", lambda row: row, state_text, lambda row, _: row.status,
        lambda row: state_order((row.status, row.word))),
    column_field("node", "node", lambda row: row.node, clean, _style, natural),
    *metric_columns(METRICS, lambda metric, row: metric.read(row.line), _style, _BETWEEN),
    column_field("service", "time sync", lambda row: service_text(row.source), text_or_unknown, _claimed, natural),
    column_field("age", "age", lambda row: row.age_ns, format.age, _style, noise=Noise(absolute=2e9)),
    column_field("warnings", "warnings", lambda row: " ".join(row.line.warnings) if row.line else None,
        text_or_unknown, _warned),
    column_field("cost", "CPU %", attribute("cost", "cpu_pct"), format.percent, _style, noise=Noise(absolute=1.0)),
)  # fmt: skip


def _figure(metric: Metric, entry: RowInContext[ClockRow]) -> Value:
    """A metric in the unit of its column: nanoseconds as µs."""
    value: float | None = metric.read(entry.row.line)
    return value / 1000 if value is not None and metric.field.endswith("_ns") else value


def _method(entry: RowInContext[ClockRow]) -> str | None:
    return entry.row.line.method if entry.row.line else None


def _words(entry: RowInContext[ClockRow]) -> Iterable[str]:
    row = entry.row
    yield row.word
    yield clean(row.node)
    yield clean(service_text(row.source) or "")
    yield from row.line.warnings if row.line else ()


VOCABULARY: Final[Vocabulary[RowInContext[ClockRow]]] = Vocabulary(
    (
        FilterField("state", "word", lambda entry: (entry.row.word, entry.row.status), "ok, wide, stale, unknown, …"),
        FilterField("node", "word", lambda entry: clean(entry.row.node), "node name, e.g. node0[1-3]*"),
        FilterField("tag", "word", lambda entry: entry.context.tags(entry.row.node), "tag in hosts.toml"),
        *metric_filters(METRICS, _figure),
        FilterField("loss", "number", lambda entry: entry.row.loss_pct, "lost probes in %"),
        FilterField("method", "word", _method, "probe, ssh, ntp, ptp or system"),
        FilterField("warning", "word", lambda entry: entry.row.line.warnings if entry.row.line else (),
                    "step, slew, asym, wide, …"),
        FilterField("service", "text", lambda entry: service_text(entry.row.source), "part of the time sync status"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[ClockRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("method", _method),
    Grouping("service", lambda entry: entry.row.source.daemon if entry.row.source else None),
)


def _object(row: ClockRow) -> dict[str, Any]:
    return {
        "node": row.node, "state": row.word, "status": row.status, "age_ns": row.age_ns, "loss_pct": row.loss_pct,
        "residual_ns": row.residual_ns, "clock_node": row.line, "clock_source": row.source, "clock_cost": row.cost,
    }  # fmt: skip


KIND: Final = ListKind(
    "clock", "node", FIELDS, VOCABULARY, GROUPINGS, lambda row: (row.status, row.word), _object, lambda row: row.node
)


#: Windows listed on the page.
_LISTED = 64


def fact_lines_of(row: ClockRow, width: int) -> tuple[Line, ...]:
    """Facts about one clock, its GPU timers, edges, and past windows, newest first."""
    gpus = (*gpu_lines(row, width), plain("")) if row.gpus else ()
    edges, past = _edge_lines(row, width), _past_lines(row, width)
    return (*fact_lines(facts(row), width), plain(""), *gpus, *edges, plain(""), *past)


def facts(row: ClockRow) -> list[Fact]:
    """Estimate, time service and probe cost of one clock."""
    line, result = row.line, []
    if line is None or line.at_common is None:
        result.append(Fact("reference", row.note.text if row.note else "unknown", row.status))
    else:
        if row.is_reference:
            result.append(Fact("reference", "this node"))
        bound = "unknown" if line.bound_ns is None else f"± {micro(line.bound_ns)} µs, valid under any path asymmetry"
        against = f"CLOCK_REALTIME relative to {clean(line.reference)}"
        result.append(Fact("offset", f"{micro(line.offset_ns, signed=True)} µs {against}"))
        result.append(Fact("bound", bound, "text" if line.bound_ns is not None else "unknown"))
        if line.drift_ppm is not None:
            limit = "" if line.drift_bound_ppm is None else f" ± {line.drift_bound_ppm:.2f} (this window)"
            result.append(Fact("drift", f"{line.drift_ppm:+.3f} ppm{limit}"))
        if line.repeat_ns is not None:
            result.append(Fact("repeatability", f"{micro(line.repeat_ns)} µs (not accuracy)"))
        stamps = f", {line.stamps.replace('_', ' ')} stamps" if line.stamps else ""
        result.append(Fact("method", f"{line.method}{stamps}, {line.edges} edges"))
        result.append(Fact("age", format.age(row.age_ns), "stale" if row.status == "stale" else "text"))
    if line is not None and line.warnings:
        result.append(Fact("warnings", " ".join(line.warnings), "warning"))
    source = row.source
    if source is not None:
        result.append(Fact("", ""))
        result.append(Fact("time sync", clean(service_text(source) or format.UNKNOWN),
                          "warning" if source.synced is False else "text"))  # fmt: skip
        if source.source:
            result.append(Fact("sync source", clean(source.source)))
        if source.text:
            result.append(Fact("sync status", clean(source.text)))
    if row.cost is not None:
        cost = row.cost
        text = f"{cost.cpu_pct:.1f} % of a core, {cost.tx_packets_s:.0f} packets/s, "
        result.append(Fact("probe cost", f"{text}{format.byte_rate(cost.records_bytes_s)} of records"))
    return result


def _edge_lines(row: ClockRow, width: int) -> list[Line]:
    lines = [Line((Span("EDGES", "accent"), Span(f" {len(row.edges)}", "muted")))]
    for edge in sorted(row.edges, key=lambda window: natural(window.dst if window.node == row.node else window.node)):
        other, arrow = (edge.dst, "→") if edge.node == row.node else (edge.node, "←")
        style = "warning" if edge.flagged or edge.status != "ok" else "text"
        text = (
            f"±{micro(edge.bound_ns)} µs  rtt {micro(edge.min_rtt_ns)}  residual {micro(edge.residual_ns, signed=True)}"
            f"  kept {edge.kept}/{edge.pairs}  {edge.method}"
        )
        words = [word for word, holds in (("inconsistent", edge.flagged), ("UDP blocked", edge.udp_blocked)) if holds]
        words += [edge.status.replace("_", " ")] if edge.status != "ok" else []
        remark = Span("  " + ", ".join(words), "warning")
        lines.append(Line(cut((Span(f"{arrow} {clean(other)}  ", "muted"), Span(text, style), remark), width)))
    return lines


def _past_lines(row: ClockRow, width: int) -> list[Line]:
    lines = [Line((Span("WINDOWS", "accent"), Span(f" {len(row.past)}", "muted")))]
    for line in reversed(row.past[-_LISTED:]):
        when = format.clock_time(line.rx)
        text = (
            f"{micro(line.offset_ns, signed=True):>10} ±{micro(line.bound_ns):<8} µs  "
            f"drift {format.UNKNOWN if line.drift_ppm is None else f'{line.drift_ppm:+.2f}'} ppm  {line.method}"
        )
        words = " ".join((*(() if line.status == "ok" else (line.status,)), *line.warnings))
        spans = (Span(f"{when}  ", "muted"), Span(text), Span(f"  {words}", "warning"))
        lines.append(Line(cut(spans, width)))
    return lines


def offset_plot(row: ClockRow) -> Plot:
    """Offset in µs over the past windows, evenly spaced; the axis is centred on the mean."""
    offsets = [window.offset_ns for window in row.past]
    values = np.array([np.nan if window is None else window / 1000 for window in offsets], dtype=np.float64)
    middle = float(np.nanmean(values)) if np.isfinite(values).any() else 0.0
    reach = float(np.nanmax(np.abs(values - middle), initial=1.0)) if values.size else 1.0
    return Plot("offset", "µs", values, _step_s(row.past), low=middle - reach, high=middle + reach)


def _step_s(past: Sequence[ClockNode]) -> float:
    if len(past) < 2:
        return 1.0
    return max(1.0, (past[-1].rx - past[0].rx) / 1e9 / (len(past) - 1))


# -- edges -------------------------------------------------------------------------------------------------------------


def edge_grid(seen: ClockSummary) -> CellGrid:
    """Node × node: error bound of each edge in µs; `▲` if other edges contradict it, `✖` without a bound."""
    names = sorted({name for window in seen.windows for name in (window.node, window.dst)}, key=natural)
    number = {name: place for place, name in enumerate(names)}
    cells = [[MatrixCell("·", "muted") for _ in names] for _ in names]
    for place in range(len(names)):
        cells[place][place] = MatrixCell("X", "muted")
    for window in seen.windows:
        cell = _edge_cell(window)
        cells[number[window.node]][number[window.dst]] = cells[number[window.dst]][number[window.node]] = cell
    labels = tuple(clean(name) for name in names)
    return CellGrid(labels, without_common_start(labels), tuple(tuple(row) for row in cells))


def without_common_start(names: Sequence[str]) -> tuple[str, ...]:
    """The names without their common prefix: `node001` and `node064` are `001` and `064`."""
    if len(names) < 2:
        return tuple(names)
    least, most = min(names), max(names)  # in lexical order: a prefix of both is one of all
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False)))
    start = least[:alike].rstrip("0123456789")
    return tuple(name[len(start) :] or name for name in names)


def _edge_cell(window: ClockWindow) -> MatrixCell:
    if window.bound_ns is None:
        return MatrixCell(f"{GLYPHS['failed']}{window.status.replace('_', ' ')}", "failed")
    if window.flagged:
        return MatrixCell(f"{GLYPHS['warning']}{micro(window.bound_ns)}", "warning")
    return MatrixCell(f"{micro(window.bound_ns)}{'s' if window.method == 'ssh' else ''}", "text")


def edge_text(seen: ClockSummary, row: int, column: int) -> str:
    """One line about the edge under the cursor."""
    names = sorted({name for window in seen.windows for name in (window.node, window.dst)}, key=natural)
    if not (row < len(names) and column < len(names)) or row == column:
        return "cell: error bound of the edge in µs; s: measured over SSH"
    ends = {names[row], names[column]}
    edge = next((window for window in seen.windows if {window.node, window.dst} == ends), None)
    if edge is None:
        return f"no probes between {clean(names[row])} and {clean(names[column])}"
    blocked = "  UDP blocked" if edge.udp_blocked else ""
    return (
        f"{clean(edge.node)} → {clean(edge.dst)}  {edge.status.replace('_', ' ')}  ±{micro(edge.bound_ns)} µs  "
        f"rtt {micro(edge.min_rtt_ns)} µs  residual {micro(edge.residual_ns, signed=True)} µs  "
        f"kept {edge.kept} of {edge.pairs}  {edge.method}{blocked}"
    )
