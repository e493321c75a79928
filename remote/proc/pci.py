"""Location of a PCI device, from sysfs: its link, the bridges above it, its NUMA node and local CPUs."""

import os
import re

from .procfs import read_number, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields

    #: (fields of a `link` of type pcie, NUMA node, {field: why it is unknown})
    PciPlace = tuple[Fields | None, int | None, dict[str, str]]

#: GT/s, as the kernel writes it: generation of PCIe.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def kernel_address(bus_id: str) -> str:
    """The kernel's notation of a PCI address, as in "00000000:18:00.0" → 0000:18:00.0."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return "%04x:%s" % (int(domain, 16), rest)
    except ValueError:
        return bus_id.lower()


class PciTree(object):
    """The PCI devices in the sysfs at `root`."""

    simulated = False

    def __init__(self, root: str = "/sys") -> None:
        self._root = root

    def of(self, address: str) -> "PciPlace":
        """Location of a PCI address: (fields of a pcie `link`, NUMA node or None, {field: why it is unknown})."""
        return self.locate("%s/bus/pci/devices/%s" % (self._root, address))

    def locate(self, folder: str) -> "PciPlace":
        """The same for the device of a folder or link in sysfs."""
        parts = os.path.realpath(folder).split("/")
        chain = ["/".join(parts[: index + 1]) for index, part in enumerate(parts) if _ADDRESS.match(part)]
        if not chain or not os.path.isdir(chain[-1]):
            return None, None, {"via": "device not found in sysfs"}
        device, bridges = chain[-1], chain[-2::-1]
        root = chain[0].split("/")[-2]
        fields: Fields = {"via": [bridge.rpartition("/")[2] for bridge in bridges] + [root]}
        fields.update(_own_link(device, bridges[0] if bridges else None))
        fields.update(_narrowest(bridges))
        cpus = read_text(device + "/local_cpulist")
        if cpus:
            fields["cpus"] = cpus
        lacking = {field: "not reported by the kernel" for field in ("gen", "width", "cpus") if field not in fields}
        return fields, numa_node(device), lacking


def numa_node(device: str) -> "int | None":
    """The NUMA node of a device's folder; None on a machine without NUMA."""
    number = read_number(device + "/numa_node")
    return number if number is not None and 0 <= number < 65536 else None


def numa_distances(root: str = "/sys") -> "dict[int, dict[int, int]]":
    """{NUMA node: its distances to all nodes, in their order}."""
    folder = root + "/devices/system/node"
    try:
        names = sorted(name for name in os.listdir(folder) if re.match(r"node\d+$", name))
    except OSError:
        return {}
    nodes = sorted(int(name[4:]) for name in names)
    distances: dict[int, dict[int, int]] = {}
    for node in nodes:
        words = (read_text("%s/node%d/distance" % (folder, node)) or "").split()
        if len(words) == len(nodes) and all(word.isdigit() for word in words):
            distances[node] = {other: int(word) for other, word in zip(nodes, words)}  # noqa: B905 - Python 3.6
    return distances


def _own_link(device: str, port: "str | None") -> "Fields":
    """The link of a device to the port above it; its maximum is what both ends support."""
    gen, width = _generation(device, "current"), _lanes(device, "current")
    most, widest = _generation(device, "max"), _lanes(device, "max")
    if port is not None:
        most = _least(most, _generation(port, "max"))
        widest = _least(widest, _lanes(port, "max"))
    fields = {"gen": gen, "width": width or None, "gen_max": most, "width_max": widest or None}
    return {field: value for field, value in fields.items() if value is not None}


def _narrowest(bridges: "list[str]") -> "Fields":
    """The narrowest link above a device's own. A port reports the link on its outer side."""
    links = [(_generation(bridge, "current"), _lanes(bridge, "current")) for bridge in bridges[1:]]
    links_up = [(gen, width) for gen, width in links if gen and width]
    if not links_up:
        return {}
    gen, width = min(
        links_up, key=lambda link: (2 ** link[0]) * link[1]
    )  # a generation doubles the rate of the last one
    return {"uplink_gen": gen, "uplink_width": width}


def _lanes(device: str, which: str) -> "int | None":
    """Lanes of a link; None for none, and for what no link has (63: the device is off the bus)."""
    lanes = read_number("%s/%s_link_width" % (device, which))
    return lanes if lanes is not None and 0 < lanes <= 32 else None


def _generation(device: str, which: str) -> "int | None":
    words = (read_text("%s/%s_link_speed" % (device, which)) or "").split()  # "32.0 GT/s PCIe", "Unknown"
    try:
        return _GENERATIONS.get(float(words[0])) if words else None
    except ValueError:
        return None


def _least(*candidates: "int | None") -> "int | None":
    numbers = [candidate for candidate in candidates if candidate]
    return min(numbers) if numbers else None
