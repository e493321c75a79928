"""Topology of this node: `link` records at the start, and when an edge changes.

It has its own thread and NVML handles: eight GPUs take several hundred calls, which must not delay the GPU metrics.
"""

import time

from ..nvml import call
from ..nvml.call import GpuLost
from ..proc.pci import PciTree, kernel_address, numa_distances
from .base import HUNG_S, Sampler, Unavailable
from .nic import identities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..accelerators.devices import SysfsGpu
    from ..nvml.topology import TopologyGpu
    from ..proc.pci import PciPlace
    from .base import Context, Fact, Fields

#: Seconds between two full reads: links go down, and a GPU may have fewer lanes after a reset.
REFRESH_S = 60.0
#: Seconds of the grid on which it ticks where it only reads GPUs.
GRID_S = 10.0
#: Seconds of pause between two GPUs at a refresh: the GPU sampler shares the driver's lock.
PAUSE_S = 0.02


class TopologySampler(Sampler):
    """Edges between GPUs, NVSwitches, network ports, bridges and NUMA nodes."""

    name = "topology"

    def __init__(
        self,
        context: "Context",
        nvml: "Any" = None,
        of: "tuple[str, ...]" = ("gpu", "nic"),
        accelerators: "Sequence[SysfsGpu]" = (),
    ) -> None:
        """`of`: devices whose edges it reads; `nic` includes those of NUMA nodes. `accelerators`: of other vendors."""
        super(TopologySampler, self).__init__(context)
        self._accelerators = accelerators
        if "nic" not in of:
            self.finest_s, self.hung_s = GRID_S, HUNG_S  # nothing is counted between two full reads
        self._nvml = nvml
        self._simulated = bool(getattr(nvml, "simulated", False))
        self._places: Any = nvml.places if self._simulated else PciTree(context.sys)
        self._is_open = False
        self._of = of
        self._gpus: list[TopologyGpu] = []
        self._sent: dict[Any, Fields] = {}  # (type, a, b): the fields of its last record
        self._due = 0.0
        self._count: int | None = None  # of the last `inventory`

    def start(self) -> None:
        """Open the GPUs, if there are any."""
        if "gpu" not in self._of:
            return
        from ..nvml.topology import open_gpus  # not in the agent, whose GPUs have a process of their own

        try:
            if self._nvml is None:
                self._nvml = self.context.import_nvml()
            call.initialise(self._nvml)
            self._is_open = True
            self._gpus = list(open_gpus(self._nvml, call.device_count(self._nvml)))
        except Unavailable:
            pass  # the GPU sampler reports it; network ports and NUMA nodes exist without GPUs

    def stop(self) -> None:
        """Release NVML."""
        if self._is_open:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                pass  # the driver was unloaded

    def tick(self, now: float) -> "list[Fact]":
        """`link` records of edges that changed."""
        if now < self._due:
            return self._recount()
        self._due = now + REFRESH_S
        edges: dict[Any, Fields] = {}
        kept: set[str] = set()  # unreachable GPUs, whose edges are kept
        for edge in self._edges(kept):
            edges[_key(edge)] = edge
        facts: list[Fact] = [("link", dict(edge, simulated=self._simulated)) for edge in self._changes(edges, kept)]
        return facts + self._recount()

    def _recount(self) -> "list[Fact]":
        """`inventory`, if the number of edges has changed. Those of GPUs are read in a process of their own."""
        total = len(self._sent)
        if "gpu" not in self._of and not self._accelerators:
            edges = self.context.shared.get("gpu_edges")
            if edges is None:
                return []  # not known yet
            total += edges
        if total == self._count:
            return []
        self._count = total
        return [("inventory", {"of": "link", "count": total})]

    def _edges(self, kept: "set[str]") -> "Iterator[Fields]":
        for number, gpu in enumerate(self._gpus):
            try:
                for edge in self._of_gpu(number, gpu):
                    yield edge
            except GpuLost:
                kept.add(gpu.uuid)
            if self._sent:
                time.sleep(PAUSE_S)
        for accelerator in self._accelerators:
            yield _place(("gpu", accelerator.uuid), self._places.locate(accelerator.folder))
        if self._accelerators:
            from ..accelerators.xgmi import xgmi_links  # only where it is needed

            for edge in xgmi_links(self.context.sys, self._accelerators):
                yield edge
        if "nic" not in self._of:
            return
        if not self._simulated:  # simulated GPUs are not connected to the ports of this machine
            for edge in self._of_nics():
                yield edge
        for edge in self._of_numa():
            yield edge

    def _of_gpu(self, number: int, gpu: "TopologyGpu") -> "Iterator[Fields]":
        if gpu.address is None:
            yield _edge("pcie", ("gpu", gpu.uuid), ("numa", ""), {"unsupported": {"via": gpu.reason}})
        else:
            yield _place(("gpu", gpu.uuid), self._places.of(gpu.address))
        for (kind, address), fields, lacking in gpu.remotes.read():
            yield _edge("nvlink", ("gpu", gpu.uuid), self._end(kind, address), dict(fields, unsupported=lacking))
        from ..nvml.topology import peer_fields

        for other in self._gpus[number + 1 :]:
            ends = ("gpu", gpu.uuid), ("gpu", other.uuid)
            try:
                fields, lacking = peer_fields(self._nvml, gpu.handle, other.handle)
            except GpuLost as error:  # one of the two is lost: keep the previous edge
                before = self._sent.get(("peer",) + ends)
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
                if place[0] is not None:  # an interface without a PCI device has no location
                    yield _place(("nic", identity["device"]), place)

    def _of_numa(self) -> "Iterator[Fields]":
        distances = self._places.distances() if self._simulated else numa_distances(self.context.sys)
        for node in sorted(distances):
            for other in sorted(distances[node]):
                if node < other:
                    yield _edge("numa", ("numa", "%d" % node), ("numa", "%d" % other),
                                {"distance": distances[node][other]})  # fmt: skip

    def _changes(self, edges: "dict[Any, Fields]", kept: "set[str]") -> "list[Fields]":
        """New, changed and removed edges; those of unreachable GPUs are kept."""
        changed = [edge for key, edge in edges.items() if _comparable(self._sent.get(key)) != _comparable(edge)]
        for key, edge in self._sent.items():
            if key in edges:
                continue
            if any(end == ("gpu", uuid) for end in key[1:] for uuid in kept):
                edges[key] = edge
            else:
                changed.append(dict(edge, gone=True))
        self._sent = edges
        return changed


def _edge(kind: str, a: "tuple[str, str]", b: "tuple[str, str]", fields: "Fields") -> "Fields":
    ends = {"type": kind, "a": {"kind": a[0], "id": a[1]}, "b": {"kind": b[0], "id": b[1]}}
    return dict(fields, **ends)


def _place(end: "tuple[str, str]", place: "PciPlace") -> "Fields":
    fields, node, lacking = place
    return _edge("pcie", end, ("numa", "" if node is None else "%d" % node), dict(fields or {}, unsupported=lacking))


def _key(edge: "Fields") -> "tuple[Any, ...]":
    return tuple([edge["type"]] + [(edge[end]["kind"], edge[end]["id"]) for end in ("a", "b")])


def _comparable(edge: "Fields | None") -> "Fields | None":
    """The fields that are compared: without the current link speed of a GPU, which drops when it is idle."""
    return edge and {field: value for field, value in edge.items() if field != "gen" or edge["a"]["kind"] != "gpu"}
