"""NVML start-up and calls on one GPU: a result, or a named state, or None and the reason, kept once per field."""

import os
import threading
import time

from ..proc.threads import Thread
from ..samplers.base import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

#: nvml.h, nvmlReturn_t: (name of the state, problem, remedy) of the results that nvmlInit is known to return.
STATES = {
    4: (
        "gpu_no_permission",
        "the NVIDIA driver is loaded, but this user has no permission to use it",
        'let the login user open /dev/nvidia* (its group, the container\'s devices), or [agent] run_as = "sudo"',
    ),
    9: (
        "gpu_driver_not_loaded",
        "the NVIDIA library is installed, but its kernel driver is not loaded",
        "run modprobe nvidia; if that fails, dmesg has the reason",
    ),
    12: (
        "gpu_no_driver",
        "no NVIDIA driver library (libnvidia-ml.so.1) on this node",
        "install the driver if the node has GPUs; in a container, start it with the GPUs",
    ),
    18: (
        "gpu_driver_mismatch",
        "version mismatch between the NVIDIA kernel driver and its library",
        "the driver was updated while in use: reload its modules or reboot the node",
    ),
}
_OTHER_TRY = "run nvidia-smi on the node for details"
_NO_LIBRARY = 12
_LIBRARY = "libnvidia-ml.so.1"
#: Folders of the dynamic linker that need not be in its cache, and bytes of that which are read.
FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
_MOST_CACHE = 16 << 20


def is_installed(linker_cache: str = "/etc/ld.so.cache", folders: "Sequence[str]" = FOLDERS) -> bool:
    """Whether the dynamic linker can find the driver's library, by its cache and its folders: without loading it.

    True also where the linker has no such cache.
    """
    try:
        with open(linker_cache, "rb") as file:
            if _LIBRARY.encode("ascii") in file.read(_MOST_CACHE):
                return True
    except OSError:
        return True
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":") + list(folders)
    return any(os.path.exists(os.path.join(place or ".", _LIBRARY)) for place in places)


def check_installed() -> None:
    """Raises Unavailable if the driver's library is not installed: no process has to be started to try it."""
    if not is_installed():
        name, text, try_ = STATES[_NO_LIBRARY]
        raise Unavailable(text, try_, name)


def check_library() -> None:
    """Raises Unavailable if the driver's library cannot be loaded, before its binding is imported."""
    import ctypes  # only in the process that loads it

    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        name, text, try_ = STATES[_NO_LIBRARY]
        if "No such file" not in str(error):
            text = "the NVIDIA driver library cannot be loaded: %s" % error
        raise Unavailable(text, try_, name)


def import_binding() -> "Any":
    """The module pynvml. Raises Unavailable."""
    check_library()
    try:
        import pynvml  # type: ignore[import-untyped]
    except Exception as error:  # noqa: BLE001 - whatever the reason, there are no GPU metrics
        text = "the NVIDIA driver's library is there, but pynvml, which calls it, cannot be loaded: %s: %s"
        try_ = "run: gconsole clean, and connect again"
        raise Unavailable(text % (type(error).__name__, error), try_, "gpu_no_binding")
    return pynvml


def initialise(nvml: "Any") -> None:
    """Start NVML. Raises Unavailable with the name of its state."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        code = getattr(error, "value", None)
        if code in STATES:
            name, text, try_ = STATES[code]
            raise Unavailable("%s (NVML: %s)" % (text, error), try_, name)
        raise Unavailable("NVML failed to start: %s" % error, _OTHER_TRY, "gpu_nvml_failed")


def device_count(nvml: "Any") -> int:
    """Number of GPUs, at least 1. Raises Unavailable if there are none or NVML cannot count them."""
    try:
        devices = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise Unavailable("NVML cannot count the GPUs: %s" % error, _OTHER_TRY, "gpu_nvml_failed")
    if not devices:
        try_ = "run lspci -d 10de: to list the installed GPUs"
        raise Unavailable("the NVIDIA driver is running but finds no GPU", try_, "gpu_none")
    return int(devices)


#: nvml.h, nvmlReturn_t: GPU is off the bus; a GPU that existed is not found.
LOST = (15, 28)
#: nvml.h, nvmlReturn_t: results that repeat until a mode changes: invalid argument, not supported, no permission, no
#: such function, struct version mismatch, deprecated. `reset` allows another try.
LASTING = (2, 3, 4, 13, 25, 26)


#: nvml.h, NVML_ERROR_RESET_REQUIRED
RESET_REQUIRED = 16


class GpuLost(Exception):
    """The driver cannot reach the GPU; the text is the driver's."""


class NvmlDevice(object):
    """One GPU's handle. `unsupported` is {field: reason} of the fields without a value.

    After a `reset` the reasons stay until a field has a value, or has another reason, or `drop_unconfirmed` finds that
    it did not fail again: else they would be gone and come back, and the records of them be sent again, each time.
    """

    def __init__(self, nvml: "Any", handle: "Any") -> None:
        self.nvml = nvml
        self.handle = handle
        self.unsupported: "dict[str, str]" = {}
        self._unconfirmed: "set[str]" = set()  # fields that have not failed since the last `reset`
        self._disabled: "set[str]" = set()
        self._choice: "dict[str, int]" = {}  # field: index of the alternative that succeeded last
        self.succeeded = 0  # calls since `begin_tick`
        self.failed_ticks = 0  # consecutive ticks before this one in which no call succeeded
        self.failure: "tuple[int, str] | None" = None  # (code, function) of the last one that may succeed later

    def call(self, fields: "Sequence[str]", name: str, *arguments: "Any") -> "Any":
        """Result of the function `name`, from which `fields` are read; None if it failed. Raises GpuLost."""
        if fields[0] in self._disabled:
            return None
        return self._call(fields, name, arguments)

    def call_first(self, fields: "Sequence[str]", calls: "Sequence[Sequence[Any]]") -> "Any":
        """First result of several alternatives, (function name, arguments…) each; the one that succeeds is reused."""
        field = fields[0]
        if field in self._disabled:
            return None
        for number in range(self._choice.get(field, 0), len(calls)):
            result = self._call(fields, calls[number][0], calls[number][1:])
            if result is not None:
                self._choice[field] = number
                self.mark_supported(fields)
                return result
            if field not in self._disabled:
                return None  # a transient failure: keep the alternative
            self._disabled.discard(field)
        self._disabled.add(field)
        return None

    def begin_tick(self) -> None:
        """Count the calls of the next tick."""
        self.failed_ticks = self.failed_ticks + 1 if self._has_failed else 0
        self.succeeded, self.failure = 0, None

    def note_failure(self, code: "int | None", name: str, error: object) -> None:
        """Remember a failure that may be over at the next call."""
        if code is not None and code not in LASTING:
            self.failure = (code, "%s: %s" % (name, error))

    @property
    def _has_failed(self) -> bool:
        return self.failure is not None and not self.succeeded

    @property
    def unusable(self) -> "str | None":
        """Why the GPU cannot be used: it requires a reset, or no call of two ticks succeeded; None if it can."""
        if self.failure is None:
            return None
        if self.failure[0] == RESET_REQUIRED:
            return "the GPU requires a reset (%s)" % self.failure[1]
        return "no NVML call returns a value (%s)" % self.failure[1] if self._has_failed and self.failed_ticks else None

    def is_disabled(self, field: str) -> bool:
        """Whether a lasting failure of this field was recorded since the last `reset`."""
        return field in self._disabled

    def _call(self, fields: "Sequence[str]", name: str, arguments: "Sequence[Any]") -> "Any":
        function = getattr(self.nvml, name, None)
        if function is None:
            self.mark_unsupported(fields, "this binding has no %s" % name)
            return None
        try:
            result = function(self.handle, *arguments)
            self.succeeded += 1
            return result
        except self.nvml.NVMLError as error:
            code = getattr(error, "value", None)
            self.note_failure(code, name, error)
            self.record_failure(fields, code, str(error))
        except (UnicodeDecodeError, ValueError) as error:
            self.record_failure(fields, None, "invalid value from the driver: %s" % error)
        return None

    def record_failure(self, fields: "Iterable[str]", code: "int | None", text: str) -> None:
        """Record a failure with its NVML return value. Raises GpuLost if the GPU is gone."""
        if code in LOST:
            raise GpuLost(text)
        for field in fields:
            if field not in self.unsupported or field in self._unconfirmed:
                self.unsupported[field] = text
        self._unconfirmed.difference_update(fields)
        if code in LASTING:
            self._disabled.update(fields)

    def note_reason(self, field: str, reason: str) -> None:
        """Record why a field has no value now; it is read again at the next tick."""
        self.unsupported[field] = reason
        self._unconfirmed.discard(field)

    def mark_unsupported(self, fields: "Iterable[str]", reason: str) -> None:
        """Disable fields that have no source here."""
        for field in fields:
            self.unsupported[field] = reason
        self._unconfirmed.difference_update(fields)
        self._disabled.update(fields)

    def mark_supported(self, fields: "Iterable[str]") -> None:
        """Enable fields that got a value, whatever failed before."""
        for field in fields:
            self.unsupported.pop(field, None)
            self._disabled.discard(field)

    def reset(self) -> None:
        """Try every field again."""
        self.drop_unconfirmed()
        self._unconfirmed = set(self.unsupported)
        self._disabled.clear()
        self._choice.clear()

    def drop_unconfirmed(self) -> None:
        """Forget the reasons of fields that have not failed since the last `reset`; all have been read since then."""
        for field in self._unconfirmed:
            self.unsupported.pop(field, None)
        self._unconfirmed = set()


class PcieThread(object):
    """Samples the GPUs in turn, each about once a second; `latest` does not block."""

    def __init__(self, nvml: "Any", every_s: float = 1.0) -> None:
        self._nvml = nvml
        self._every_s = every_s
        self._handles: "dict[str, Any]" = {}  # by uuid
        self._latest: "dict[str, tuple[float, float] | str]" = {}  # uuid: (rx, tx) in bytes/s, or an error
        self._stop = threading.Event()
        self._thread: "threading.Thread | None" = None

    def latest(self, uuid: str, handle: "Any") -> "tuple[tuple[float, float] | None, str | None]":
        """((rx, tx) in bytes/s, None), (None, error), or (None, None) before the first sample."""
        if uuid not in self._handles or self._thread is None:
            self._handles[uuid] = handle
            if self._thread is None:
                thread = Thread(target=self._run, name="gconsole-pcie")
                thread.start()
                self._thread = thread
        result = self._latest.get(uuid)
        return (None, result) if isinstance(result, str) else (result, None)

    def remove(self, uuid: str) -> None:
        """Stop sampling this GPU."""
        self._handles.pop(uuid, None)
        self._latest.pop(uuid, None)

    def stop(self) -> None:
        """Signal the thread to end; does not wait for it."""
        self._stop.set()

    def _run(self) -> None:
        while True:
            try:
                if self._stop.is_set():
                    return
                began = time.monotonic()
                for uuid, handle in list(self._handles.items()):
                    self._latest[uuid] = self._sample(handle)
                self._stop.wait(max(0.0, self._every_s - (time.monotonic() - began)))
            except Exception:  # noqa: BLE001 - without memory; the last samples would stay
                self._latest.clear()
                time.sleep(self._every_s)

    def _sample(self, handle: "Any") -> "tuple[float, float] | str":
        nvml = self._nvml
        try:
            rx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
            tx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        except nvml.NVMLError as error:
            return str(error)
        return rx * 1024.0, tx * 1024.0  # from KiB/s
