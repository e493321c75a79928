"""GPUs that do not exist, behind the same functions as pynvml: for demonstrations and tests, marked SIM everywhere.

Every figure is a function of the host's name, the GPU's index and the time, so that two looks at one instant agree.
"""

import math
import time
import zlib

from .simulate_topology import SimulatedPlaces, SimulatedTopology
from .simulate_topology import Values as _Values

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
#: nvml.h: the clocks follow the power limit
SW_POWER_CAP = 0x4

MEMORY_BYTES = 80 << 30
POWER_LIMIT_MW = 700000
SM_CLOCK_MHZ, MEM_CLOCK_MHZ = 1980, 2619


class NVMLError(Exception):
    """What pynvml raises."""


class _Device(object):
    """One simulated GPU: its place, and where on the waves it is."""

    __slots__ = ("index", "seed", "uuid")

    def __init__(self, host, index):
        self.index = index
        self.seed = zlib.crc32(("%s/%d" % (host, index)).encode("utf-8", "replace"))
        self.uuid = "GPU-53494d00-%04x-4000-8000-%012x" % (index, self.seed)  # 53 49 4d: SIM


class SimulatedNvml(SimulatedTopology):
    """The part of pynvml that the GPU sampler uses, for `count` GPUs of the host called `host`.

    `clock` gives seconds; two instances with one clock and one host show the same.
    """

    simulated = True
    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM, NVML_CLOCK_MEM = NVML_CLOCK_SM, NVML_CLOCK_MEM
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES

    def __init__(self, count, host, clock=time.time):
        self._devices = [_Device(host, index) for index in range(count)]
        self._clock = clock
        self.places = SimulatedPlaces(_address(index) for index in range(count))

    @property
    def uuids(self):
        return [device.uuid for device in self._devices]

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlDeviceGetCount(self):
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index):
        if not 0 <= index < len(self._devices):
            raise NVMLError("Invalid Argument")
        return self._devices[index]

    def nvmlDeviceGetUUID(self, device):
        return device.uuid

    def nvmlDeviceGetName(self, device):
        return "Simulated H100 80GB"

    def nvmlDeviceGetPciInfo(self, device):
        return _Values(busId="0000" + _address(device.index).upper())

    def nvmlDeviceGetEnforcedPowerLimit(self, device):
        return POWER_LIMIT_MW

    def nvmlDeviceGetUtilizationRates(self, device):
        load = self._load(device)
        return _Values(gpu=round(100 * load), memory=round(62 * load))

    def nvmlDeviceGetMemoryInfo(self, device, version=None):
        share = 0.72 + 0.12 * _unit(device.seed, 3) + 0.01 * self._wave(device, 180.0, 3)
        used = int(MEMORY_BYTES * share)
        return _Values(total=MEMORY_BYTES, used=used, free=MEMORY_BYTES - used)

    def nvmlDeviceGetPowerUsage(self, device):
        return int(90000 + 570000 * self._load(device) + 8000 * self._wave(device, 17.0, 5))

    def nvmlDeviceGetTemperature(self, device, sensor):
        return int(34 + 36 * self._load(device, 150.0) + 5 * _unit(device.seed, 7))

    def nvmlDeviceGetClockInfo(self, device, clock):
        if clock == NVML_CLOCK_MEM:
            return MEM_CLOCK_MHZ
        return int(SM_CLOCK_MHZ - 240 * max(0.0, self._load(device) - 0.8))

    def nvmlDeviceGetPcieThroughput(self, device, counter):
        """KiB/s, as NVML has it."""
        most = 4 << 20 if counter == NVML_PCIE_UTIL_RX_BYTES else 1 << 20
        return int(most * self._load(device))

    def nvmlDeviceGetCurrentClocksEventReasons(self, device):
        return SW_POWER_CAP if self._load(device) > 0.97 else 0

    def _load(self, device, period_s=90.0):
        """How busy the GPU is, 0 to 1: a high plateau with slow waves, different for each."""
        return min(1.0, 0.88 + 0.08 * self._wave(device, period_s, 1) + 0.04 * self._wave(device, period_s / 7, 2))

    def _wave(self, device, period_s, kind):
        return math.sin(2 * math.pi * (self._clock() / period_s + _unit(device.seed, kind)))


def _address(index):
    """Where in the machine a simulated GPU sits, in the kernel's notation."""
    return "0000:%02x:00.0" % (0x10 + index)


def _unit(seed, kind):
    """A number from 0 to 1 that belongs to this GPU."""
    return (seed * (2 * kind + 1) * 2654435761 >> 8) % 1024 / 1024.0
