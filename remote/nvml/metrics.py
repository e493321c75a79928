"""What one GPU does at one tick."""

from .counters import Counters
from .fields import ALL_LINKS, Field, FieldReader

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
#: Totals that are reported as they are, with what they gained: (field, number in nvml.h).
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
#: Counters of ns, so that a spike between two ticks is seen.
_SHARES = (
    ("sw_power_cap", 74),
    ("sync_boost", 76),
    ("sw_thermal_slowdown", 269),
    ("hw_thermal_slowdown", 270),
    ("hw_power_brake_slowdown", 271),
)
_SHARE = "clocks_event_share_pct."
_CRC = ("nvlink_crc_errors", "nvlink_crc_errors.data")
_TOTAL_FIELDS = tuple(name for name, _ in TOTALS) + _CRC[:1]
_LINK_ERRORS = (_CRC[0], "nvlink_replay_errors", "nvlink_recovery_errors")
_FIELDS = (
    [Field(name, number) for name, number in TOTALS + _FLAGS]
    + [Field(_SHARE + name, number) for name, number in _SHARES]
    + [
        Field("mem_temp_c", 82),
        Field("energy_j", 83),
        Field("recovery_action", 230),
        Field(_CRC[0], 38),
        Field(_CRC[1], 45),
        Field("pcie_tx_bytes_s", 197),
        Field("pcie_rx_bytes_s", 198),
        Field("nvlink_tx_bytes_s", 138, ALL_LINKS),
        Field("nvlink_rx_bytes_s", 139, ALL_LINKS),
    ]
)
#: Other ways to a total, for drivers whose field values lack it: (function, arguments, place in the answer or None).
#: 0 and 1 are corrected and uncorrected, volatile and aggregate.
_OTHER_WAYS = {
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
_BUSES = ("pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s")
_PCIE = _BUSES[:2]
_MEMORY_V2 = 0x02000028
_VIDEO_CLOCK = 3
#: A PCIe 5.0 x16 link brings at most so many bytes/s one way: a 32-bit counter that can wrap twice tells nothing.
_PCIE_MOST = 64e9


class Figures(object):
    """The figures of one GPU. `aside` is the thread for PCIe traffic, `gpm` its samples, `links` its NVLinks."""

    def __init__(self, asker, uuid, gpm, links, aside):
        self._asker = asker
        self._uuid = uuid
        self._gpm = gpm
        self._links = links
        self._aside = aside
        self._reader = FieldReader(asker, _FIELDS)
        self._counters = Counters()
        self._last = None  # time of the last look
        self._other_ways = {}  # field: whether its other way works; absent: not tried

    def forget(self):
        """Ask everything anew at the next tick, also what was not supported."""
        self._reader.forget()
        self._gpm.forget()
        self._other_ways.clear()

    def read(self, now):
        """The fields of a `gpu` record that are known. Raises Lost."""
        found = self._plain()
        values = self._reader.read()
        self._take_other_ways(values)
        self._totals(found, values)
        self._shares(found, values, now)
        for name, _ in _FLAGS:
            if name in values:
                found[name] = bool(values[name][0])
        if "mem_temp_c" in values:
            found["mem_temp_c"] = values["mem_temp_c"][0]
        if "energy_j" in values:
            found["energy_j"] = values["energy_j"][0] / 1000.0
        if "recovery_action" in values:
            found["recovery_action"] = _recovery_action(values["recovery_action"][0])
        self._buses(found, values, now)
        self._withdraw_reasons(found)
        return found

    def _withdraw_reasons(self, found):
        """What one source could not say and another one could needs no reason."""
        unsupported = self._asker.unsupported
        unsupported.pop(_CRC[1], None)  # one of two halves: the other one's reason is enough
        if self._gpm.is_pending:
            for field in _BUSES:
                unsupported.pop(field, None)  # the second sample may tell
        if self._links.is_pending:
            for field in _LINK_ERRORS:
                unsupported.pop(field, None)  # nor are its links read yet
        for field in [field for field in unsupported if field in found]:
            del unsupported[field]
        for reason in found.get("clocks_event_share_pct", ()):
            unsupported.pop(_SHARE + reason, None)

    # -- one call a figure ---------------------------------------------------------------------------------------------

    def _plain(self):
        ask, nvml = self._asker.ask, self._asker.nvml
        found = quick(self._asker)
        bar1 = ask(("bar1_used_bytes",), "nvmlDeviceGetBAR1MemoryInfo")
        if bar1 is not None:
            found["bar1_used_bytes"] = bar1.bar1Used
        _put(found, "fan_pct", ask(("fan_pct",), "nvmlDeviceGetFanSpeed"))
        _put(found, "mem_clock_mhz", ask(("mem_clock_mhz",), "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM))
        _put(found, "video_clock_mhz", ask(("video_clock_mhz",), "nvmlDeviceGetClockInfo", _VIDEO_CLOCK))
        _put(found, "pstate", _known_pstate(ask(("pstate",), "nvmlDeviceGetPerformanceState")))
        for field, name in (("encoder_pct", "nvmlDeviceGetEncoderUtilization"),
                            ("decoder_pct", "nvmlDeviceGetDecoderUtilization")):  # fmt: skip
            answer = ask((field,), name)
            if answer is not None:
                found[field] = answer[0]
        return found

    # -- field values --------------------------------------------------------------------------------------------------

    def _take_other_ways(self, values):
        answers = {}  # one call may answer several fields
        for field, (name, arguments, place) in _OTHER_WAYS.items():
            if field in values or not self._asker.gave_up(field) or self._other_ways.get(field) is False:
                continue
            if (name, arguments) not in answers:
                answers[name, arguments] = self._another(name, arguments)
            answer = answers[name, arguments]
            self._other_ways[field] = answer is not None
            if answer is not None:
                values[field] = (answer if place is None else answer[place], 64)

    def _another(self, name, arguments):
        nvml = self._asker.nvml
        try:
            return getattr(nvml, name)(self._asker.handle, *arguments)
        except (AttributeError, nvml.NVMLError):
            return None  # the reason is the one that the field value gave

    def _totals(self, found, values):
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
            found[field] = value
            gained = self._counters.growth(field, value, bits)
            if gained:
                grown[field] = gained
        if grown:
            found["grown"] = grown

    def _shares(self, found, values, now):
        shares = {}
        for reason, _ in _SHARES:
            if _SHARE + reason in values:
                value, bits = values[_SHARE + reason]
                rate = self._counters.rate(reason, value, bits, now, 1e-7)  # ns a second, in hundredths
                if rate is not None:
                    shares[reason] = round(min(100.0, rate), 2)
        if shares:
            found["clocks_event_share_pct"] = shares

    # -- buses ---------------------------------------------------------------------------------------------------------

    def _buses(self, found, values, now):
        """NVLink by counters, else by GPM; PCIe by GPM, else by counters where they are wide enough, else aside."""
        seen = self._gpm.read()
        last, self._last = self._last, now
        for field in _BUSES:
            if field not in values:
                continue
            value, bits = values[field]
            unit = 1 if field in _PCIE else 1024  # NVLink counts KiB
            rate = self._counters.rate(field, value, bits, now, unit)
            if rate is not None and (bits == 64 or field not in _PCIE or _cannot_wrap_twice(bits, now - last)):
                found[field] = round(rate, 1)
        for field, value in seen.items():
            if field in _PCIE or field not in found:
                found[field] = value
        if self._gpm.is_pending:
            return
        if self._asker.gave_up(_PCIE[0]) or (_PCIE[0] in values and values[_PCIE[0]][1] < 64):
            self._ask_aside(found)

    def _ask_aside(self, found):
        if _PCIE[0] in found:
            return
        traffic, reason = self._aside.latest(self._uuid, self._asker.handle)
        if traffic is not None:
            found["pcie_rx_bytes_s"], found["pcie_tx_bytes_s"] = traffic
        elif reason is not None:
            for field in _PCIE:
                self._asker.unsupported[field] = reason


def _cannot_wrap_twice(bits, seconds):
    return seconds * _PCIE_MOST < 1 << bits


#: Several names of one call, newest first.
_TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
_REASONS = (("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))


def quick(asker):
    """The figures that change fast and cost little: utilisation, memory, power, temperature, SM clock and its reasons.

    Raises Lost.
    """
    ask, nvml = asker.ask, asker.nvml
    found = {}
    utilization = ask(("util_pct", "mem_util_pct"), "nvmlDeviceGetUtilizationRates")
    if utilization is not None:
        found["util_pct"], found["mem_util_pct"] = utilization.gpu, utilization.memory
    memory = memory_of(asker, "mem_used_bytes")
    if memory is not None:
        found["mem_used_bytes"] = memory.used
    power = ask(("power_w",), "nvmlDeviceGetPowerUsage")
    if power is not None:
        found["power_w"] = power / 1000.0
    sensor = nvml.NVML_TEMPERATURE_GPU
    _put(found, "temp_c", asker.ask_first(("temp_c",), [(name, sensor) for name in _TEMPERATURE]))
    _put(found, "sm_clock_mhz", ask(("sm_clock_mhz",), "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM))
    reasons = asker.ask_first(("clocks_event_reasons",), _REASONS)
    if reasons:
        found["clocks_event_reasons"] = [name for bit, name in EVENT_REASONS if reasons & bit]
    return found


def memory_of(asker, field):
    """The driver's memory figures, with what it keeps for itself apart from what is used, where it can tell."""
    return asker.ask_first((field,), (("nvmlDeviceGetMemoryInfo", _MEMORY_V2), ("nvmlDeviceGetMemoryInfo",)))


def _put(found, field, value):
    if value is not None:
        found[field] = value


def _known_pstate(value):
    return value if value is not None and 0 <= value <= 15 else None  # 32 is NVML's unknown


def _recovery_action(number):
    return RECOVERY_ACTIONS[number] if 0 <= number < len(RECOVERY_ACTIONS) else "action %d" % number
