"""What happens to GPUs: XIDs from the driver's event set and the kernel's log, and clocks held down for a while."""

import ctypes
import threading

from . import xids
from .kernel_log import place_of

XID_CRITICAL_ERROR = 0x8  # nvml.h, nvmlEventTypeXidCriticalError
WAIT_MS = 1000
_TIMEOUT = 10
#: Event set and kernel log tell of one and the same XID within this time.
SAME_S = 5.0
#: A reason that holds the clocks down must last so long to be told, and be away so long to be over.
LIMITED_S, FREE_S = 3.0, 10.0
#: Reasons worth an event: (severity, plain words). An idle GPU, or clocks that somebody set, are none.
REASONS = {
    "sw_power_cap": ("info", "the power limit"),
    "hw_slowdown": ("warning", "the hardware (heat, power brake or a bad supply)"),
    "sw_thermal_slowdown": ("warning", "the driver, because of heat"),
    "hw_thermal_slowdown": ("warning", "the hardware, because of heat"),
    "hw_power_brake_slowdown": ("warning", "the power brake of the machine"),
}


class XidWatch(object):
    """Waits for the driver's XID events on a thread of its own."""

    def __init__(self, nvml):
        self._nvml = nvml
        self._set = self._thread = None
        self._registered = {}  # address of the handle: uuid
        self._seen = []  # (uuid or None, number), taken by `take`
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.failure = None  # why the driver does not tell them just now, its words

    def start(self, devices):
        """Watch these (uuid, handle); {uuid: reason} of those that cannot be watched."""
        nvml = self._nvml
        try:
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
        if self._registered:
            self._thread = threading.Thread(target=self._run, name="gconsole-xid", daemon=True)
            self._thread.start()
        return refused

    def take(self):
        """The (uuid or None, number) since the last call."""
        if not self._seen:
            return []
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def stop(self):
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0 * WAIT_MS / 1000.0)
        if self._set is not None:
            try:
                self._nvml.nvmlEventSetFree(self._set)
            except self._nvml.NVMLError:
                pass  # the driver frees it with everything else

    def _run(self):
        nvml = self._nvml
        while not self._stop.is_set():
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except nvml.NVMLError as error:
                if getattr(error, "value", None) == _TIMEOUT:
                    self.failure = None
                else:
                    self.failure = str(error)
                    self._stop.wait(WAIT_MS / 1000.0)  # a lost GPU fails every wait; the others still report
                continue
            self.failure = None
            if event.eventType & XID_CRITICAL_ERROR:
                with self._lock:
                    self._seen.append((self._registered.get(_address(event.device)), event.eventData))


def _address(handle):
    return ctypes.cast(handle, ctypes.c_void_p).value


class XidEvents(object):
    """`gpu_event` fields of the XIDs of both sources, each XID once."""

    def __init__(self, devices):
        """`devices` are (index, uuid, pci_bus_id or None)."""
        self._by_uuid = {uuid: (index, uuid, bus_id) for index, uuid, bus_id in devices}
        self._by_place = {place_of(one[2]): one for one in self._by_uuid.values() if one[2]}
        self._told = {}  # (uuid or place, number): (time, source)

    def fold(self, now, from_kernel, from_nvml):
        """The events of one tick. The kernel's line goes first: it says more."""
        for line in from_kernel:
            device = self._by_place.get(line.place)
            key = (device[1] if device else line.place, line.number)
            if not self._is_told(key, now, "kernel"):
                yield self._event(device, line.number, "kernel", line.words, line.place)
        for uuid, number in from_nvml:
            if not self._is_told((uuid, number), now, "nvml"):
                yield self._event(self._by_uuid.get(uuid), number, "nvml", "", None)

    def _is_told(self, key, now, source):
        """Whether the other source has told this one already; the same source tells it anew each time it happens."""
        at, by = self._told.get(key, (None, None))
        if at is not None and by != source and now - at < SAME_S:
            del self._told[key]
            return True
        self._told[key] = (now, source)
        return False

    @staticmethod
    def _event(device, number, source, words, place):
        severity, text, try_ = xids.meaning(number, words)
        index, uuid, bus_id = device or (None, "", None)
        if bus_id is None and place is not None:
            bus_id = "%08X:%02X:%02X.0" % place
        return {
            "index": index,
            "uuid": uuid,
            "pci_bus_id": bus_id,
            "event": "xid",
            "severity": severity,
            "text": "XID %d: %s%s" % (number, text, " (%s)" % words if words else ""),
            "try_": try_,
            "source": source,
            "xid": number,
            "sub_code": _sub_code(number, words),
        }


def _sub_code(number, words):
    """The unit's own name of the error, which the driver puts first for NVLink XIDs."""
    return words.split()[0] if 144 <= number <= 150 and words else None


class ClockWatch(object):
    """Tells when a reason has held one GPU's clocks down for a while, and when it has been away for a while."""

    def __init__(self):
        self._since = {}  # reason: (state it may become, since when)
        self._limited = {}  # reason: since when it holds

    def look(self, now, reasons):
        """(reason, is limited, seconds it held or None) for each change."""
        changes = []
        for reason in REASONS:
            here, told = reason in reasons, reason in self._limited
            if here == told:
                self._since.pop(reason, None)
                continue
            since = self._since.setdefault(reason, now)
            if here and now - since >= LIMITED_S:
                self._limited[reason] = since
                changes.append((reason, True, None))
            elif not here and now - since >= FREE_S:
                changes.append((reason, False, since - self._limited.pop(reason)))
            else:
                continue
            del self._since[reason]
        return changes


def clock_event(reason, limited, seconds):
    """The fields of such a change that do not name the GPU."""
    severity, words = REASONS[reason]
    if limited:
        return {"event": "clocks_limited", "severity": severity, "reason": reason,
                "text": "the clocks are held down by %s (%s)" % (words, reason)}  # fmt: skip
    text = "the clocks are no longer held down by %s (%s); it was so for %.0f s" % (words, reason, seconds)
    return {"event": "clocks_free", "severity": "info", "reason": reason, "text": text}
