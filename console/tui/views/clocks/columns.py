"""The Clocks view as a list: what its columns say, how they sort, what is filtered, grouped and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.field import Field, field, integer, word
from ...models.filter_language import Field as FilterField
from ...models.filter_language import Value, Vocabulary
from ...models.grouping import NONE, Grouping
from ...models.list_kind import Kind
from ...models.row_context import Seen
from ...models.steady_order import Noise
from .model import ClockRow, micro, service_text, state_text

_BOUND = Noise(share=0.2)


def _style(row: ClockRow, text: str) -> str:
    if text == format.UNKNOWN:
        return "muted"
    return "stale" if row.status == "stale" else "text"


def _of_line(name: str) -> Callable[[ClockRow], Any]:
    return lambda row: getattr(row.line, name) if row.line else None


def _offset(ns: int | None) -> str:
    return micro(ns, signed=True)


def _ppm(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:+.2f}"


def _percent(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.1f}"


def _warned(row: ClockRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "warning" if row.status != "ok" else "muted"


def _claimed(row: ClockRow, text: str) -> str:
    source = row.source
    return "warning" if source is not None and source.synced is False else _style(row, text)


FIELDS: dict[str, Field[ClockRow]] = {
    found.key: found
    for found in (
        field("state", "state", lambda row: row, state_text, lambda row, _: row.status,
              lambda row: (BY_WEIGHT.index(row.status), row.word)),
        field("node", "node", lambda row: row.node, clean, _style, natural),
        field("offset", "offset µs", _of_line("offset_ns"), _offset, _style, noise=Noise(absolute=2000.0, share=0.1)),
        field("bound", "± µs", _of_line("bound_ns"), micro, _style, noise=_BOUND),
        field("drift", "drift ppm", _of_line("drift_ppm"), _ppm, _style, noise=Noise(absolute=0.5)),
        field("method", "by", _of_line("method"), word, _style),
        field("stamps", "stamps", _of_line("stamps"), word, _style),
        field("rtt", "rtt µs", _of_line("min_rtt_ns"), micro, _style, noise=_BOUND),
        field("edges", "edges", _of_line("edges"), integer, _style),
        field("loss", "loss %", lambda row: row.loss_pct, _percent, _style, noise=Noise(absolute=0.2)),
        field("residual", "residual", lambda row: row.residual_ns, micro, _style, noise=_BOUND),
        field("repeat", "repeat", _of_line("repeat_ns"), micro, _style, noise=_BOUND),
        field("service", "its own service", lambda row: service_text(row.source), word, _claimed, natural),
        field("age", "age", lambda row: row.age_ns, format.age, _style, noise=Noise(absolute=2e9)),
        field("warnings", "warnings", lambda row: " ".join(row.line.warnings) if row.line else None, word, _warned),
        field("cost", "CPU %", lambda row: row.cost.cpu_pct if row.cost else None, format.percent, _style,
              noise=Noise(absolute=1.0)),
    )
}  # fmt: skip


def _figure(name: str) -> Callable[[Seen[ClockRow]], Value]:
    """A figure of the line in µs, as the column has it."""

    def read(seen: Seen[ClockRow]) -> Value:
        value = getattr(seen.row.line, name) if seen.row.line else None
        return None if value is None else value / 1000

    return read


def _words(seen: Seen[ClockRow]) -> Iterable[str]:
    row = seen.row
    yield row.word
    yield clean(row.node)
    yield clean(service_text(row.source) or "")
    yield from row.line.warnings if row.line else ()


VOCABULARY: Final[Vocabulary[Seen[ClockRow]]] = Vocabulary(
    (
        FilterField("state", "word", lambda seen: (seen.row.word, seen.row.status), "ok, wide, stale, unknown, …"),
        FilterField("node", "word", lambda seen: clean(seen.row.node), "a node's name, e.g. node0[1-3]*"),
        FilterField("tag", "word", lambda seen: seen.around.tags(seen.row.node), "a tag of it in hosts.toml"),
        FilterField("offset", "number", _figure("offset_ns"), "µs it is ahead of the common clock, e.g. >500"),
        FilterField("bound", "number", _figure("bound_ns"), "µs its error is at most, e.g. >100"),
        FilterField("drift", "number", lambda seen: seen.row.line.drift_ppm if seen.row.line else None,
                    "ppm its clock runs fast, e.g. >20"),
        FilterField("rtt", "number", _figure("min_rtt_ns"), "µs of the fastest exchange"),
        FilterField("loss", "number", lambda seen: seen.row.loss_pct, "% of its probes that were lost"),
        FilterField("method", "word", lambda seen: seen.row.line.method if seen.row.line else None,
                    "probe, ssh, ntp, ptp or system"),
        FilterField("warning", "word", lambda seen: seen.row.line.warnings if seen.row.line else (),
                    "step, slew, asym, wide, …"),
        FilterField("service", "text", lambda seen: service_text(seen.row.source), "a part of what its service says"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[ClockRow], ...]] = (
    NONE,
    Grouping("state", lambda seen: seen.row.word, is_state=True),
    Grouping("method", lambda seen: seen.row.line.method if seen.row.line else None),
    Grouping("service", lambda seen: seen.row.source.daemon if seen.row.source else None),
)


def _object(row: ClockRow) -> dict[str, Any]:
    return {
        "node": row.node, "state": row.word, "status": row.status, "age_ns": row.age_ns, "loss_pct": row.loss_pct,
        "residual_ns": row.residual_ns, "clock_node": row.line, "clock_source": row.source, "clock_cost": row.cost,
    }  # fmt: skip


KIND: Final = Kind(
    "clock", "node", FIELDS, VOCABULARY, GROUPINGS, lambda row: (row.status, row.word), _object,
    remark=lambda row: row.note.text if row.note else "",
)  # fmt: skip
