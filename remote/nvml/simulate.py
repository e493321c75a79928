"""Simulated GPUs with the functions of pynvml, for demonstrations and tests; marked SIM everywhere.

Every metric is a function of host name, GPU index and time, so that two readings at one instant agree.
"""

import math
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
#: nvml.h, nvmlClocksEventReasonSwPowerCap
SW_POWER_CAP = 0x4

MEMORY_BYTES = 80 << 30
POWER_LIMIT_MW = 700000
SM_CLOCK_MHZ, MEM_CLOCK_MHZ = 1980, 2619
#: Two GPUs per PCIe switch, two switches per NUMA node, 18 NVLinks from each GPU to four NVSwitches.
LINKS, SWITCHES = 18, 4
_PER_SWITCH, _PER_NUMA = 2, 4
_NVLINK_VERSION, _SWITCH = 4, 2
_PIX, _NODE, _SYS = 10, 40, 50


class NVMLError(Exception):
    """The simulation's counterpart of pynvml's exception."""


class _Struct(object):
    """An NVML struct."""

    def __init__(self, **values: "Any") -> None:
        self.__dict__.update(values)


class SimulatedPlaces(object):
    """Replaces `pci.PciTree`; `addresses` are those of the GPUs by index."""

    simulated = True

    def __init__(self, addresses: "Iterable[str]") -> None:
        self._addresses = list(addresses)

    def of(self, address: str) -> "tuple[dict[str, Any], int, dict[str, str]]":
        """(PCIe fields of a `link` record, NUMA node, {field: why it is unknown})."""
        index = self._addresses.index(address)
        numa, switch = index // _PER_NUMA, index // _PER_SWITCH
        fields = {
            "via": ["0000:%02x:02.%x" % (0xC0 + switch, index % _PER_SWITCH), "0000:%02x:01.0" % (0xA0 + switch),
                    "0000:%02x:00.0" % (0x80 + switch), "pci0000:%02x" % (0x80 + switch)],
            "gen": 5, "width": 16, "gen_max": 5, "width_max": 16, "uplink_gen": 5, "uplink_width": 16,
            "cpus": "%d-%d" % (48 * numa, 48 * numa + 47),
        }  # fmt: skip
        return fields, numa, {}

    def distances(self) -> "dict[int, dict[int, int]]":
        """{node: {other node: NUMA distance}}."""
        nodes = range((len(self._addresses) + _PER_NUMA - 1) // _PER_NUMA)
        return {node: {other: 10 if node == other else 21 for other in nodes} for node in nodes}


class _Device(object):
    """One simulated GPU; `seed` sets the phase of its waves."""

    __slots__ = ("index", "seed", "uuid")

    def __init__(self, host: str, index: int) -> None:
        self.index = index
        self.seed = zlib.crc32(("%s/%d" % (host, index)).encode("utf-8", "replace"))
        self.uuid = "GPU-53494d00-%04x-4000-8000-%012x" % (index, self.seed)  # 53 49 4d: SIM


class SimulatedNvml(object):
    """The functions of pynvml that the samplers use, for `count` GPUs of `host`; `clock` returns seconds."""

    simulated = True
    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM, NVML_CLOCK_MEM = NVML_CLOCK_SM, NVML_CLOCK_MEM
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES

    def __init__(self, count: int, host: str, clock: "Callable[[], float]" = time.time) -> None:
        self._devices = [_Device(host, index) for index in range(count)]
        self._clock = clock
        self.places = SimulatedPlaces(_address(index) for index in range(count))

    @property
    def uuids(self) -> "list[str]":
        """UUIDs by index."""
        return [device.uuid for device in self._devices]

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> "_Device":
        if not 0 <= index < len(self._devices):
            raise NVMLError("Invalid Argument")
        return self._devices[index]

    def nvmlDeviceGetUUID(self, device: "_Device") -> str:
        return device.uuid

    def nvmlDeviceGetName(self, device: "_Device") -> str:
        return "Simulated H100 80GB"

    def nvmlDeviceGetPciInfo(self, device: "_Device") -> "_Struct":
        return _Struct(busId="0000" + _address(device.index).upper())

    def nvmlDeviceGetEnforcedPowerLimit(self, device: "_Device") -> int:
        return POWER_LIMIT_MW

    def nvmlDeviceGetUtilizationRates(self, device: "_Device") -> "_Struct":
        load = self._load(device)
        return _Struct(gpu=round(100 * load), memory=round(62 * load))

    def nvmlDeviceGetMemoryInfo(self, device: "_Device", version: "int | None" = None) -> "_Struct":
        share = 0.72 + 0.12 * _unit(device.seed, 3) + 0.01 * self._wave(device, 180.0, 3)
        used = int(MEMORY_BYTES * share)
        return _Struct(total=MEMORY_BYTES, used=used, free=MEMORY_BYTES - used)

    def nvmlDeviceGetPowerUsage(self, device: "_Device") -> int:
        return int(90000 + 570000 * self._load(device) + 8000 * self._wave(device, 17.0, 5))

    def nvmlDeviceGetTemperature(self, device: "_Device", sensor: int) -> int:
        return int(34 + 36 * self._load(device, 150.0) + 5 * _unit(device.seed, 7))

    def nvmlDeviceGetClockInfo(self, device: "_Device", clock: int) -> int:
        if clock == NVML_CLOCK_MEM:
            return MEM_CLOCK_MHZ
        return int(SM_CLOCK_MHZ - 240 * max(0.0, self._load(device) - 0.8))

    def nvmlDeviceGetPcieThroughput(self, device: "_Device", counter: int) -> int:
        """KiB/s."""
        most = 4 << 20 if counter == NVML_PCIE_UTIL_RX_BYTES else 1 << 20
        return int(most * self._load(device))

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: "_Device") -> int:
        return SW_POWER_CAP if self._load(device) > 0.97 else 0

    def nvmlDeviceGetTopologyCommonAncestor(self, first: "_Device", second: "_Device") -> int:
        if first.index // _PER_NUMA != second.index // _PER_NUMA:
            return _SYS
        return _PIX if first.index // _PER_SWITCH == second.index // _PER_SWITCH else _NODE

    def nvmlDeviceGetP2PStatus(self, first: "_Device", second: "_Device", index: int) -> int:
        return 0

    def nvmlDeviceGetNvLinkState(self, device: "_Device", link: int) -> int:
        self._check_link(link)
        return 1

    def nvmlDeviceGetNvLinkVersion(self, device: "_Device", link: int) -> int:
        self._check_link(link)
        return _NVLINK_VERSION

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: "_Device", link: int) -> int:
        self._check_link(link)
        return _SWITCH

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: "_Device", link: int) -> "_Struct":
        self._check_link(link)
        return _Struct(busId="00000000:%02X:00.0" % (0x05 + link % SWITCHES))

    def _check_link(self, link: int) -> None:
        if not 0 <= link < LINKS:
            raise NVMLError("Invalid Argument")

    def _load(self, device: "_Device", period_s: float = 90.0) -> float:
        """Utilisation, 0 to 1: a high plateau with slow waves, different for each GPU."""
        return min(1.0, 0.88 + 0.08 * self._wave(device, period_s, 1) + 0.04 * self._wave(device, period_s / 7, 2))

    def _wave(self, device: "_Device", period_s: float, kind: int) -> float:
        return math.sin(2 * math.pi * (self._clock() / period_s + _unit(device.seed, kind)))


def _address(index: int) -> str:
    """PCI address of a simulated GPU in the kernel's notation."""
    return "0000:%02x:00.0" % (0x10 + index)


def _unit(seed: int, kind: int) -> float:
    """A pseudo-random number in [0, 1) for this seed."""
    return (seed * (2 * kind + 1) * 2654435761 >> 8) % 1024 / 1024.0
