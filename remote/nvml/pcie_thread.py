"""PCIe traffic where only nvmlDeviceGetPcieThroughput tells it: 20 ms a direction, and so on a thread of its own."""

import threading
import time


class PcieAside(object):
    """Asks one GPU after the other, each about once a second; `latest` never waits."""

    def __init__(self, nvml, every_s=1.0):
        self._nvml = nvml
        self._every_s = every_s
        self._wanted = {}  # uuid: handle
        self._latest = {}  # uuid: (rx, tx) in bytes/s, or the reason why there is none
        self._stop = threading.Event()
        self._thread = None

    def latest(self, uuid, handle):
        """((rx, tx) in bytes/s, None), (None, reason), or (None, None) before the first answer."""
        if uuid not in self._wanted:
            self._wanted[uuid] = handle
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gconsole-pcie", daemon=True)
                self._thread.start()
        answer = self._latest.get(uuid)
        return (None, answer) if isinstance(answer, str) else (answer, None)

    def forget(self, uuid):
        """This GPU is not to be asked any more."""
        self._wanted.pop(uuid, None)
        self._latest.pop(uuid, None)

    def stop(self):
        self._stop.set()

    def _run(self):
        while not self._stop.is_set():
            began = time.monotonic()
            for uuid, handle in list(self._wanted.items()):
                self._latest[uuid] = self._ask(handle)
            self._stop.wait(max(0.0, self._every_s - (time.monotonic() - began)))

    def _ask(self, handle):
        nvml = self._nvml
        try:
            rx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
            tx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
        except nvml.NVMLError as error:
            return str(error)
        return rx * 1024.0, tx * 1024.0  # NVML says KiB/s
