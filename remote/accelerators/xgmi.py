"""xGMI (Infinity Fabric) between the GPUs of AMD, from the topology of KFD (kfd_topology.c, kfd_crat.h)."""

from ..proc.settings import listed
from .devices import kfd_nodes, properties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from ..samplers.base import Fields
    from .devices import SysfsGpu

#: CRAT_IOLINK_TYPE_XGMI; PCIe is 2.
_XGMI = 11
#: Links of a node of that topology that are read.
_MOST = 512


def xgmi_links(sys: str, gpus: "Iterable[SysfsGpu]") -> "Iterator[Fields]":
    """Fields of a `link` for each pair of GPUs that xGMI connects; each pair once.

    The driver reports bandwidths in MB/s and a weight, not the number of links.
    """
    by_address = {gpu.address: gpu for gpu in gpus}
    nodes = {node.number: by_address[node.address] for node in kfd_nodes(sys) if node.address in by_address}
    sent = set()
    for number in sorted(nodes):
        folder = "%s/class/kfd/kfd/topology/nodes/%d/io_links" % (sys, number)
        for name in listed(folder)[:_MOST]:
            words = properties("%s/%s/properties" % (folder, name))
            near, far = nodes[number], nodes.get(words.get("node_to", -1))
            if words.get("type") != _XGMI or far is None or far is near:
                continue
            pair = frozenset((near.uuid, far.uuid))
            if pair not in sent:
                sent.add(pair)
                speed = words.get("max_bandwidth", 0)
                fields: "Fields" = {"type": "xgmi", "a": {"kind": "gpu", "id": near.uuid},
                                    "b": {"kind": "gpu", "id": far.uuid}}  # fmt: skip
                fields.update(distance=min(words["weight"], 1 << 31) if "weight" in words else None)
                fields.update(speed_bytes_s=speed * 1e6 if 0 < speed < 1e8 else None)
                fields["unsupported"] = {"links": "KFD reports no number of links"}
                if fields["speed_bytes_s"] is None:
                    fields["unsupported"]["speed_bytes_s"] = "KFD reports no bandwidth"
                yield fields
