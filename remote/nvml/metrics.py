"""Metrics of one GPU at one tick."""

import re

from ..samplers.base import Counters
from .fields import ALL_LINKS, FieldReader, NvmlField
from .links import MOST, TOO_FAST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .call import NvmlDevice, PcieThread
    from .fields import Values
    from .gpm import GpmReader
    from .links import NvLinks

#: nvml.h, nvmlClocksEventReasons
EVENT_REASONS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
#: nvml.h, NVML_GPU_RECOVERY_ACTION_*, in the order of their numbers
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
#: Totals, reported with their gain: (field, number in nvml.h).
TOTALS = (
    ("ecc_corrected_volatile", 3),
    ("ecc_uncorrected_volatile", 4),
    ("ecc_corrected_aggregate", 5),
    ("ecc_uncorrected_aggregate", 6),
    ("retired_pages_corrected", 29),
    ("retired_pages_uncorrected", 30),
    ("pcie_replays", 94),
    ("remapped_rows_corrected", 142),
    ("remapped_rows_uncorrected", 143),
    ("nvlink_replay_errors", 52),
    ("nvlink_recovery_errors", 59),
)
_FLAGS = (("retire_pending", 31), ("remap_pending", 144), ("remap_failed", 145))
#: Counters of ns, which include spikes between two ticks.
_SHARES = (("sw_power_cap", 74), ("sync_boost", 76))
#: More of them, whose numbers from the first on depend on the driver: (its first release, first number or None). At
#: other releases these numbers are those of power smoothing. Source: nvidia-ml-py 12.570.172, 12.575.51, 13.580.65 and
#: 13.580.82; between the last two, the release that renumbered them is not known.
_SLOWDOWNS = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_SLOWDOWN_NUMBERS: "tuple[tuple[tuple[int, int], int | None], ...]" = (
    ((580, 82), 269),
    ((580, 66), None),
    ((575, 0), 251),
    ((0, 0), None),
)
_SHARE = "clocks_event_share_pct."
_CRC = ("nvlink_crc_errors", "nvlink_crc_errors.data")
_TOTAL_FIELDS = tuple(name for name, _ in TOTALS) + _CRC[:1]
_LINK_ERRORS = (_CRC[0], "nvlink_replay_errors", "nvlink_recovery_errors")
#: Seconds between two reads of counters of errors, which lose nothing, and of figures that change slowly.
SLOW_S = 5.0
_SLOW_FIELDS = [NvmlField(name, number) for name, number in TOTALS + _FLAGS + ((_CRC[0], 38), (_CRC[1], 45))]
_FIELDS = [
    NvmlField("mem_temp_c", 82),
    NvmlField("power_instant_w", 186),
    NvmlField("energy_j", 83),
    NvmlField("recovery_action", 230),
    NvmlField("pcie_tx_bytes_s", 197),
    NvmlField("pcie_rx_bytes_s", 198),
    NvmlField("nvlink_tx_bytes_s", 138, ALL_LINKS),
    NvmlField("nvlink_rx_bytes_s", 139, ALL_LINKS),
]
#: Fallback calls for drivers whose field values lack a total: (function, arguments, index in the result or None).
#: Arguments 0 and 1 are corrected and uncorrected, volatile and aggregate.
_FALLBACKS: "dict[str, tuple[str, tuple[int, ...], int | None]]" = {
    "ecc_corrected_volatile": ("nvmlDeviceGetTotalEccErrors", (0, 0), None),
    "ecc_uncorrected_volatile": ("nvmlDeviceGetTotalEccErrors", (1, 0), None),
    "ecc_corrected_aggregate": ("nvmlDeviceGetTotalEccErrors", (0, 1), None),
    "ecc_uncorrected_aggregate": ("nvmlDeviceGetTotalEccErrors", (1, 1), None),
    "remapped_rows_corrected": ("nvmlDeviceGetRemappedRows", (), 0),
    "remapped_rows_uncorrected": ("nvmlDeviceGetRemappedRows", (), 1),
    "remap_pending": ("nvmlDeviceGetRemappedRows", (), 2),
    "remap_failed": ("nvmlDeviceGetRemappedRows", (), 3),
    "energy_j": ("nvmlDeviceGetTotalEnergyConsumption", (), None),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", (), None),
}
_FALLBACK_FIELDS = ("energy_j",)
_SLOW_FALLBACK_FIELDS = tuple(field for field in _FALLBACKS if field not in _FALLBACK_FIELDS)
_BUSES = ("pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s")
_PCIE = _BUSES[:2]
_MEMORY_V2 = 0x02000028
_VIDEO_CLOCK = 3
#: Bytes/s of a PCIe 5.0 x16 link in one direction: a 32-bit counter that may have wrapped twice is useless.
_MAX_PCIE_BYTES_S = 64e9


class GpuMetrics(object):
    """Reads the `gpu` record of one GPU; GPM, NVLinks and the PCIe thread are shared with its other readers."""

    def __init__(
        self,
        device: "NvmlDevice",
        uuid: str,
        gpm: "GpmReader",
        links: "NvLinks",
        pcie: "PcieThread",
        driver: "str | None",
    ) -> None:
        self._device = device
        self._uuid = uuid
        self._gpm = gpm
        self._links = links
        self._pcie = pcie
        self._share_numbers = share_numbers(driver)
        shares = [NvmlField(_SHARE + reason, number) for reason, number in self._share_numbers]
        self._no_share = () if len(shares) > len(_SHARES) else tuple(_SHARE + reason for reason in _SLOWDOWNS)
        self._reader = FieldReader(device, shares + _FIELDS)
        self._slow_reader = FieldReader(device, _SLOW_FIELDS)
        self._slow: "dict[str, Any]" = {}  # fields of the record, as of the last slow read
        self._slow_due = 0.0
        self._link_totals: "dict[str, int | None]" = {}  # those of the last slow read
        self._counters = Counters()
        self._last: "float | None" = None  # time of the last reading
        self._fallbacks: "dict[str, bool]" = {}  # field: whether its fallback works; absent: not tried

    def reset(self) -> None:
        """Read unsupported fields again at the next tick."""
        self._reader.reset()
        self._slow_reader.reset()
        self._slow_due = 0.0
        self._gpm.reset()
        self._fallbacks.clear()

    def read(self, now: float) -> "dict[str, Any]":
        """Known fields of a `gpu` record. Raises GpuLost."""
        record = self._direct()
        if now >= self._slow_due or self._links.totals() is not self._link_totals:
            self._link_totals = self._links.totals()
            self._slow_due = now + SLOW_S - 0.1  # ticks are on a grid and slightly late
            self._slow, grown = self._read_slow()
            if grown:
                record["grown"] = grown
        record.update(self._slow)
        values = self._reader.read()
        self._apply_fallbacks(values, _FALLBACK_FIELDS)
        self._shares(record, values, now)
        if "mem_temp_c" in values:
            record["mem_temp_c"] = values["mem_temp_c"][0]
        for name in ("energy_j", "power_instant_w"):
            if name in values:
                record[name] = values[name][0] / 1000.0
        if "recovery_action" in values:
            record["recovery_action"] = _recovery_action(values["recovery_action"][0])
        self._buses(record, values, now)
        self._withdraw_reasons(record)
        return record

    def _withdraw_reasons(self, record: "dict[str, Any]") -> None:
        """Drop the reasons of fields that another source supplies, or may supply soon."""
        unsupported = self._device.unsupported
        unsupported.pop(_CRC[1], None)  # the other half has the same reason
        if self._gpm.is_pending:
            for field in _BUSES:
                unsupported.pop(field, None)
        if self._links.is_pending:
            for field in _LINK_ERRORS:
                unsupported.pop(field, None)
        for field in [field for field in unsupported if field in record]:
            del unsupported[field]
        for reason in record.get("clocks_event_share_pct", ()):
            unsupported.pop(_SHARE + reason, None)

    # -- one call a metric ---------------------------------------------------------------------------------------------

    def _direct(self) -> "dict[str, Any]":
        record = read_fast(self._device)
        _put(record, "temp_margin_c", self._device.call(("temp_margin_c",), "nvmlDeviceGetMarginTemperature"))
        return record

    # -- slow figures --------------------------------------------------------------------------------------------------

    def _read_slow(self) -> "tuple[dict[str, Any], dict[str, int]]":
        """(fields of the record, {counter: gain since the last slow read}). Raises GpuLost."""
        call, nvml = self._device.call, self._device.nvml
        record: "dict[str, Any]" = {}
        _put(record, "mem_clock_mhz", call(("mem_clock_mhz",), "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM))
        _put(record, "pstate", _known_pstate(call(("pstate",), "nvmlDeviceGetPerformanceState")))
        bar1 = call(("bar1_used_bytes",), "nvmlDeviceGetBAR1MemoryInfo")
        if bar1 is not None:
            record["bar1_used_bytes"] = bar1.bar1Used
        _put(record, "fan_pct", call(("fan_pct",), "nvmlDeviceGetFanSpeed"))
        _put(record, "video_clock_mhz", call(("video_clock_mhz",), "nvmlDeviceGetClockInfo", _VIDEO_CLOCK))
        for field, name in (("encoder_pct", "nvmlDeviceGetEncoderUtilization"),
                            ("decoder_pct", "nvmlDeviceGetDecoderUtilization")):  # fmt: skip
            result = call((field,), name)
            if result is not None:
                record[field] = result[0]
        values = self._slow_reader.read()
        self._apply_fallbacks(values, _SLOW_FALLBACK_FIELDS)
        for name, _ in _FLAGS:
            if name in values:
                record[name] = bool(values[name][0])
        return record, self._totals(record, values)

    # -- field values --------------------------------------------------------------------------------------------------

    def _apply_fallbacks(self, values: "Values", fields: "tuple[str, ...]") -> None:
        results: "dict[tuple[str, tuple[int, ...]], Any]" = {}  # one call may supply several fields
        for field in fields:
            name, arguments, index = _FALLBACKS[field]
            if field in values or not self._device.is_disabled(field) or self._fallbacks.get(field) is False:
                continue
            if (name, arguments) not in results:
                results[name, arguments] = self._fallback(name, arguments)
            result = results[name, arguments]
            self._fallbacks[field] = result is not None
            if result is not None:
                values[field] = (result if index is None else result[index], 64)

    def _fallback(self, name: str, arguments: "tuple[int, ...]") -> "Any":
        nvml = self._device.nvml
        try:
            return getattr(nvml, name)(self._device.handle, *arguments)
        except (AttributeError, nvml.NVMLError):
            return None  # the field value has already recorded a reason

    def _totals(self, record: "dict[str, Any]", values: "Values") -> "dict[str, int]":
        """Put the totals into the record; returns those that have grown, and by how much."""
        crc = [values[name] for name in _CRC if name in values]
        if crc:
            values[_CRC[0]] = (sum(value for value, _ in crc), min(bits for _, bits in crc))
        for field, total in self._links.totals().items():
            if field not in values and total is not None:  # Hopper counts errors by link only
                values[field] = (total, 64)
        grown = {}
        for field in _TOTAL_FIELDS:
            if field not in values:
                continue
            value, bits = values[field]
            record[field] = value
            gained = self._counters.growth(field, value, bits)
            if gained:
                grown[field] = gained
        return grown

    def _shares(self, record: "dict[str, Any]", values: "Values", now: float) -> None:
        shares = {}
        for field in self._no_share:
            self._device.note_reason(field, "the number of this counter is not known for this release of the driver")
        for reason, _ in self._share_numbers:
            if _SHARE + reason in values:
                value, bits = values[_SHARE + reason]
                rate = self._counters.rate(reason, value, bits, now, 1e-7)  # ns per second, as a percentage
                if rate is not None:
                    shares[reason] = round(min(100.0, rate), 2)
        if shares:
            record["clocks_event_share_pct"] = shares

    # -- buses ---------------------------------------------------------------------------------------------------------

    def _buses(self, record: "dict[str, Any]", values: "Values", now: float) -> None:
        """By GPM, else by counters: of NVLink, or of PCIe if wide enough, which else the PCIe thread reads."""
        record.update(self._gpm.read())
        last, self._last = self._last, now
        for field in _BUSES:
            if field not in values:
                continue
            value, bits = values[field]
            if not value and field not in _PCIE:  # some drivers count per link only
                of_links = self._links.rate(field[len("nvlink_") :])
                if of_links:
                    record.setdefault(field, of_links)
                    continue
            unit = 1 if field in _PCIE else 1024  # NVLink counts KiB
            rate = self._counters.rate(field, value, bits, now, unit)
            if rate is not None and (bits == 64 or field not in _PCIE or _cannot_wrap_twice(bits, now - (last or now))):
                record.setdefault(field, round(rate, 1))
        for field in _BUSES[2:]:
            if record.get(field, 0.0) > MOST * self._links.line_rate:
                del record[field]
                self._device.note_reason(field, TOO_FAST)
        if self._gpm.is_pending:
            return
        if self._device.is_disabled(_PCIE[0]) or (_PCIE[0] in values and values[_PCIE[0]][1] < 64):
            self._pcie_traffic(record)

    def _pcie_traffic(self, record: "dict[str, Any]") -> None:
        if _PCIE[0] in record:
            return
        traffic, reason = self._pcie.latest(self._uuid, self._device.handle)
        if traffic is not None:
            record["pcie_rx_bytes_s"], record["pcie_tx_bytes_s"] = traffic
        elif reason is not None:
            for field in _PCIE:
                self._device.note_reason(field, reason)


def _cannot_wrap_twice(bits: int, seconds: float) -> bool:
    return seconds * _MAX_PCIE_BYTES_S < 1 << bits


def share_numbers(driver: "str | None") -> "list[tuple[str, int]]":
    """(reason, number in nvml.h) of the counters of clock event reasons of a driver; None: of an unknown one."""
    match = re.match(r"(\d+)\.(\d+)", driver or "")
    release = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    first = next(number for since, number in _SLOWDOWN_NUMBERS if release >= since)
    slowdowns = enumerate(_SLOWDOWNS) if first is not None else ()
    return list(_SHARES) + [(reason, (first or 0) + place) for place, reason in slowdowns]


#: Alternative names of one call, newest first.
_TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
_REASONS = (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))


def read_fast(device: "NvmlDevice") -> "dict[str, Any]":
    """Cheap metrics that change fast: utilisation, memory, power, temperature, SM clock, throttle reasons.

    Raises GpuLost.
    """
    call, nvml = device.call, device.nvml
    record: "dict[str, Any]" = {}
    utilization = call(("util_pct", "mem_util_pct"), "nvmlDeviceGetUtilizationRates")
    if utilization is not None:
        record["util_pct"], record["mem_util_pct"] = utilization.gpu, utilization.memory
    memory = memory_info(device, "mem_used_bytes")
    if memory is not None:
        record["mem_used_bytes"] = memory.used
    power = call(("power_w",), "nvmlDeviceGetPowerUsage")
    if power is not None:
        record["power_w"] = power / 1000.0
    sensor = nvml.NVML_TEMPERATURE_GPU
    _put(record, "temp_c", device.call_first(("temp_c",), [(name, sensor) for name in _TEMPERATURE]))
    _put(record, "sm_clock_mhz", call(("sm_clock_mhz",), "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
    reasons = device.call_first(("clocks_event_reasons",), _REASONS)
    if reasons:
        record["clocks_event_reasons"] = [name for bit, name in EVENT_REASONS if reasons & bit]
    return record


def memory_info(device: "NvmlDevice", field: str) -> "Any":
    """nvmlMemory_t, version 2 if supported: its `used` excludes what the driver reserves. None if `field` failed."""
    return device.call_first((field,), (("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)))


def _put(record: "dict[str, Any]", field: str, value: "Any") -> None:
    if value is not None:
        record[field] = value


def _known_pstate(value: "int | None") -> "int | None":
    return value if value is not None and 0 <= value <= 15 else None  # 32: NVML_PSTATE_UNKNOWN


def _recovery_action(number: int) -> str:
    return RECOVERY_ACTIONS[number] if 0 <= number < len(RECOVERY_ACTIONS) else "action %d" % number


#: Metrics sampled more often than once a second: cheap to read and fast to change. Power is the instantaneous one,
#: where the driver has it: its average over a second hides peaks.
FIELDS = ("util_pct", "mem_used_bytes", "power_w", "temp_c", "sm_clock_mhz")


class MetricDigest(object):
    """Accumulates samples of one GPU until `flush`."""

    def __init__(self, device: "NvmlDevice") -> None:
        self._device = device
        self._power = FieldReader(device, [NvmlField("power_instant_w", 186)])
        self._clear()

    def _clear(self) -> None:
        self._samples = 0
        self._values: "dict[str, list[Any]]" = {}  # field: [min, sum, max, last, count]
        self._reasons: "list[str]" = []

    def sample(self) -> None:
        """Read the GPU now. Raises GpuLost."""
        metrics = read_fast(self._device)
        for field, (milliwatts, _) in self._power.read().items():
            metrics[field] = milliwatts / 1000.0
        self.add(metrics)

    def add(self, metrics: "dict[str, Any]") -> None:
        """Add one sample, {field: value} as in a `gpu` record."""
        self._samples += 1
        metrics = dict(metrics, power_w=metrics.get("power_instant_w", metrics.get("power_w")))
        for field in FIELDS:
            value = metrics.get(field)
            if value is None:
                continue
            stats = self._values.get(field)
            if stats is None:
                self._values[field] = [value, value, value, value, 1]
                continue
            if value < stats[0]:
                stats[0] = value
            elif value > stats[2]:
                stats[2] = value
            stats[1] += value
            stats[3] = value
            stats[4] += 1
        for reason in metrics.get("clocks_event_reasons", ()):
            if reason not in self._reasons:
                self._reasons.append(reason)

    def flush(self, metrics: "dict[str, Any]") -> "dict[str, Any] | None":
        """Fields of a `gpu_digest` record since the last call, `metrics` being its last sample.

        None if there was no other sample.
        """
        if not self._samples:
            return None
        self.add(metrics)
        samples, values, reasons = self._samples, self._values, self._reasons
        self._clear()
        fields: "dict[str, Any]" = {
            field: {"min": low, "mean": round(total / float(count), 3), "max": high, "last": last}
            for field, (low, total, high, last, count) in values.items()
        }
        return dict(fields, samples=samples, clocks_event_reasons=reasons)
