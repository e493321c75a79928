"""Classes of nodes with identical topology, and the differences of the others.

Nodes with the same devices and pairwise relations form a class; the largest is class A. Traits that may vary within a
class (PCIe width, driver, VBIOS, limits, port state) are compared with the majority of all nodes with these devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ...text.format import plural, port_speed
from ...text.nodeset_fold import fold, fold_numbers, natural
from .node import Device, NodeTopology

#: Subject area of a difference.
Aspect = Literal["devices", "relation", "numa", "pcie", "driver", "vbios", "limit", "mode", "nic"]


class Difference(msgspec.Struct, frozen=True):
    """One difference: `subject` is `value` on `nodes`, and `usual` on the nodes they are compared with."""

    nodes: tuple[str, ...]
    aspect: Aspect
    subject: str  # GPU4–GPU5, GPU3 PCIe width, driver
    value: str
    usual: str
    than: str  # class A; the rest
    devices: tuple[str, ...] = ()  # device labels; of a relation: the first with each of the others
    trait: str = ""  # name of a device or node trait: PCIe width, state, driver
    is_minority: bool = True  # fewer nodes than they are compared with; else it is unclear which are wrong

    @property
    def text(self) -> str:
        """`node044: GPU4–GPU5 PHB, class A NV18`."""
        return f"{fold(self.nodes)}: {self.phrase}"

    @property
    def phrase(self) -> str:
        """`GPU4–GPU5 PHB, class A NV18`."""
        return f"{self.subject} {self.value}, {self.than} {self.usual}"


class NodeClass(msgspec.Struct, frozen=True):
    """Nodes with identical topology, its `differences` from the nearest class, and `odd` traits of single nodes."""

    name: str
    nodes: tuple[str, ...]
    model: NodeTopology  # of its first node
    differences: tuple[Difference, ...] = ()
    odd: tuple[Difference, ...] = ()

    @property
    def title(self) -> str:
        """`8 × NVIDIA H100 80GB HBM3, 4 NICs`."""
        gpus = _counted(self.model)
        count = len(self.model.nics)
        return f"{gpus}, {plural(count, 'NIC')}" if count else gpus


class _Shape(NamedTuple):
    gpus: tuple[str | None, ...]
    nics: tuple[bool, ...]  # RDMA or not
    words: tuple[str, ...]
    numa: tuple[str | None, ...]


def classes_of(nodes: Iterable[NodeTopology]) -> tuple[NodeClass, ...]:
    """Classes, largest first, independent of node order; nodes without devices are skipped."""
    shapes: dict[_Shape, list[NodeTopology]] = {}
    for topology in sorted(nodes, key=lambda topology: natural(topology.node)):
        if topology.devices:
            shapes.setdefault(_shape(topology), []).append(topology)
    ordered = sorted(shapes.values(), key=lambda alike: (-len(alike), natural(alike[0].node)))
    odd = _odd_by_node(shapes)
    classes: list[NodeClass] = []
    for number, alike in enumerate(ordered):
        names = tuple(topology.node for topology in alike)
        made = NodeClass(_letters(number), names, alike[0], odd=tuple(_of_nodes(odd, names)))
        nearest = _nearest(made, classes)
        if nearest is not None:
            is_minority = len(nearest.nodes) > len(made.nodes)
            differences = (replace(difference, is_minority=is_minority) for difference in _differences(made, nearest))
            made = replace(made, differences=tuple(differences))
        classes.append(made)
    return tuple(classes)


def _odd_by_node(shapes: Mapping[_Shape, list[NodeTopology]]) -> dict[str, list[Difference]]:
    """Odd traits of each node among all nodes with the same devices, whatever their relations."""
    kin: dict[tuple[object, ...], list[NodeTopology]] = {}
    for shape, alike in shapes.items():
        kin.setdefault((shape.gpus, shape.nics), []).extend(alike)
    by_node: dict[str, list[Difference]] = {}
    for those in kin.values():
        for difference in _odd(sorted(those, key=lambda topology: natural(topology.node))):
            for node in difference.nodes:
                by_node.setdefault(node, []).append(difference)
    return by_node


def _of_nodes(odd: Mapping[str, Sequence[Difference]], names: Sequence[str]) -> Iterator[Difference]:
    """Differences restricted to these nodes."""
    mine = set(names)
    for difference in dict.fromkeys(difference for name in names for difference in odd.get(name, ())):
        nodes = tuple(node for node in difference.nodes if node in mine)
        yield difference if nodes == difference.nodes else replace(difference, nodes=nodes)


def _shape(topology: NodeTopology) -> _Shape:
    return _Shape(
        tuple(gpu.name for gpu in topology.gpus),
        tuple(any(port.rdma for port in nic.ports) for nic in topology.nics),
        tuple(topology.words.values()),
        tuple(device.numa for device in topology.devices),
    )


def _letters(number: int) -> str:
    """A … Z, AA, AB, …"""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _nearest(made: NodeClass, larger: Sequence[NodeClass]) -> NodeClass | None:
    """Class to compare with: same GPUs; a node that is alone with its number of GPUs, with others of its models.

    Nodes of other models are another kind of machine, and so are several nodes with the same number of GPUs.
    """
    mine = [gpu.name for gpu in made.model.gpus]
    theirs = [(other, [gpu.name for gpu in other.model.gpus]) for other in larger]
    same = [other for other, names in theirs if names == mine]
    akin = [other for other, names in theirs if len(made.nodes) == 1 and set(names) == set(mine)]
    return next(iter([*same, *akin]), None)


# -- how one class differs from another --------------------------------------------------------------------------------


def _differences(made: NodeClass, other: NodeClass) -> Iterator[Difference]:
    mine, theirs, than = made.model, other.model, f"class {other.name}"
    gpus, usual = _counted(mine), _counted(theirs)
    if gpus != usual:
        yield Difference(made.nodes, "devices", "has", gpus + _absent(mine, theirs), f"has {usual}", than)
        if len(mine.gpus) != len(theirs.gpus):
            return  # indices are shifted and not comparable
    if len(mine.nics) != len(theirs.nics):
        lacking = [nic.name for nic in theirs.nics if nic.name not in {own.name for own in mine.nics}]
        note = f" (without {', '.join(str(name) for name in lacking)})" if lacking else ""
        yield Difference(made.nodes, "devices", "has", f"{len(mine.nics)} NICs{note}", f"has {len(theirs.nics)}", than)
    labels = [device.label for device in mine.devices if device.label in {other.label for other in theirs.devices}]
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for index, first in enumerate(labels):
        for second in labels[index + 1 :]:
            words = mine.word(first, second), theirs.word(first, second)
            if words[0] != words[1]:
                pairs.setdefault(words, []).append((first, second))
    for (word, usual), those in pairs.items():
        for subject, devices in folded_pairs(those):
            yield Difference(made.nodes, "relation", subject, word, usual, than, devices)
    places = {device.label: device.numa for device in theirs.devices}
    for device in mine.devices:
        if device.label in places and device.numa != places[device.label]:
            numa, there = device.numa or "unknown", places[device.label] or "unknown"
            yield Difference(made.nodes, "numa", f"{device.label} NUMA node", numa, there, than, (device.label,))


def _counted(topology: NodeTopology) -> str:
    names = Counter(gpu.name or "GPU" for gpu in topology.gpus)
    return ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) or "no GPU"


def _absent(mine: NodeTopology, theirs: NodeTopology) -> str:
    """PCI addresses of missing GPUs, if both nodes use the same addresses."""
    if {gpu.name for gpu in mine.gpus} != {gpu.name for gpu in theirs.gpus}:
        return ""
    here, there = ({gpu.info.pci_bus_id for gpu in node.gpus if gpu.info} for node in (mine, theirs))
    missing = sorted(str(address) for address in there - here)
    return f" (none at {', '.join(missing)})" if missing and here < there else ""


def folded_pairs(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Fold pairs that share a device: `GPU4–GPU0-3,5-7`."""
    left = list(pairs)
    while left:
        counts = Counter(label for pair in left for label in pair)
        best = min(counts, key=lambda label: (-counts[label], natural(label)))
        shared = [pair for pair in left if best in pair]
        if len(shared) == 1:
            yield "–".join(shared[0]), shared[0]
        else:
            others = [first if second == best else second for first, second in shared]
            yield pairs_subject((best, *others)), (best, *others)
        left = [pair for pair in left if best not in pair]


def pairs_subject(devices: Sequence[str]) -> str:
    """`GPU4–GPU0-3,5`: the first device with each of the others."""
    return f"{devices[0]}–{labels_folded(devices[1:])}"


def trait_subject(devices: Sequence[str], trait: str) -> str:
    """`GPU0-3 PCIe width`; the trait alone for a node trait."""
    return f"{labels_folded(devices)} {trait}" if devices else trait


def labels_folded(labels: Iterable[str]) -> str:
    """Fold device labels: `GPU0-3,5,NIC1`."""
    numbers: dict[str, list[int]] = {}
    for label in labels:
        kind = label.rstrip("0123456789")
        numbers.setdefault(kind, []).append(int(label[len(kind) :]))
    return ",".join(f"{kind}{fold_numbers(those)}" for kind, those in numbers.items())


# -- how one node differs from those with the same devices -------------------------------------------------------------


class _Trait(NamedTuple):
    """A property expected to be equal on nodes with the same devices; `device` is "" for the whole node."""

    device: str
    aspect: Aspect
    name: str


def _odd(alike: Sequence[NodeTopology]) -> Iterator[Difference]:
    """Deviations from the most frequent value of each trait; on a tie the smaller text is the usual one."""
    groups: dict[tuple[tuple[_Trait, str], ...], list[str]] = {}  # nodes by identical traits
    for topology in alike:
        groups.setdefault(tuple(_traits(topology).items()), []).append(topology.node)
    values: dict[_Trait, Counter[str]] = {}
    for traits, nodes in groups.items():
        for trait, value in traits:
            values.setdefault(trait, Counter())[value] += len(nodes)
    usual = {trait: min(seen, key=lambda value: (-seen[value], value)) for trait, seen in values.items()}
    # (aspect, name, value, usual) → device → its nodes; devices with the same nodes are then folded
    deviations: dict[tuple[Aspect, str, str, str], dict[str, list[str]]] = {}
    for traits, nodes in groups.items():
        for trait, value in traits:
            if value != usual[trait]:
                key = (trait.aspect, trait.name, value, usual[trait])
                deviations.setdefault(key, {}).setdefault(trait.device, []).extend(nodes)
    for (aspect, name, value, most), devices in deviations.items():
        together: dict[tuple[str, ...], list[str]] = {}
        for device, names in devices.items():
            together.setdefault(tuple(sorted(names, key=natural)), []).append(device)
        for nodes_alike, labels in together.items():
            of = () if labels == [""] else tuple(labels)
            few = len(alike) > 2 * len(nodes_alike)
            yield Difference(nodes_alike, aspect, trait_subject(of, name), value, most, "the rest", of, name, few)


def _traits(topology: NodeTopology) -> Mapping[_Trait, str]:
    traits: dict[_Trait, str] = {}
    drivers = {gpu.info.driver for gpu in topology.gpus if gpu.info and gpu.info.driver}
    if len(drivers) == 1:
        traits[_Trait("", "driver", "driver")] = drivers.pop()
    for gpu in topology.gpus:
        traits.update({trait: value for trait, value in _gpu_traits(gpu) if value is not None})
    for nic in topology.nics:
        traits.update({trait: value for trait, value in _nic_traits(nic) if value is not None})
    return traits


def _gpu_traits(gpu: Device) -> Iterator[tuple[_Trait, str | None]]:
    info = gpu.info
    if info is None:
        return
    most = (gpu.place.gen_max if gpu.place else None) or info.pcie_gen_max
    yield _Trait(gpu.label, "pcie", "PCIe width"), None if gpu.width is None else f"x{gpu.width}"
    yield _Trait(gpu.label, "pcie", "max PCIe generation"), _text(most)
    yield _Trait(gpu.label, "vbios", "VBIOS"), info.vbios
    yield _Trait(gpu.label, "limit", "SM clock limit"), _text(info.max_sm_clock_mhz, " MHz")
    yield _Trait(gpu.label, "limit", "memory clock limit"), _text(info.max_mem_clock_mhz, " MHz")
    yield _Trait(gpu.label, "limit", "power limit"), _text(info.power_limit_w, " W")
    for name, mode in (("MIG mode", info.mig_mode), ("ECC", info.ecc_mode)):
        yield _Trait(gpu.label, "mode", name), None if mode is None else "on" if mode else "off"


def _nic_traits(nic: Device) -> Iterator[tuple[_Trait, str | None]]:
    for port in nic.ports:
        number = f" port {port.port}" if len(nic.ports) > 1 else ""
        yield _Trait(nic.label, "nic", f"state{number}"), port.state
        rate = None if port.rate_bytes_s is None else port_speed(port.rate_bytes_s)
        yield _Trait(nic.label, "nic", f"rate{number}"), rate
    yield _Trait(nic.label, "pcie", "PCIe width"), None if nic.width is None else f"x{nic.width}"


def _text(value: float | None, unit: str = "") -> str | None:
    return None if value is None else f"{value:g}{unit}"
