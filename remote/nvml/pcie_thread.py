"""PCIe traffic by nvmlDeviceGetPcieThroughput, which blocks for 20 ms a direction and so has its own thread."""

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
        if uuid not in self._handles:
            self._handles[uuid] = handle
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gconsole-pcie", daemon=True)
                self._thread.start()
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
        while not self._stop.is_set():
            began = time.monotonic()
            for uuid, handle in list(self._handles.items()):
                self._latest[uuid] = self._sample(handle)
            self._stop.wait(max(0.0, self._every_s - (time.monotonic() - began)))

    def _sample(self, handle: "Any") -> "tuple[float, float] | str":
        nvml = self._nvml
        try:
            rx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
            tx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        except nvml.NVMLError as error:
            return str(error)
        return rx * 1024.0, tx * 1024.0  # from KiB/s
