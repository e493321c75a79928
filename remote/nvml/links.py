"""NVLinks of one GPU: states and errors every 5 s, figures every 10 s. They are too many for every tick."""

from ..samplers.base import Counters
from .call import NvmlDevice
from .fields import FieldReader, NvmlField

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .fields import Values

#: Seconds between two records of every link, and between two reads of states and errors: a link in which one of these
#: has changed has a record at once. The counters lose nothing.
REFRESH_S, CHECK_S = 10.0, 5.0
#: Links that are read by one call.
_AT_ONCE = 4
MAX_LINKS = 36  # nvml.h, NVML_NVLINK_MAX_LINKS of its newest version
#: (field, number in nvml.h); the scope is the link.
_STATE = (("up", 165),)
_FIGURES = (
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
        self._check_due = 0.0
        self._count: "int | None" = None  # None: unknown
        self._checks: "list[FieldReader]" = []  # of states and errors
        self._figures: "list[FieldReader]" = []
        self._error_fields: "tuple[tuple[str, int], ...]" = _ERRORS
        self._may_swap = True
        self._counters = Counters()
        self._up: "dict[int, bool]" = {}  # link: its last state
        self._values: "list[Values]" = []  # of each link, as last read
        self._last: "list[dict[str, Any]]" = []  # records of the last reading
        self._speed = 0.0  # bytes/s of all links, as far as known
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
        """{field of `gpu`: sum over the links at the last reading}; another dict when a sum has changed."""
        return self._totals

    @property
    def line_rate(self) -> float:
        """Bytes/s of all links in one direction, at most."""
        return self._speed or (self._count or MAX_LINKS) * _FASTEST_BYTES_S

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
        for reader in self._checks + self._figures:
            reader.reset()

    def read(self, now: float) -> "list[dict[str, Any]]":
        """`gpu_link` fields: of each link when they are due, else of those that have changed. Raises GpuLost."""
        self.changes = []
        if self._due is None:
            self._due = now + self._delay_s
        is_due = now >= self._due
        if not is_due and (now < self._check_due or not self._last):
            return []
        self._check_due = now + CHECK_S - 0.1  # ticks are on a grid and slightly late
        if is_due:
            self._due = now + REFRESH_S
        if not self._count:
            return []
        if not self._checks:
            self._checks = self._readers(_STATE + self._error_fields)
            more = _BYTES if self._error_fields is _ERRORS_5 else ()
            self._figures = self._readers(_FIGURES + more)
        before, values = self._values, self._read(self._checks)
        for link, of_link in enumerate(values):
            state = self._state(link) if "up" not in of_link else None
            if state is not None:
                of_link["up"] = (state, 1)
        self._values = values
        if is_due:
            if self._may_swap and not any(name in link for link in values for name in _COUNTED):
                self._error_fields = _ERRORS if self._error_fields is _ERRORS_5 else _ERRORS_5
                self._checks, self._may_swap = [], False  # from the next reading on
            figures = self._read(self._figures)
            records = [self._record(link, dict(values[link], **figures[link]), now) for link in range(self._count)]
            self._last = list(records)
            self._speed = sum(record.get("speed_bytes_s") or 0.0 for record in records)
        else:
            links = [link for link in range(self._count) if values[link] != before[link]]
            records = [dict(self._without_gain(link), **self._record(link, values[link], now)) for link in links]
            for record in records:
                self._last[record["link"]] = record
        if records:
            totals = {"nvlink_" + field: _sum(record.get(field) for record in self._last) for field in _SUMMED}
            if totals != self._totals:
                self._totals = totals
        return records

    def _without_gain(self, link: int) -> "dict[str, Any]":
        """The last record of a link, as the base of another one."""
        return {field: value for field, value in self._last[link].items() if field != "grown"}

    def _readers(self, numbers: "tuple[tuple[str, int], ...]") -> "list[FieldReader]":
        """Readers of these fields of some links each."""
        links = range(self._count or 0)
        parts = [links[first : first + _AT_ONCE] for first in range(0, len(links), _AT_ONCE)]
        return [FieldReader(_LinksDevice(self._device), [_LinkField(name, number, link) for link in part
                                                         for name, number in numbers])
                for part in parts]  # fmt: skip

    def _read(self, readers: "list[FieldReader]") -> "list[Values]":
        """The values of each link, by field."""
        values: "list[Values]" = [{} for _ in range(self._count or 0)]
        for reader in readers:
            for (field, link), value in reader.read().items():
                values[link][field] = value
        return values

    def _record(self, link: int, values: "Values", now: float) -> "dict[str, Any]":
        record: "dict[str, Any]" = {"link": link}
        if "up" in values:
            up = record["up"] = bool(values["up"][0])
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
                self._device.note_reason("gpu_link." + field, TOO_FAST)
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


class _LinkField(NvmlField):
    """A field of one link; its name is (name in the record, link)."""

    def __init__(self, name: str, number: int, link: int) -> None:
        super(_LinkField, self).__init__((name, link), number, link)


class _LinksDevice(NvmlDevice):
    """A GPU as the reader of some links sees it: failures are recorded with the GPU under `gpu_link.FIELD`.

    Links of one GPU are alike: that a field is not supported is recorded once.
    """

    def __init__(self, device: "NvmlDevice") -> None:
        self._device = device
        self.nvml, self.handle = device.nvml, device.handle
        self._disabled = set()
        self.succeeded, self.failure, self.failed_ticks = 0, None, 0

    def record_failure(self, fields: "Iterable[Any]", code: "int | None", text: str) -> None:
        self._device.record_failure({"gpu_link." + field for field, _ in fields}, code, text)
        self._disabled.update(field for field in fields if self._device.is_disabled("gpu_link." + field[0]))

    def mark_unsupported(self, fields: "Iterable[Any]", reason: str) -> None:
        self._device.mark_unsupported({"gpu_link." + field for field, _ in fields}, reason)
        self._disabled.update(fields)


def _sum(values: "Iterable[Any]") -> "Any":
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
