"""How the parts of this node are connected: `link` records at the start, and when an edge changes.

On a thread of its own and with handles of its own: eight GPUs are several hundred calls, and no figure waits for them.
"""

import time

from ..nvml import info, init
from ..nvml.call import GpuLost, NvmlDevice
from ..nvml.topology import NvLinkRemotes, peer_fields, query
from ..proc.pci import PciTree, kernel_address, numa_distances
from .base import Sampler, Unavailable
from .nic import identities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..proc.pci import PciPlace
    from .base import Context, Fact, Fields

#: All of it is asked again this often: links go down, and a GPU that was reset may come back narrower.
REFRESH_S = 60.0
#: At a refresh so much time passes between two GPUs; the driver's lock is the GPU sampler's, too.
PAUSE_S = 0.02


class TopologySampler(Sampler):
    """Edges between GPUs, NVSwitches, network ports, bridges and NUMA nodes."""

    name = "topology"

    def __init__(self, context: "Context", nvml: "Any" = None) -> None:
        super(TopologySampler, self).__init__(context)
        self._nvml = nvml
        self._simulated = bool(getattr(nvml, "simulated", False))
        self._places: Any = nvml.places if self._simulated else PciTree(context.sys)
        self._is_open = False
        self._gpus: list[_Gpu] = []
        self._said: dict[Any, Fields] = {}  # (type, a, b): the fields of its last record
        self._due = 0.0

    def start(self) -> None:
        """Open the GPUs, if there are any."""
        try:
            if self._nvml is None:
                self._nvml = self.context.import_nvml()
            init.initialise(self._nvml)
            self._is_open = True
            self._gpus = list(_gpus(self._nvml, init.device_count(self._nvml)))
        except Unavailable:
            pass  # the GPU sampler says it; a node without GPUs has network ports and NUMA nodes all the same

    def stop(self) -> None:
        """Release NVML."""
        if self._is_open:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                pass  # the driver has gone first

    def tick(self, now: float) -> "list[Fact]":
        """`link` records of edges that changed."""
        if now < self._due:
            return []
        self._due = now + REFRESH_S
        edges: dict[Any, Fields] = {}
        kept: set[str] = set()  # GPUs that the driver cannot reach now: their edges stand as they were
        for edge in self._edges(kept):
            edges[_key(edge)] = edge
        return [("link", dict(edge, simulated=self._simulated)) for edge in self._changes(edges, kept)]

    def _edges(self, kept: "set[str]") -> "Iterator[Fields]":
        for number, gpu in enumerate(self._gpus):
            try:
                for edge in self._of_gpu(number, gpu):
                    yield edge
            except GpuLost:
                kept.add(gpu.uuid)
            if self._said:
                time.sleep(PAUSE_S)
        if not self._simulated:  # the ports of this machine are not those of simulated GPUs
            for edge in self._of_nics():
                yield edge
        for edge in self._of_numa():
            yield edge

    def _of_gpu(self, number: int, gpu: "_Gpu") -> "Iterator[Fields]":
        if gpu.address is None:
            yield _edge("pcie", ("gpu", gpu.uuid), ("numa", ""), {"unsupported": {"via": gpu.reason}})
        else:
            yield _place(("gpu", gpu.uuid), self._places.of(gpu.address))
        for (kind, address), fields, lacking in gpu.remotes.read():
            yield _edge("nvlink", ("gpu", gpu.uuid), self._end(kind, address), dict(fields, unsupported=lacking))
        for other in self._gpus[number + 1 :]:
            ends = ("gpu", gpu.uuid), ("gpu", other.uuid)
            try:
                fields, lacking = peer_fields(self._nvml, gpu.handle, other.handle)
            except GpuLost as error:  # one of the two is gone: what was said of them before stands
                before = self._said.get(("peer",) + ends)
                lost = {field: str(error) for field in ("ancestor", "read", "write", "nvlink", "atomics")}
                yield before or _edge("peer", *ends, fields={"unsupported": lost})
                continue
            yield _edge("peer", *ends, fields=dict(fields, unsupported=lacking))

    def _end(self, kind: str, address: "str | None") -> "tuple[str, str]":
        place = kernel_address(address) if address else ""
        if kind == "gpu":
            for gpu in self._gpus:
                if gpu.address == place:
                    return ("gpu", gpu.uuid)
            return ("unknown", place)
        return (kind, place)

    def _of_nics(self) -> "Iterator[Fields]":
        seen = set()
        for identity, folder in identities(self.context.sys):
            if identity["device"] not in seen:
                seen.add(identity["device"])
                place = self._places.locate(folder)
                if place[0] is not None:  # an interface of no PCI card has no place
                    yield _place(("nic", identity["device"]), place)

    def _of_numa(self) -> "Iterator[Fields]":
        distances = self._places.distances() if self._simulated else numa_distances(self.context.sys)
        for node in sorted(distances):
            for other in sorted(distances[node]):
                if node < other:
                    yield _edge("numa", ("numa", "%d" % node), ("numa", "%d" % other),
                                {"distance": distances[node][other]})  # fmt: skip

    def _changes(self, edges: "dict[Any, Fields]", kept: "set[str]") -> "list[Fields]":
        """What is new, what differs, and what is gone, unless a GPU that cannot be reached keeps it."""
        changed = [edge for key, edge in edges.items() if _told(self._said.get(key)) != _told(edge)]
        for key, edge in self._said.items():
            if key in edges:
                continue
            if any(end == ("gpu", uuid) for end in key[1:] for uuid in kept):
                edges[key] = edge
            else:
                changed.append(dict(edge, gone=True))
        self._said = edges
        return changed


class _Gpu(object):
    """One GPU, as this sampler asks about it."""

    def __init__(self, nvml: "Any", handle: "Any", uuid: str) -> None:
        self.handle, self.uuid = handle, uuid
        device = NvmlDevice(nvml, handle)
        try:
            address = info.bus_id(device)
        except GpuLost as error:
            address, device.unsupported["pci_bus_id"] = None, str(error)
        self.address = kernel_address(address) if address else None
        self.reason = device.unsupported.get("pci_bus_id", "the driver does not tell its PCI address")
        self.remotes = NvLinkRemotes(nvml, handle)


def _gpus(nvml: "Any", count: int) -> "Iterator[_Gpu]":
    """Those that the driver can open; the GPU sampler tells of the others."""
    for index in range(count):
        try:
            handle, reason = query(nvml, "nvmlDeviceGetHandleByIndex", index)
            uuid, no_uuid = ("", reason) if reason else query(nvml, "nvmlDeviceGetUUID", handle)
        except GpuLost:
            continue
        if no_uuid is None:
            yield _Gpu(nvml, handle, uuid)


def _edge(kind: str, a: "tuple[str, str]", b: "tuple[str, str]", fields: "Fields") -> "Fields":
    ends = {"type": kind, "a": {"kind": a[0], "id": a[1]}, "b": {"kind": b[0], "id": b[1]}}
    return dict(fields, **ends)


def _place(end: "tuple[str, str]", place: "PciPlace") -> "Fields":
    fields, node, lacking = place
    return _edge("pcie", end, ("numa", "" if node is None else "%d" % node), dict(fields or {}, unsupported=lacking))


def _key(edge: "Fields") -> "tuple[Any, ...]":
    return tuple([edge["type"]] + [(edge[end]["kind"], edge[end]["id"]) for end in ("a", "b")])


def _told(edge: "Fields | None") -> "Fields | None":
    """What makes an edge another one; a link's speed of the moment does not, for an idle GPU lowers it."""
    return edge and {field: value for field, value in edge.items() if field != "gen" or edge["a"]["kind"] != "gpu"}
