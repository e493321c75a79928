"""The GPUs view as a list: what its columns say, how they sort, what GPUs are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....present.status import BY_WEIGHT, GLYPHS, state_word
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import natural
from ...models.gpu_metrics import throttle_pct
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, integer, text_or_unknown
from ...models.plot import bars
from ...models.steady_order import Noise
from .filter import GPUS, memory_pct_of
from .model import GpuRow, age_text, ranks_text

_LOAD, _RATE, _FEW = Noise(absolute=2.0), Noise(absolute=1e6, share=0.1), Noise(absolute=15.0)
#: Cells of the curve of the last minute in a row.
CURVE_CELLS, _CURVE_S = 10, 60


def _style(row: GpuRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "text"


def _live(row: GpuRow, text: str) -> str:
    """Figures that are not fresh are drawn as stale."""
    return _style(row, text) if row.summary.fresh or text == format.UNKNOWN else "stale"


def _curved(row: GpuRow, text: str) -> str:
    return "accent" if row.summary.fresh else "stale"


def _bad(row: GpuRow, text: str) -> str:
    """A counter that should be 0."""
    return _live(row, text) if text in (format.UNKNOWN, "0") else "warning"


def _state_text(row: GpuRow) -> str:
    status, said = row.row_state
    age = age_text(row)
    return f"{GLYPHS[status]} {state_word(said)}" + (f" {age}" if age else "")


def _now(name: str) -> Callable[[GpuRow], Any]:
    return lambda row: getattr(row.gpu, name) if row.gpu else None


def _info(name: str) -> Callable[[GpuRow], Any]:
    return lambda row: getattr(row.info, name) if row.info else None


def _severity(standing: tuple[Any, str]) -> tuple[int, str]:
    return (BY_WEIGHT.index(standing[0]), standing[1])


def _curve(row: GpuRow) -> str:
    """The utilisation of the last minute, oldest first."""
    if row.recent is None:
        return format.UNKNOWN
    return bars(row.recent(row.key, "util_pct", _CURVE_S), CURVE_CELLS, 0, 100)


def _reasons(row: GpuRow) -> str | None:
    """What keeps the clocks down; an idle GPU is no reason to look."""
    found = [reason for reason in (row.gpu.clocks_event_reasons if row.gpu else ()) if reason != "gpu_idle"]
    return ", ".join(found) or None


def _slot(row: GpuRow) -> str | None:
    """PCIe generation and lanes now."""
    info = row.info
    return f"{info.pcie_gen}x{info.pcie_width}" if info and info.pcie_gen and info.pcie_width else None


def _errors(*names: str) -> Callable[[GpuRow], int | None]:
    """The sum of those counters that are known."""

    def read(row: GpuRow) -> int | None:
        found = [getattr(row.gpu, name) for name in names] if row.gpu else []
        known = [value for value in found if value is not None]
        return sum(known) if known else None

    return read


FIELDS: dict[str, ColumnField[GpuRow]] = {
    found.key: found
    for found in (
        column_field("state", "state", lambda row: row, _state_text, lambda row, _: row.row_state[0],
              lambda row: _severity(row.row_state)),
        column_field("node", "node", lambda row: row.summary.name, clean, _style, natural),
        column_field("gpu", "gpu", lambda row: row.index, integer, _style),
        column_field("util", "util %", _now("util_pct"), format.percent, _live, noise=_LOAD),
        ColumnField("curve", "last minute", _curve, _now("util_pct"), _curved, _LOAD),
        column_field("mem", "mem %", memory_pct_of, format.percent, _live, noise=_LOAD),
        column_field("used", "used", _now("mem_used_bytes"), format.size_compact, _live, noise=Noise(share=0.02)),
        column_field("bus", "mem util %", _now("mem_util_pct"), format.percent, _live, noise=_LOAD),
        column_field("power", "W", _now("power_w"), format.whole, _live, noise=_FEW),
        column_field("temp", "°C", _now("temp_c"), format.whole, _live, noise=_LOAD),
        column_field("mem_temp", "mem °C", _now("mem_temp_c"), format.whole, _live, noise=_LOAD),
        column_field("fan", "fan %", _now("fan_pct"), format.whole, _live, noise=_LOAD),
        column_field("sm_clock", "SM MHz", _now("sm_clock_mhz"), format.whole, _live, noise=_FEW),
        column_field("mem_clock", "mem MHz", _now("mem_clock_mhz"), format.whole, _live, noise=_FEW),
        column_field("pstate", "P", _now("pstate"), integer, _live),
        column_field("held", "throttle %", lambda row: throttle_pct(row.gpu), format.percent, _bad, noise=_LOAD),
        column_field("reasons", "throttle reasons", _reasons, text_or_unknown, _live),
        column_field("sm", "SM %", _now("sm_pct"), format.percent, _live, noise=_LOAD),
        column_field("occupancy", "occupancy %", _now("sm_occupancy_pct"), format.percent, _live, noise=_LOAD),
        column_field("tensor", "tensor %", _now("tensor_pct"), format.percent, _live, noise=_LOAD),
        column_field("dram", "DRAM %", _now("dram_pct"), format.percent, _live, noise=_LOAD),
        column_field("encoder", "enc %", _now("encoder_pct"), format.percent, _live, noise=_LOAD),
        column_field("decoder", "dec %", _now("decoder_pct"), format.percent, _live, noise=_LOAD),
        column_field("nvlink_rx", "NVLink RX/s", _now("nvlink_rx_bytes_s"), format.size_compact, _live, noise=_RATE),
        column_field("nvlink_tx", "NVLink TX/s", _now("nvlink_tx_bytes_s"), format.size_compact, _live, noise=_RATE),
        column_field("pcie_rx", "PCIe RX/s", _now("pcie_rx_bytes_s"), format.size_compact, _live, noise=_RATE),
        column_field("pcie_tx", "PCIe TX/s", _now("pcie_tx_bytes_s"), format.size_compact, _live, noise=_RATE),
        column_field("slot", "PCIe", _slot, text_or_unknown, _live),
        column_field("ecc", "ECC", _now("ecc_uncorrected_volatile"), integer, _bad),
        column_field("ecc_corrected", "ECC corr", _now("ecc_corrected_volatile"), integer, _live),
        column_field("rows", "remapped rows", _errors("remapped_rows_uncorrected", "retired_pages_uncorrected"),
            integer, _bad),
        column_field("replays", "replays", _now("pcie_replays"), integer, _live),
        column_field("nvlink_errors", "NVLink errs", _errors("nvlink_crc_errors", "nvlink_replay_errors",
              "nvlink_recovery_errors"), integer, _bad),
        ColumnField("ranks", "ranks", ranks_text, lambda row: row.ranks or None, _style),
        column_field("model", "model", _info("name"), text_or_unknown, _style, natural),
        column_field("driver", "driver", _info("driver"), text_or_unknown, _style, natural),
        column_field("uuid", "uuid", lambda row: row.uuid, text_or_unknown, _style),
    )
}  # fmt: skip


def _word_severity(word_: str) -> tuple[int, str]:
    return (0 if word_ != "ok" else 1, word_)


#: What GPUs can be grouped by.
GROUPINGS: Final[tuple[Grouping[GpuRow], ...]] = (
    NONE,
    Grouping("node", lambda entry: entry.row.summary.name),
    Grouping("state", lambda entry: entry.row.row_state[1], _word_severity, is_state=True),
    Grouping("model", lambda entry: entry.row.info.name if entry.row.info else None),
    Grouping("job", lambda entry: ", ".join(entry.context.jobs_of.get(entry.row.summary.name, ())) or None),
    Grouping("tag", lambda entry: entry.context.all_tags(entry.row.summary.name)),
)


def _object(row: GpuRow) -> dict[str, Any]:
    """What the screen makes of it, and its records as they came, in their own units."""
    status, said = row.row_state
    return {
        "node": row.summary.name, "index": row.index, "uuid": row.uuid, "state": said, "status": status,
        "ranks": row.ranks, "finding": row.finding.id if row.finding else None, "gpu_info": row.info, "gpu": row.gpu,
    }  # fmt: skip


KIND: Final = ListKind(
    "GPU", "node", FIELDS, GPUS, GROUPINGS, lambda row: row.row_state, _object,
    row_note=lambda row: row.note.text if row.note else "",
)  # fmt: skip
