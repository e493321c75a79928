"""One GPU's page: every figure, what they suggest, who works on it, its links, what happened to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....analysis.health.advice import Hint, hints
from ....present.spans import Line, Span, cut, plain, wrapped
from ....present.status import GLYPHS
from ....records import Gpu, GpuInfo, GpuLink, GpuProcess
from ....text import format
from ....text.cells import clean, fit, width_of
from ...models.detail import Fact
from ...models.page import PageItem, event_line, fact_lines, section
from ..events.model import EventRow
from .model import GpuRow, age_text, ranks_text

#: So many of the newest events stand on the page; the Events view has them all.
EVENTS_SHOWN = 50


@dataclass(frozen=True)
class GpuPageData:
    """All that a page is made of, of one GPU at one instant."""

    row: GpuRow
    processes: Sequence[GpuProcess] = ()
    links: Sequence[GpuLink] = ()
    events: Sequence[EventRow] = ()  # newest first


def page_lines(data: GpuPageData, width: int) -> tuple[Line, ...]:
    """Who it is, what its figures suggest, all figures, processes, links and events."""
    row = data.row
    hints_found = hints(row.info, row.gpu)
    return (
        *fact_lines(list(_identity(row)), width),
        plain(""),
        *_hint_lines(hints_found, width),
        *section("PROCESSES", data.processes, _process_line, width),
        *fact_lines([*_figures(row.info, row.gpu), *_limits(row.info), *_unsupported(row.info)], width),
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
    if row.finding is not None:
        yield Fact(clean(row.finding.id), clean(row.finding.text), row.row_state[0])
    yield Fact("ranks", ranks_text(row))
    if info is None:
        return
    if info.lost is not None:
        yield Fact("lost", clean(info.lost), "failed")
    yield Fact("model", _word(info.name))
    yield Fact("uuid", clean(info.uuid))
    if info.parent is not None:
        part = f"MIG device {_plain(info.mig_index)} of {clean(info.parent)}"
        yield Fact("part of", f"{part}, instance {_plain(info.gpu_instance)}/{_plain(info.compute_instance)}")
    near = f"NUMA node {_plain(info.numa_node)}, CPUs {_word(info.cpu_affinity)}"
    yield Fact("PCI location", f"PCI {_word(info.pci_bus_id)}   {near}")


def _figures(info: GpuInfo | None, now: Gpu | None) -> Iterator[Fact]:
    """Every figure of the newest tick, by what it is about."""
    if now is None:
        return
    rate = format.byte_rate
    total = info.mem_total_bytes if info else None
    yield Fact("", "")
    yield Fact(
        "GPU util",
        f"{_pct(now.util_pct)}   SMs {_pct(now.sm_pct)}   occupancy "
        f"{_pct(now.sm_occupancy_pct)}   tensor {_pct(now.tensor_pct)}",
    )
    yield Fact("video", f"encoder {_pct(now.encoder_pct)}   decoder {_pct(now.decoder_pct)}")
    yield Fact(
        "memory",
        f"{format.size(now.mem_used_bytes)} of {format.size(total)}   util {_pct(now.mem_util_pct)}"
        f"   bandwidth {_pct(now.dram_pct)}   BAR1 {format.size(now.bar1_used_bytes)}",
    )
    limit = info.power_limit_w if info else None
    yield Fact(
        "power",
        f"{format.whole(now.power_w)} of {format.whole(limit)} W   "
        f"{format.count(_kilo(now.energy_j))} kJ since driver load",
    )
    yield Fact(
        "temperature",
        f"{format.whole(now.temp_c)} °C   memory {format.whole(now.mem_temp_c)} °C   fan {_pct(now.fan_pct)}",
    )
    yield Fact(
        "clocks",
        f"SM {format.whole(now.sm_clock_mhz)}   memory {format.whole(now.mem_clock_mhz)}   video "
        f"{format.whole(now.video_clock_mhz)} MHz   P{_plain(now.pstate)}",
    )
    yield Fact("throttled by", clean(", ".join(now.clocks_event_reasons)) or "none")
    shares = [f"{clean(name)} {share:.0f} %" for name, share in now.clocks_event_share_pct.items() if share >= 0.5]
    if shares:
        yield Fact("throttle time", ", ".join(shares))
    yield Fact("NVLink", f"RX {rate(now.nvlink_rx_bytes_s)}   TX {rate(now.nvlink_tx_bytes_s)}")
    yield Fact("PCIe", f"RX {rate(now.pcie_rx_bytes_s)}   TX {rate(now.pcie_tx_bytes_s)}")
    yield from _errors(now)


def _errors(now: Gpu) -> Iterator[Fact]:
    yield Fact("", "")
    yield _counted("ECC", now, ("uncorrected", "ecc_uncorrected_volatile"), ("corrected", "ecc_corrected_volatile"))
    yield _counted(
        "ECC lifetime", now, ("uncorrected", "ecc_uncorrected_aggregate"), ("corrected", "ecc_corrected_aggregate")
    )
    yield _counted(
        "remapped rows",
        now,
        ("uncorrected", "remapped_rows_uncorrected"),
        ("corrected", "remapped_rows_corrected"),
    )
    waits = [
        word
        for word, flag in (
            ("row remapping", now.remap_pending),
            ("page retirement", now.retire_pending),
        )
        if flag
    ]
    if waits:
        yield Fact("reset needed", ", ".join(waits), "warning")
    yield _counted("PCIe", now, ("replays", "pcie_replays"))
    yield _counted(
        "NVLink",
        now,
        ("CRC", "nvlink_crc_errors"),
        ("replays", "nvlink_replay_errors"),
        ("recoveries", "nvlink_recovery_errors"),
    )
    if now.recovery_action not in (None, "none"):
        yield Fact("driver action", clean(now.recovery_action or "").replace("_", " "), "failed")


def _counted(label: str, now: Gpu, *counters: tuple[str, str]) -> Fact:
    """Totals, with what they gained in the last tick; a fresh gain is drawn as a warning."""
    parts = []
    for word, name in counters:
        gained = f" (+{now.grown[name]})" if now.grown.get(name) else ""
        parts.append(f"{word} {format.count(getattr(now, name))}{gained}")
    fresh = any(now.grown.get(name) for _, name in counters)
    return Fact(f"{label} errors" if len(label) <= 7 else label, "   ".join(parts), "warning" if fresh else "text")


def _limits(info: GpuInfo | None) -> Iterator[Fact]:
    if info is None:
        return
    yield Fact("", "")
    yield Fact(
        "power limit",
        f"{format.whole(info.power_limit_w)} W, min {format.whole(info.power_limit_min_w)}, max "
        f"{format.whole(info.power_limit_max_w)}, default {format.whole(info.power_limit_default_w)}",
    )
    yield Fact(
        "max clocks",
        f"SM {format.whole(info.max_sm_clock_mhz)}   memory "
        f"{format.whole(info.max_mem_clock_mhz)}   video {format.whole(info.max_video_clock_mhz)} MHz",
    )
    yield Fact(
        "PCIe link",
        f"generation {_plain(info.pcie_gen)} of {_plain(info.pcie_gen_max)}, "
        f"{_plain(info.pcie_width)} of {_plain(info.pcie_width_max)} lanes",
    )
    yield Fact("NVLink", f"{_plain(info.nvlinks)} links   fabric {_word(info.fabric_state)}")
    yield Fact(
        "driver",
        f"{_word(info.driver)}, CUDA {_word(info.cuda_driver)}, VBIOS {_word(info.vbios)}, compute "
        f"{_word(info.compute_capability)}",
    )
    yield Fact(
        "modes",
        f"ECC {_on(info.ecc_mode)}   persistence {_on(info.persistence)}   MIG "
        f"{_on(info.mig_mode)}   compute {_word(info.compute_mode)}",
    )
    if info.serial:
        yield Fact("serial", clean(info.serial))


def _unsupported(info: GpuInfo | None) -> Iterator[Fact]:
    """What the driver does not tell, folded over equal reasons."""
    if info is None or not info.unsupported:
        return
    reasons: dict[str, list[str]] = {}
    for name, reason in info.unsupported.items():
        reasons.setdefault(reason, []).append(name)
    yield Fact("", "")
    for reason, names in reasons.items():
        yield Fact("not available", clean(f"{', '.join(sorted(names))}: {reason}"), "muted")


def _hint_lines(hint_list: Sequence[Hint], width: int) -> Iterator[Line]:
    """What each hint says and its counter behind it, or below it where they do not fit into one line."""
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
    figures = f"{format.size_compact(process.mem_used_bytes):>6}  SM {_pct(process.sm_pct):>5}  {process.type}"
    name = Span(fit(_word(process.comm), 16), "muted")
    spans = (Span(f"{process.pid:>7}  "), name, Span(f" {figures}"),
             Span(f"  {rank}{guess}", "text" if process.rank is not None else "muted"),
             Span(f"  {clean(process.job or '')}", "muted"))  # fmt: skip
    return Line(cut(spans, width), PageItem("fact", process.pid))


def _link_line(link: GpuLink, width: int) -> Line:
    status = {True: "ok", False: "failed", None: "unknown"}[link.up]
    word = {True: "up", False: "down", None: format.UNKNOWN}[link.up]
    rate = format.byte_rate
    spans = (
        Span(f"{link.link:>3} "), Span(f"{fit(word, 5)}", status), Span(f"v{_plain(link.version)} ", "muted"),
        Span(f"RX {rate(link.rx_bytes_s)}  TX {rate(link.tx_bytes_s)}  of {rate(link.speed_bytes_s)}  "),
        Span(f"CRC {_plain(link.crc_errors)}  replays {_plain(link.replay_errors)}",
             "warning" if link.grown else "muted"),
    )  # fmt: skip
    return Line(cut(spans, width), PageItem("link", link.link))


def _pct(value: float | None) -> str:
    return f"{format.percent(value)} %"


def _plain(value: int | None) -> str:
    return format.UNKNOWN if value is None else str(value)


def _word(value: str | None) -> str:
    return clean(value) if value else format.UNKNOWN


def _kilo(value: float | None) -> int | None:
    return None if value is None else round(value / 1000)


def _on(value: bool | None) -> str:
    return {True: "on", False: "off", None: format.UNKNOWN}[value]
