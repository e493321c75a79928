"""NVLinks of one GPU, read every 10 s: they are too many for every tick, and their counters lose nothing."""

from ..samplers.base import Counters
from .call import NvmlDevice
from .fields import FieldReader, NvmlField

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .fields import Values

REFRESH_S = 10.0
MAX_LINKS = 36  # nvml.h, NVML_NVLINK_MAX_LINKS of its newest version
#: (field, number in nvml.h); the scope is the link.
_FIELDS = (
    ("up", 165),
    ("version", 166),
    ("speed", 164),
    ("tx_bytes_s", 138),
    ("rx_bytes_s", 139),
)
#: Error counters of the links up to Hopper, and those of Blackwell and newer (NVLINK_COUNT_*), which lack the others.
_ERRORS = (("crc_errors", 163), ("replay_errors", 161), ("recovery_errors", 162))
_ERRORS_5 = (
    ("malformed_packets", 206),
    ("buffer_overruns", 207),
    ("rx_errors", 208),
    ("integrity_errors", 211),
    ("tx_discards", 212),
    ("failed_recoveries", 214),
    ("recovery_errors", 215),
    ("effective_errors", 219),
    ("symbol_errors", 221),
)
#: Bytes, where the driver has no throughput counter of a Blackwell link.
_BYTES = (("tx_bytes", 202), ("rx_bytes", 204))
_COUNTED = tuple(name for name, _ in _ERRORS_5) + ("crc_errors", "replay_errors")
#: Counters that are summed over the links of a GPU.
_SUMMED = ("crc_errors", "replay_errors", "recovery_errors")
#: A rate above this share of the line rate is an error of the counter.
MOST = 1.05
#: Bytes/s in one direction of a link whose speed is unknown: twice that of NVLink 5.
_FASTEST_BYTES_S = 100e9
TOO_FAST = "the driver's counter exceeds the line rate"


class NvLinks(object):
    """Reads `gpu_link` fields when they are due; `changes` lists the links that went down or up."""

    def __init__(self, device: "NvmlDevice", delay_s: float) -> None:
        """`delay_s`: delay of the first reading, so that not all GPUs are due at once."""
        self._device = device
        self._delay_s = delay_s
        self._due: "float | None" = None
        self._count: "int | None" = None  # None: unknown
        self._readers: "list[FieldReader]" = []
        self._error_fields: "tuple[tuple[str, int], ...]" = _ERRORS
        self._may_swap = True
        self._counters = Counters()
        self._up: "dict[int, bool]" = {}  # link: its last state
        self._last: "list[dict[str, Any]]" = []  # records of the last reading
        self._totals: "dict[str, int | None]" = {}
        self.changes: "list[tuple[int, bool]]" = []  # (link, is up) since the last reading

    @property
    def count(self) -> "int | None":
        """Number of links; None if unknown."""
        return self._count

    @property
    def is_pending(self) -> bool:
        """Whether there are links and none has been read."""
        return bool(self._count) and not self._totals

    def totals(self) -> "dict[str, int | None]":
        """{field of `gpu`: sum over the links at the last reading}."""
        return self._totals

    @property
    def line_rate(self) -> float:
        """Bytes/s of all links in one direction, at most."""
        speeds = [link.get("speed_bytes_s") or 0.0 for link in self._last]
        return sum(speeds) or (self._count or MAX_LINKS) * _FASTEST_BYTES_S

    def rate(self, field: str) -> "float | None":
        """Sum of that rate over the links at their last reading; None unless all are known."""
        rates = [link.get(field) for link in self._last]
        return _sum(rates) if rates and None not in rates else None

    def discover(self, capability: "str | None" = None) -> None:
        """Count the links of a GPU of that compute capability. Raises GpuLost."""
        self._error_fields = _ERRORS_5 if int((capability or "0").partition(".")[0]) >= 10 else _ERRORS
        values = FieldReader(self._device, (NvmlField("nvlinks", 91),)).read()
        if "nvlinks" in values:
            self._count = min(MAX_LINKS, values["nvlinks"][0])
        else:
            self._count = self._count_by_state()
            if self._count:
                self._device.mark_supported(("nvlinks",))

    def _count_by_state(self) -> "int | None":
        nvml = self._device.nvml
        for link in range(MAX_LINKS):
            try:
                nvml.nvmlDeviceGetNvLinkState(self._device.handle, link)
            except (AttributeError, nvml.NVMLError):
                return link or None
        return MAX_LINKS

    def reset(self) -> None:
        """Read unsupported fields again."""
        self._may_swap = True
        for reader in self._readers:
            reader.reset()

    def read(self, now: float) -> "list[dict[str, Any]]":
        """`gpu_link` fields of each link, or [] while they are not due. Raises GpuLost."""
        self.changes = []
        if self._due is None:
            self._due = now + self._delay_s
        if now < self._due:
            return []
        self._due = now + REFRESH_S
        if not self._count:
            return []
        if len(self._readers) != self._count:
            self._readers = [self._reader(link) for link in range(self._count)]
        values = [reader.read() for reader in self._readers]
        if self._may_swap and not any(name in link for link in values for name in _COUNTED):
            self._error_fields = _ERRORS if self._error_fields is _ERRORS_5 else _ERRORS_5
            self._readers, self._may_swap = [], False  # from the next reading on
        records = self._last = [self._record(link, of_link, now) for link, of_link in enumerate(values)]
        self._totals = {"nvlink_" + field: _sum(record.get(field) for record in records) for field in _SUMMED}
        return records

    def _reader(self, link: int) -> "FieldReader":
        # links of one GPU are alike: an unsupported field is recorded once, under the record's name
        numbers = _FIELDS + self._error_fields + (_BYTES if self._error_fields is _ERRORS_5 else ())
        fields = [NvmlField(name, number, link) for name, number in numbers]
        return FieldReader(_LinkDevice(self._device), fields)

    def _record(self, link: int, values: "Values", now: float) -> "dict[str, Any]":
        record: "dict[str, Any]" = {"link": link}
        up = bool(values["up"][0]) if "up" in values else self._state(link)
        if up is not None:
            record["up"] = up
            if self._up.get(link, up) != up:
                self.changes.append((link, up))
            self._up[link] = up
        if "version" in values:
            record["version"] = values["version"][0]
        if "speed" in values:
            record["speed_bytes_s"] = values["speed"][0] * 1e6  # from MB/s
        for field, counter in (("rx_bytes_s", "rx_bytes"), ("tx_bytes_s", "tx_bytes")):
            source, unit = (field, 1024) if field in values else (counter, 1)  # nvml.h: KiB
            if source not in values:
                continue
            rate = self._counters.rate((link, source), values[source][0], values[source][1], now, unit)
            if rate is not None and rate > MOST * (record.get("speed_bytes_s") or _FASTEST_BYTES_S):
                self._device.unsupported.setdefault("gpu_link." + field, TOO_FAST)
            elif rate is not None:
                record[field] = round(rate, 1)
        grown = {}
        for field in _COUNTED:
            if field in values:
                record[field] = values[field][0]
                gained = self._counters.growth((link, field), *values[field])
                if gained:
                    grown[field] = gained
        if grown:
            record["grown"] = grown
        return record

    def _state(self, link: int) -> "bool | None":
        """Link state by the older call."""
        nvml = self._device.nvml
        try:
            return bool(nvml.nvmlDeviceGetNvLinkState(self._device.handle, link))
        except (AttributeError, nvml.NVMLError):
            return None


class _LinkDevice(NvmlDevice):
    """A GPU as the reader of one link sees it: failures are recorded with the GPU under `gpu_link.FIELD`."""

    def __init__(self, device: "NvmlDevice") -> None:
        self._device = device
        self.nvml, self.handle = device.nvml, device.handle
        self._disabled = set()
        self.succeeded, self.failure, self.failed_ticks = 0, None, 0

    def record_failure(self, fields: "Iterable[str]", code: "int | None", text: str) -> None:
        self._device.record_failure(["gpu_link." + field for field in fields], code, text)
        self._disabled.update(field for field in fields if self._device.is_disabled("gpu_link." + field))

    def mark_unsupported(self, fields: "Iterable[str]", reason: str) -> None:
        self._device.mark_unsupported(["gpu_link." + field for field in fields], reason)
        self._disabled.update(fields)


def _sum(values: "Iterable[Any]") -> "Any":
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
