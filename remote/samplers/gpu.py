"""GPUs through NVML: who they are once, and their figures at every tick. The module that answers is a parameter."""

from .base import Sampler, Unavailable

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


class GpuSampler(Sampler):
    """`gpu_info` once, `gpu` at each tick. `nvml` is pynvml or what looks like it (`simulate.SimulatedNvml`)."""

    name = "gpu"

    def __init__(self, context, nvml):
        super(GpuSampler, self).__init__(context)
        self.nvml = nvml
        self.simulated = bool(getattr(nvml, "simulated", False))
        self._devices = []  # (index, uuid, handle)
        self._introduced = False

    def start(self):
        nvml = self.nvml
        try:
            nvml.nvmlInit()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                self._devices.append((index, nvml.nvmlDeviceGetUUID(handle), handle))
        except nvml.NVMLError as error:
            raise Unavailable("NVML: %s" % error, try_="run nvidia-smi on the node: it says the same in more words")

    def stop(self):
        self.nvml.nvmlShutdown()

    def tick(self, now):
        if not self._introduced:
            for device in self._devices:
                yield "gpu_info", self._info(*device)
            self._introduced = True
        for device in self._devices:
            yield "gpu", self._figures(*device)

    def _info(self, index, uuid, handle):
        nvml = self.nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        pci = self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        return {
            "index": index,
            "uuid": uuid,
            "name": self._ask(nvml.nvmlDeviceGetName, handle),
            "pci_bus_id": pci.busId if pci else None,
            "mem_total_bytes": memory.total if memory else None,
            "power_limit_w": _thousandth(self._ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            "simulated": self.simulated,
        }

    def _figures(self, index, uuid, handle):
        nvml = self.nvml
        utilization = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
        return {
            "index": index,
            "uuid": uuid,
            "util_pct": utilization.gpu if utilization else None,
            "mem_util_pct": utilization.memory if utilization else None,
            "mem_used_bytes": memory.used if memory else None,
            "power_w": _thousandth(self._ask(nvml.nvmlDeviceGetPowerUsage, handle)),
            "temp_c": self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            "sm_clock_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            "mem_clock_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            "pcie_rx_bytes_s": self._pcie(handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
            "pcie_tx_bytes_s": self._pcie(handle, nvml.NVML_PCIE_UTIL_TX_BYTES),
            "clocks_event_reasons": [name for bit, name in EVENT_REASONS if reasons & bit],
            "simulated": self.simulated,
        }

    def _pcie(self, handle, counter):
        kib_s = self._ask(self.nvml.nvmlDeviceGetPcieThroughput, handle, counter)
        return kib_s * 1024 if kib_s is not None else None

    def _ask(self, figure, *arguments):
        """The driver's answer, or None where this GPU or driver does not support the figure."""
        try:
            return figure(*arguments)
        except self.nvml.NVMLError:
            return None


def _thousandth(value):
    return value / 1000.0 if value is not None else None
