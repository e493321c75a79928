"""GPU events: XIDs from the driver's event set and the kernel log, and sustained clock throttling."""

import collections
import ctypes
import re

from . import xids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator

    PciAddress = tuple[int, ...]
    GpuIdentity = tuple[int, str, "str | None"]  # (index, uuid, pci_bus_id)

XID_CRITICAL_ERROR = 0x8  # nvml.h, nvmlEventTypeXidCriticalError
#: Milliseconds to wait for an event where there is none, and events of one tick.
WAIT_MS, MOST_EVENTS = 0, 256
_TIMEOUT = 10  # nvml.h, NVML_ERROR_TIMEOUT
#: Seconds. Event set and kernel log report the same XID within this time.
SAME_XID_S = 5.0
#: Seconds. Minimum duration of a throttle reason before its event, and of its absence before it is cleared.
THROTTLED_S, CLEARED_S = 3.0, 10.0
#: Throttle reasons with an event: (severity, cause). An idle GPU or application clocks are not events.
REASONS = {
    "sw_power_cap": ("info", "power limit"),
    "hw_slowdown": ("warning", "hardware slowdown: heat, power brake or power supply"),
    "sw_thermal_slowdown": ("warning", "driver thermal slowdown"),
    "hw_thermal_slowdown": ("warning", "hardware thermal slowdown"),
    "hw_power_brake_slowdown": ("warning", "hardware power brake of the machine"),
}


class XidListener(object):
    """Takes the driver's XID events, which its event set keeps until they are asked for, once a tick.

    A thread that waits for them would cost more: it wakes up for each of its time limits.
    """

    def __init__(self, nvml: "Any") -> None:
        self._nvml = nvml
        self._set: "Any" = None
        self._registered: "dict[int | None, str]" = {}  # address of the handle: uuid
        self.failure: "str | None" = None  # the driver's error while asking fails

    def start(self, devices: "Iterable[tuple[str, Any]]") -> "dict[str, str]":
        """Register these (uuid, handle); returns {uuid: reason} of those that cannot be registered."""
        nvml = self._nvml
        devices = list(devices)
        try:
            if self._set is None:
                self._set = nvml.nvmlEventSetCreate()
        except (AttributeError, nvml.NVMLError) as error:
            reason = "this binding has no events" if isinstance(error, AttributeError) else str(error)
            return {uuid: reason for uuid, _ in devices}
        refused = {}
        for uuid, handle in devices:
            try:
                nvml.nvmlDeviceRegisterEvents(handle, XID_CRITICAL_ERROR, self._set)
                self._registered[_address(handle)] = uuid
            except nvml.NVMLError as error:
                refused[uuid] = str(error)
        return refused

    def poll(self) -> "list[tuple[str | None, int]]":
        """The (uuid or None, XID) since the last call."""
        events: "list[tuple[str | None, int]]" = []
        nvml = self._nvml
        for _ in range(MOST_EVENTS if self._registered else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except nvml.NVMLError as error:  # a lost GPU fails every call; the others still report
                self.failure = None if getattr(error, "value", None) == _TIMEOUT else str(error)
                break
            self.failure = None
            if event.eventType & XID_CRITICAL_ERROR:
                events.append((self._registered.get(_address(event.device)), event.eventData))
        return events

    def stop(self) -> None:
        """Free the event set."""
        if self._set is not None:
            try:
                self._nvml.nvmlEventSetFree(self._set)
            except self._nvml.NVMLError:
                pass  # the driver frees it with the process


def _address(handle: "Any") -> "int | None":
    return ctypes.cast(handle, ctypes.c_void_p).value


class XidEvents(object):
    """`gpu_event` fields of the XIDs of both sources, each XID once."""

    def __init__(self, devices: "Iterable[GpuIdentity]") -> None:
        self._by_uuid: "dict[str, GpuIdentity]" = {}
        self._by_address: "dict[PciAddress | None, GpuIdentity]" = {}
        self._reported: "dict[Any, tuple[float, str]]" = {}  # (uuid or PCI address, XID): (time, source)
        self.add(devices)

    def add(self, devices: "Iterable[GpuIdentity]") -> None:
        """Name these GPUs in the events, too."""
        for device in devices:
            self._by_uuid[device[1]] = device
            if device[2]:
                self._by_address[parse_pci_address(device[2])] = device

    def fold(
        self, now: float, from_kernel: "Iterable[XidLine]", from_nvml: "Iterable[tuple[str | None, int]]"
    ) -> "Iterator[dict[str, Any]]":
        """Events of one tick. Kernel lines go first: they carry details, and are kept if these change the severity."""
        for line in from_kernel:
            device = self._by_address.get(line.address)
            key = (device[1] if device else line.address, line.number)
            is_needed = xids.meaning(line.number, line.words).severity != xids.meaning(line.number).severity
            if not self._is_duplicate(key, now, "kernel") or is_needed:
                yield self._event(device, line.number, "kernel", line.words, line.address)
        for uuid, number in from_nvml:
            if not self._is_duplicate((uuid, number), now, "nvml"):
                yield self._event(self._by_uuid.get(uuid or ""), number, "nvml", "", None)

    def _is_duplicate(self, key: "tuple[Any, int]", now: float, source: str) -> bool:
        """Whether the other source reported this XID just before; the same source repeats it when it recurs."""
        last = self._reported.get(key)
        if last is not None and last[1] != source and now - last[0] < SAME_XID_S:
            del self._reported[key]
            return True
        self._reported[key] = (now, source)
        return False

    @staticmethod
    def _event(
        device: "GpuIdentity | None", number: int, source: str, words: str, address: "PciAddress | None"
    ) -> "dict[str, Any]":
        meaning = xids.meaning(number, words)
        index, uuid, bus_id = device or (None, "", None)
        if bus_id is None and address is not None:
            bus_id = "%08X:%02X:%02X.0" % address
        return {
            "index": index,
            "uuid": uuid,
            "pci_bus_id": bus_id,
            "event": "xid",
            "severity": meaning.severity,
            "text": "XID %d: %s%s" % (number, meaning.text, " (%s)" % words if words else ""),
            "try_": meaning.try_,
            "action": meaning.action,
            "owner": meaning.owner,
            "source": source,
            "xid": number,
            "sub_code": _sub_code(number, words),
        }


def _sub_code(number: int, words: str) -> "str | None":
    """The unit's own error name, which the driver puts first for NVLink XIDs."""
    return words.split()[0] if 144 <= number <= 150 and words else None


class ThrottleWatch(object):
    """Debounces the throttle reasons of one GPU."""

    def __init__(self) -> None:
        self._since: "dict[str, float]" = {}  # reason: when its state last differed from the reported one
        self._throttled: "dict[str, float]" = {}  # reported reason: since when

    def update(self, now: float, reasons: "Iterable[str]") -> "list[tuple[str, bool, float | None]]":
        """(reason, is throttled, seconds it lasted or None) for each change."""
        changes: "list[tuple[str, bool, float | None]]" = []
        for reason in REASONS:
            is_active, is_reported = reason in reasons, reason in self._throttled
            if is_active == is_reported:
                self._since.pop(reason, None)
                continue
            since = self._since.setdefault(reason, now)
            if is_active and now - since >= THROTTLED_S:
                self._throttled[reason] = since
                changes.append((reason, True, None))
            elif not is_active and now - since >= CLEARED_S:
                changes.append((reason, False, since - self._throttled.pop(reason)))
            else:
                continue
            del self._since[reason]
        return changes


def throttle_event(reason: str, is_throttled: bool, seconds: "float | None") -> "dict[str, Any]":
    """The `gpu_event` fields of a change that do not name the GPU."""
    severity, cause = REASONS[reason]
    if is_throttled:
        return {"event": "clocks_limited", "severity": severity, "reason": reason,
                "text": "clocks throttled: %s (%s)" % (cause, reason)}  # fmt: skip
    text = "throttling cleared after %.0f s: %s (%s)" % (seconds or 0.0, cause, reason)
    return {"event": "clocks_free", "severity": "info", "reason": reason, "text": text}


#: One line of the kernel log: `address` is (domain, bus, device) or None, `words` what follows the number.
XidLine = collections.namedtuple("XidLine", "address number words")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, *(.*))?")


def parse_pci_address(address: str) -> "PciAddress | None":
    """(domain, bus, device) of a PCI address in the kernel's or NVML's notation; None if malformed."""
    try:
        parts = [int(part, 16) for part in address.partition(".")[0].split(":")]
    except ValueError:
        return None
    return tuple(parts) if len(parts) == 3 else None


def parse_xid(line: str) -> "XidLine | None":
    """The XidLine of a log line, or None."""
    match = _XID.search(line)
    if match is None:
        return None
    return XidLine(parse_pci_address(match.group(1)), int(match.group(2)), (match.group(3) or "").strip()[:300])


def xids_in(messages: "Iterable[tuple[float, str]]") -> "list[XidLine]":
    """The XidLines among messages of the kernel log."""
    return [xid for _, text in messages if "NVRM" in text for xid in (parse_xid(text),) if xid is not None]
