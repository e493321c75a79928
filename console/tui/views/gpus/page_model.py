"""The page of one GPU as lines, and its curves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ....analysis.health.advice import Hint, hints
from ....core.store import GpuKey
from ....present.spans import GLYPHS, Line, Span, cut, plain, wrapped
from ....records import Gpu, GpuInfo, GpuLink, GpuProcess
from ....records.metrics import GPU as METRICS
from ....records.metrics import MetricPlot
from ....text.cells import clean, fit, width_of
from ....text.format import UNKNOWN, count, integer, link_rate, percent, size, size_compact, whole
from ...models.column import text_or_unknown
from ...models.detail import Fact, PageItem, fact_lines, section
from ...models.plot import Plot
from ..events.model import EventRow, event_line
from .model import GpuRow, age_text, digest_text, ranks_text

if TYPE_CHECKING:
    from ....core.metric_history import MetricHistory

#: Events. The Events view has all of them.
EVENTS_SHOWN = 50
#: Metrics that are drawn as curves: field and axis.
PLOT_METRICS: Final = tuple((metric.field, metric.plot) for metric in METRICS if metric.plot is not None)
#: Between two parts of a line of figures.
_PART: Final = "   "
#: Seconds of the short curve, in steps of 1 s; and the step of the one over an hour.
RECENT_S, _COARSE_STEP_S = 300, 10.0


class GpuPageData(msgspec.Struct, frozen=True):
    """Everything about one GPU at one instant."""

    row: GpuRow
    processes: Sequence[GpuProcess] = ()
    links: Sequence[GpuLink] = ()
    events: Sequence[EventRow] = ()  # newest first


def page_lines(data: GpuPageData, width: int) -> tuple[Line, ...]:
    """Identity, hints, processes, metrics, links and events."""
    row = data.row
    return (
        *fact_lines(list(_identity(row)), width),
        plain(""),
        *_hint_lines(hints(row.info, row.gpu), width),
        *section("PROCESSES", data.processes, _process_line, width),
        *fact_lines(_folded([*_figures(row.info, row.gpu), *_limits(row.info)], row.info), width),
        plain(""),
        *(section("NVLINKS", data.links, _link_line, width) if data.links else ()),
        *section("EVENTS, newest first", data.events, event_line, width),
    )


def _identity(row: GpuRow) -> Iterator[Fact]:
    info, now = row.info, row.gpu
    if (info and info.simulated) or (now and now.simulated):
        yield Fact("simulated", "simulated data", "warning")
    if age_text(row):
        yield Fact("last data", f"{age_text(row)} ago", "stale")
    if row.gpu is not None and digest_text(row):
        yield Fact("digest", f"last of {row.gpu.samples} samples", "muted")
    if row.finding is not None:
        yield Fact(clean(row.finding.id), clean(row.finding.text), row.row_state[0])
    yield Fact("ranks", ranks_text(row))
    if info is None:
        return
    if info.lost is not None:
        yield Fact("lost", clean(info.lost), "failed")
    yield Fact("model", text_or_unknown(info.name))
    yield Fact("uuid", clean(info.uuid))
    if info.parent is not None:
        part = f"MIG device {integer(info.mig_index)} of {clean(info.parent)}"
        yield Fact("part of", f"{part}, instance {integer(info.gpu_instance)}/{integer(info.compute_instance)}")
    near = f"NUMA node {integer(info.numa_node)}, CPUs {text_or_unknown(info.cpu_affinity)}"
    yield Fact("PCI location", f"PCI {text_or_unknown(info.pci_bus_id)}   {near}")


def _figures(info: GpuInfo | None, now: Gpu | None) -> Iterator[Fact]:
    """The newest value of every metric, by subject."""
    if now is None:
        return
    yield Fact("", "")
    yield Fact("GPU util", f"{_pct(now.util_pct)}   SMs {_pct(now.sm_pct)}   occupancy {_pct(now.sm_occupancy_pct)}   "
                           f"tensor {_pct(now.tensor_pct)}")  # fmt: skip
    yield Fact("video", f"encoder {_pct(now.encoder_pct)}   decoder {_pct(now.decoder_pct)}")
    total, limit = (info.mem_total_bytes, info.power_limit_w) if info else (None, None)
    yield Fact("memory", f"{size(now.mem_used_bytes)} of {size(total)}   util {_pct(now.mem_util_pct)}   "
                         f"bandwidth {_pct(now.dram_pct)}   BAR1 {size(now.bar1_used_bytes)}")  # fmt: skip
    energy_kj = None if now.energy_j is None else round(now.energy_j / 1000)
    instant = "" if now.power_instant_w is None else f"now {whole(now.power_instant_w)} W   "
    yield Fact("power", f"{whole(now.power_w)} of {whole(limit)} W   {instant}{count(energy_kj)} kJ since driver load")
    yield Fact("temperature", f"{whole(now.temp_c)} °C   memory {whole(now.mem_temp_c)} °C   fan {_pct(now.fan_pct)}")
    clocks = _clocks(now.sm_clock_mhz, now.mem_clock_mhz, now.video_clock_mhz)
    yield Fact("clocks", f"{clocks}   P{integer(now.pstate)}")
    yield Fact("throttled by", clean(", ".join(now.clocks_event_reasons)) or "none")
    shares = [f"{clean(name)} {share:.0f} %" for name, share in now.clocks_event_share_pct.items() if share >= 0.5]
    if shares:
        yield Fact("throttle time", ", ".join(shares))
    yield Fact("NVLink", f"RX {link_rate(now.nvlink_rx_bytes_s)}   TX {link_rate(now.nvlink_tx_bytes_s)}")
    yield Fact("PCIe", f"RX {link_rate(now.pcie_rx_bytes_s)}   TX {link_rate(now.pcie_tx_bytes_s)}")
    yield from _errors(now)


#: Error counters: label, and the word and field of each.
_COUNTERS: Final = (
    ("ECC errors", ("uncorrected", "ecc_uncorrected_volatile"), ("corrected", "ecc_corrected_volatile")),
    ("ECC lifetime", ("uncorrected", "ecc_uncorrected_aggregate"), ("corrected", "ecc_corrected_aggregate")),
    ("remapped rows", ("uncorrected", "remapped_rows_uncorrected"), ("corrected", "remapped_rows_corrected")),
    ("PCIe errors", ("replays", "pcie_replays")),
    ("NVLink errors", ("CRC", "nvlink_crc_errors"), ("replays", "nvlink_replay_errors"),
        ("recoveries", "nvlink_recovery_errors")),
)  # fmt: skip


def _errors(now: Gpu) -> Iterator[Fact]:
    """Totals, with the growth in the last sample; fresh growth is a warning."""
    yield Fact("", "")
    for label, *counters in _COUNTERS:
        if label == "PCIe errors" and (now.remap_pending or now.retire_pending):
            waits = (("row remapping", now.remap_pending), ("page retirement", now.retire_pending))
            yield Fact("reset needed", ", ".join(word for word, flag in waits if flag), "warning")
        grown = {name: now.grown.get(name) for _, name in counters}
        parts = (f"{word} {count(getattr(now, name))}" + (f" (+{grown[name]})" if grown[name] else "")
                 for word, name in counters)  # fmt: skip
        yield Fact(label, "   ".join(parts), "warning" if any(grown.values()) else "text")
    if now.recovery_action not in (None, "none"):
        yield Fact("driver action", clean(now.recovery_action or "").replace("_", " "), "failed")


def _limits(info: GpuInfo | None) -> Iterator[Fact]:
    if info is None:
        return
    yield Fact("", "")
    yield Fact("power limit", f"{whole(info.power_limit_w)} W, min {whole(info.power_limit_min_w)}, "
               f"max {whole(info.power_limit_max_w)}, default {whole(info.power_limit_default_w)}")  # fmt: skip
    yield Fact("max clocks", _clocks(info.max_sm_clock_mhz, info.max_mem_clock_mhz, info.max_video_clock_mhz))
    yield Fact("PCIe link", f"generation {integer(info.pcie_gen)} of {integer(info.pcie_gen_max)}, "
                            f"{integer(info.pcie_width)} of {integer(info.pcie_width_max)} lanes")  # fmt: skip
    yield Fact("NVLink", f"{integer(info.nvlinks)} links   fabric {text_or_unknown(info.fabric_state)}")
    driver, cuda, vbios = map(text_or_unknown, (info.driver, info.cuda_driver, info.vbios))
    compute, mode = map(text_or_unknown, (info.compute_capability, info.compute_mode))
    yield Fact("driver", f"{driver}, CUDA {cuda}, VBIOS {vbios}, compute {compute}")
    yield Fact("modes", f"ECC {_on(info.ecc_mode)}   persistence {_on(info.persistence)}   MIG {_on(info.mig_mode)}   "
                        f"compute {mode}")  # fmt: skip
    if info.serial:
        yield Fact("serial", clean(info.serial))


#: A reason that names the function that is missing, which is another one for almost every value.
_NO_FUNCTION: Final = re.compile(r"^(this (?:binding|driver|library) has) no nvml\w+$")


def _unsupported(info: GpuInfo | None) -> Iterator[Fact]:
    """Values that the driver does not support, grouped by reason."""
    if info is None or not info.unsupported:
        return
    reasons: dict[str, list[str]] = {}
    for name, reason in info.unsupported.items():
        reasons.setdefault(_NO_FUNCTION.sub(r"\1 no function for them", reason), []).append(name)
    yield Fact("", "")
    for reason, names in reasons.items():
        yield Fact("not available", clean(f"{', '.join(labels_of(names))}: {reason}"), "muted")


#: Fields by the label of their line on this page, with the word for each where a line has several figures.
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "GPU util": {"util_pct": "", "sm_pct": "SMs", "sm_occupancy_pct": "occupancy", "tensor_pct": "tensor"},
    "video": {"encoder_pct": "encoder", "decoder_pct": "decoder"},
    "memory": {"mem_used_bytes": "", "mem_total_bytes": "total", "mem_util_pct": "util", "dram_pct": "bandwidth",
               "bar1_used_bytes": "BAR1"},
    "power": {"power_w": "", "power_instant_w": "now", "energy_j": "energy"},
    "temperature": {"temp_c": "", "mem_temp_c": "memory", "fan_pct": "fan", "temp_margin_c": "margin",
                    "temp_slowdown_c": "slowdown", "mem_temp_max_c": "memory limit"},
    "clocks": {"sm_clock_mhz": "SM", "mem_clock_mhz": "memory", "video_clock_mhz": "video", "pstate": "P",
               "app_sm_clock_mhz": "application", "app_sm_clock_default_mhz": "application default"},
    "throttled by": {"clocks_event_reasons": ""},
    "NVLink": {"nvlink_rx_bytes_s": "RX", "nvlink_tx_bytes_s": "TX", "nvlinks": "links", "fabric_state": "fabric",
               "fabric_clique": "clique", "fabric_cluster": "cluster", "fabric_faults": "fabric faults"},
    "PCIe": {"pcie_rx_bytes_s": "RX", "pcie_tx_bytes_s": "TX"},
    "ECC errors": {"ecc_uncorrected_volatile": "uncorrected", "ecc_corrected_volatile": "corrected",
                   "sram_threshold_exceeded": "SRAM threshold"},
    "ECC lifetime": {"ecc_uncorrected_aggregate": "uncorrected", "ecc_corrected_aggregate": "corrected"},
    "remapped rows": {"remapped_rows_uncorrected": "uncorrected", "remapped_rows_corrected": "corrected",
                      "remap_pending": "pending", "remap_failed": "failed"},
    "retired pages": {"retired_pages_uncorrected": "uncorrected", "retired_pages_corrected": "corrected",
                      "retire_pending": "pending"},
    "PCIe errors": {"pcie_replays": ""},
    "NVLink errors": {"nvlink_crc_errors": "CRC", "nvlink_replay_errors": "replays",
                      "nvlink_recovery_errors": "recoveries"},
    "driver action": {"recovery_action": ""},
    "power limit": {"power_limit_w": "", "power_limit_min_w": "min", "power_limit_max_w": "max",
                    "power_limit_default_w": "default"},
    "max clocks": {"max_sm_clock_mhz": "SM", "max_mem_clock_mhz": "memory", "max_video_clock_mhz": "video"},
    "PCIe link": {"pcie_gen": "generation", "pcie_gen_max": "generation of both", "pcie_width": "lanes",
                  "pcie_width_max": "lanes of both"},
    "PCI location": {"pci_bus_id": "PCI", "numa_node": "NUMA node", "cpu_affinity": "CPUs"},
    "driver": {"driver": "", "cuda_driver": "CUDA", "vbios": "VBIOS", "compute_capability": "compute"},
    "modes": {"ecc_mode": "ECC", "persistence": "persistence", "mig_mode": "MIG", "compute_mode": "compute"},
    "model": {"name": ""}, "serial": {"serial": ""}, "MIG": {"mig_devices": "devices", "mig_index": "index",
              "parent": "GPU", "gpu_instance": "GPU instance", "compute_instance": "compute instance"},
}  # fmt: skip
_PLACES: Final = {field: (label, word) for label, fields in _FIELDS.items() for field, word in fields.items()}
#: Fields of other records and shares by reason: the first part of their name.
_PREFIXES: Final = {"gpu_link": "NVLinks", "clocks_event_share_pct": "throttle time", "speed": "NVLinks"}


def labels_of(names: Iterable[str]) -> list[str]:
    """The fields of these names as the page calls them, those of one line together: `memory (bandwidth, BAR1)`."""
    words: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: [*_PLACES].index(name) if name in _PLACES else len(_PLACES)):
        prefix, _, rest = name.partition(".")
        label, word = _PLACES.get(name) or (_PREFIXES.get(prefix, prefix), rest)
        words.setdefault(label.replace("_", " "), []).append(word.replace("_", " "))
    return [_label(label, parts) for label, parts in words.items()]


def _label(label: str, parts: Sequence[str]) -> str:
    """The label alone for the main figure of its line; else with the words of the others."""
    others = [part for part in parts if part]
    if not others:
        return label
    return f"{label} ({'also ' if len(others) < len(parts) else ''}{', '.join(others)})"


def _folded(facts: Sequence[Fact], info: GpuInfo | None) -> list[Fact]:
    """The facts without what is not known, which is named on one line before what is not available, with reasons."""
    explained = {_PLACES[name] for name in (info.unsupported if info else ()) if name in _PLACES}
    kept: list[Fact] = []
    missing: list[str] = []
    for fact in facts:
        parts = fact.text.split(_PART)
        reported = [part for part in parts if not _is_unknown(part)]
        if len(reported) < len(parts):
            words = [re.sub(rf"\W*{UNKNOWN}.*", "", part).strip() for part in parts if _is_unknown(part)]
            words = [word for word in words if (fact.label, word) not in explained]
            names = [word for word in words if word] if reported else []
            if words:
                missing.append(f"{fact.label} ({', '.join(names)})" if names else fact.label)
        if reported:
            kept.append(msgspec.structs.replace(fact, text=_PART.join(reported)))
    reasons = list(_unsupported(info))
    if missing:
        kept += [Fact("", ""), Fact("not reported", ", ".join(missing), "muted")]
        reasons = [fact for fact in reasons if fact.label]
    return _without_double_gaps([*kept, *reasons])


def _is_unknown(part: str) -> bool:
    """Whether no figure of a part such as `occupancy – %` or `– of – W` is known."""
    return UNKNOWN in part and not re.search(r"(?<![A-Za-z])\d", part)


def _without_double_gaps(facts: Sequence[Fact]) -> list[Fact]:
    return [
        fact for index, fact in enumerate(facts)
        if fact.label or (index + 1 < len(facts) and facts[index + 1].label)
    ]  # fmt: skip


def _hint_lines(hint_list: Sequence[Hint], width: int) -> Iterator[Line]:
    """Each hint with its counter behind it, or below it if one line is too short."""
    yield Line((Span("HINTS", "accent"), Span(f" {len(hint_list)}", "muted")))
    for hint in hint_list:
        key = PageItem("fact", hint.counter)
        mark = Span(f"{GLYPHS['warning']} ", "warning") if hint.severity == "warning" else Span("· ", "unknown")
        text, counter = clean(hint.text), Span(f"   {clean(hint.counter)}", "muted")
        if width_of(text) + width_of(counter.text) + 2 <= width:
            yield Line((mark, Span(text), counter), key)
            continue
        first, *more = wrapped(text, width - 2)
        yield Line((mark, Span(first)), key)
        yield from (Line((Span("  "), Span(part)), key) for part in more)
        yield Line(cut((Span(" "), counter), width), key)
    yield plain("")


def _process_line(process: GpuProcess, width: int) -> Line:
    rank = "rank –" if process.rank is None else f"rank {process.rank}"
    guess = " (by its GPU)" if process.rank_source == "device" else ""
    figures = f"{size_compact(process.mem_used_bytes):>6}  SM {_pct(process.sm_pct):>5}  {process.type}"
    name = Span(fit(text_or_unknown(process.comm), 16), "muted")
    spans = (Span(f"{process.pid:>7}  "), name, Span(f" {figures}"),
             Span(f"  {rank}{guess}", "text" if process.rank is not None else "muted"),
             Span(f"  {clean(process.job or '')}", "muted"))  # fmt: skip
    return Line(cut(spans, width), PageItem("fact", process.pid))


def _link_line(link: GpuLink, width: int) -> Line:
    status = {True: "ok", False: "failed", None: "unknown"}[link.up]
    word = {True: "up", False: "down", None: UNKNOWN}[link.up]
    spans = (
        Span(f"{link.link:>3} "), Span(f"{fit(word, 5)}", status), Span(f"v{integer(link.version)} ", "muted"),
        Span(f"RX {link_rate(link.rx_bytes_s)}  TX {link_rate(link.tx_bytes_s)}  of {link_rate(link.speed_bytes_s)}  "),
        Span(_link_errors(link), "warning" if link.grown else "muted"),
    )  # fmt: skip
    return Line(cut(spans, width), PageItem("link", link.link))


def _link_errors(link: GpuLink) -> str:
    """The counters that links of its generation have."""
    fields = _OLDER_LINK if link.rx_errors is None else _BLACKWELL_LINK
    return "  ".join(f"{word} {integer(getattr(link, field))}" for word, field in fields)


_OLDER_LINK: Final = (("CRC", "crc_errors"), ("replays", "replay_errors"))
_BLACKWELL_LINK: Final = (("errors", "rx_errors"), ("recoveries", "recovery_errors"))


def _pct(value: float | None) -> str:
    return f"{percent(value)} %"


def _clocks(sm: float | None, memory: float | None, video: float | None) -> str:
    return _PART.join(
        f"{word} {whole(clock)} MHz" for word, clock in (("SM", sm), ("memory", memory), ("video", video))
    )


def _on(value: bool | None) -> str:
    return {True: "on", False: "off", None: UNKNOWN}[value]


# -- curves ------------------------------------------------------------------------------------------------------------


def plot_of(
    history: MetricHistory, key: GpuKey, metric: tuple[str, MetricPlot], info: GpuInfo | None, *, hour: bool
) -> Plot:
    """The last five minutes second by second, or the hour in steps of ten seconds with min and max of each."""
    field, plot = metric
    high = _high(plot, info)
    series = history.series["gpu"]
    curve = series.hour(key, field) if hour else series.recent_curve(key, field, RECENT_S)
    has_spread = hour or bool((curve.minimum < curve.maximum).any())  # of digests, among the last minutes
    spread = (curve.minimum / plot.scale, curve.maximum / plot.scale) if has_spread else None
    step_s = _COARSE_STEP_S if hour else 1
    return Plot(plot.title, plot.unit, curve.mean / plot.scale, step_s, high=high, spread=spread)


def _high(plot: MetricPlot, info: GpuInfo | None) -> float | None:
    """The top of the axis; None if the GPU has no limit."""
    limit = getattr(info, plot.limit) if info is not None and plot.limit else None
    return limit / plot.scale if limit else plot.high
