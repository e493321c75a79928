"""GPU topology from NVML: NVLinks with their remote ends, and the relation of every two GPUs.

Every call may fail by itself; its result is then None, with the driver's error as the reason.
"""

from ..proc.pci import kernel_address
from .call import LOST, GpuLost, NvmlDevice
from .fields import FieldReader, NvmlField
from .info import bus_id, pci_address
from .links import NvLinks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    RemoteEnd = tuple[str, str]  # (kind, PCI address or "")

#: nvml.h, nvmlGpuTopologyLevel_t, in the words of nvidia-smi. 0 is two chips of one board, behind its own bridge.
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
#: nvml.h, nvmlGpuP2PStatus_t
_P2P = ("ok", "chipset_not_supported", "gpu_not_supported", "topology_not_supported", "disabled_by_regkey",
        "not_supported", "unknown")  # fmt: skip
#: nvml.h, nvmlGpuP2PCapsIndex_t; pynvml's own name for the first of them is a tuple
_CAPS = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))
#: nvml.h, nvmlIntNvLinkDeviceType_t
_REMOTES = {0: "gpu", 1: "cpu", 2: "switch"}
#: PCI address that stands for a remote end without one, such as an NVSwitch of which the driver knows no address.
_NO_ADDRESS = "ffffffff:"
_LINK_FIELDS = (("up", 165), ("version", 166), ("speed", 164))


def query(nvml: "Any", name: str, *arguments: "Any") -> "tuple[Any, str | None]":
    """(result, None) or (None, error). Raises GpuLost."""
    function = getattr(nvml, name, None)
    if function is None:
        return None, "this binding has no %s" % name
    try:
        return function(*arguments), None
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in LOST:
            raise GpuLost(str(error))
        return None, str(error)


def peer_fields(nvml: "Any", first: "Any", second: "Any") -> "tuple[dict[str, str], dict[str, str]]":
    """`link` fields of type peer between two GPUs, and {field: why it is unknown}. Raises GpuLost."""
    fields: "dict[str, str]" = {}
    lacking: "dict[str, str]" = {}
    level, reason = query(nvml, "nvmlDeviceGetTopologyCommonAncestor", first, second)
    if reason is None and level not in _ANCESTORS:
        reason = "unknown topology level %s" % level
    if reason is None:
        fields["ancestor"] = _ANCESTORS[level]
    else:
        lacking["ancestor"] = reason
    for field, index in _CAPS:
        status, reason = query(nvml, "nvmlDeviceGetP2PStatus", first, second, index)
        if reason is None:
            fields[field] = _P2P[status] if 0 <= status < len(_P2P) else "unknown"
        else:
            lacking[field] = reason
    return fields, lacking


class NvLinkRemotes(object):
    """NVLinks of one GPU, grouped by their remote end."""

    def __init__(self, nvml: "Any", handle: "Any") -> None:
        self._nvml = nvml
        self._handle = handle
        self._ends: "dict[int, RemoteEnd]" = {}  # link: last known remote end; a link that is down has none

    def read(self) -> "list[tuple[RemoteEnd, dict[str, Any], dict[str, str]]]":
        """[(remote end, fields, {field: why it is unknown})], one for each remote end. Raises GpuLost."""
        device = NvmlDevice(self._nvml, self._handle)
        links = NvLinks(device, 0)
        links.discover()
        ends: "dict[RemoteEnd, list[dict[str, Any]]]" = {}
        for number in range(links.count or 0):
            link = self._link(device, number)
            ends.setdefault(link["end"], []).append(link)
        return [(end,) + _merged(ends[end]) for end in sorted(ends)]

    def _link(self, device: "NvmlDevice", number: int) -> "dict[str, Any]":
        fields = [NvmlField("%s.%d" % (name, number), field, number) for name, field in _LINK_FIELDS]
        values = {name.partition(".")[0]: value[0] for name, value in FieldReader(device, fields).read().items()}
        lacking: "dict[str, str]" = {}
        for name, call in (("up", "nvmlDeviceGetNvLinkState"), ("version", "nvmlDeviceGetNvLinkVersion")):
            if name not in values:  # the older call
                values[name], reason = query(self._nvml, call, self._handle, number)
                if reason is not None:
                    lacking[name] = reason
        if values.get("speed") is None:
            lacking["speed_bytes_s"] = device.unsupported.get("speed.%d" % number, "not reported by the driver")
        end, reasons = self._end(number)
        lacking.update(reasons)
        return {"number": number, "end": end, "values": values, "lacking": lacking}

    def _end(self, number: int) -> "tuple[RemoteEnd, dict[str, str]]":
        kind, no_kind = query(self._nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", self._handle, number)
        pci, no_address = query(self._nvml, "nvmlDeviceGetNvLinkRemotePciInfo", self._handle, number)
        previous = self._ends.get(number, ("unknown", ""))
        kind = _REMOTES.get(kind, previous[0])  # failed, or 0xFF: unknown at the moment
        address = previous[1] if pci is None else pci_address(pci)
        if address.lower().startswith(_NO_ADDRESS):
            address, no_address = "", "the driver does not report the address of the remote end"
        self._ends[number] = (kind, address)
        lacking: "dict[str, str]" = {}
        if kind == "unknown":
            lacking["b"] = no_kind or "the driver does not report the remote end"
        elif no_address and not address:
            lacking["b.id"] = no_address
        return (kind, address), lacking


class TopologyGpu(object):
    """One GPU with the handles of the topology sampler."""

    def __init__(self, nvml: "Any", handle: "Any", uuid: str) -> None:
        self.handle, self.uuid = handle, uuid
        device = NvmlDevice(nvml, handle)
        try:
            address = bus_id(device)
        except GpuLost as error:
            address, device.unsupported["pci_bus_id"] = None, str(error)
        self.address = kernel_address(address) if address else None
        self.reason = device.unsupported.get("pci_bus_id", "the driver does not report its PCI address")
        self.remotes = NvLinkRemotes(nvml, handle)


def open_gpus(nvml: "Any", count: int) -> "Iterator[TopologyGpu]":
    """GPUs that the driver can open; the GPU sampler reports the others."""
    for index in range(count):
        try:
            handle, reason = query(nvml, "nvmlDeviceGetHandleByIndex", index)
            uuid, no_uuid = ("", reason) if reason else query(nvml, "nvmlDeviceGetUUID", handle)
        except GpuLost:
            continue
        if no_uuid is None:
            yield TopologyGpu(nvml, handle, uuid)


def _merged(links: "list[dict[str, Any]]") -> "tuple[dict[str, Any], dict[str, str]]":
    """Links to one remote end as the fields of one `link` record."""
    fields: "dict[str, Any]" = {
        "links": [link["number"] for link in links],
        "up": [],
        "version": None,
        "speed_bytes_s": None,
    }
    lacking: "dict[str, str]" = {}
    for link in links:
        lacking.update(link["lacking"])
        values = link["values"]
        if values.get("up"):
            fields["up"].append(link["number"])
        fields["version"] = fields["version"] or values.get("version") or None
        if values.get("speed"):  # MB/s; 0 for a link that is down
            fields["speed_bytes_s"] = max(values["speed"] * 1e6, fields["speed_bytes_s"] or 0.0)
    for field in ("version", "speed_bytes_s"):
        if fields[field] is not None:
            lacking.pop(field, None)
    return fields, lacking
