"""Classes of identical nodes, and the differences between them."""

from __future__ import annotations

import itertools

import msgspec
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import hgx, hgx_facts, pcie_facts, uuid

from gconsole.analysis.finding import FindingDraft
from gconsole.analysis.topology.classes import classes_of, folded_pairs, labels_folded
from gconsole.analysis.topology.findings import ReportedFindings, difference_findings
from gconsole.analysis.topology.node import TopologyFacts, node_topology


def with_gpu(node, index, **changes):
    """An HGX node with changed facts of one GPU."""
    facts = hgx_facts(node)
    gpus = [msgspec.structs.replace(info, **changes) if info.index == index else info for info in facts.gpus]
    return node_topology(TopologyFacts(node, gpus, facts.links, facts.nics))


def with_width(node, index, width):
    facts = hgx_facts(node)
    links = [msgspec.structs.replace(link, width=width) if link.type == "pcie" and link.a.id == uuid(node, index)
             else link for link in facts.links]  # fmt: skip
    return node_topology(TopologyFacts(node, facts.gpus, links, facts.nics))


def texts(classes):
    return [difference.text for made in classes for difference in (*made.differences, *made.odd)]


ALIKE = [hgx(f"node{number:03}") for number in range(1, 6)]


def test_identical_nodes_form_one_class_and_the_largest_class_is_a():
    classes = classes_of([*ALIKE, node_topology(pcie_facts("slow1"))])

    assert [(made.name, len(made.nodes), made.title) for made in classes] == [
        ("A", 5, "8 × NVIDIA H100 80GB HBM3, 4 NICs"), ("B", 1, "4 × NVIDIA L40S, 1 NIC")]  # fmt: skip
    assert texts(classes[:1]) == []


def test_gpu_pair_without_nvlink_is_reported_against_its_class():
    classes = classes_of([*ALIKE, hgx("node044", dead=[4])])

    assert texts(classes) == [
        "node044: GPU4–GPU0-3 SYS, class A NV18",
        "node044: GPU4–GPU5 PIX, class A NV18",
        "node044: GPU4–GPU6-7 NODE, class A NV18",
    ]


def test_differences_within_a_class_are_reported():
    odd = [with_width("node010", 3, 8), with_gpu("node011", 5, vbios="96.00.99"),
           hgx("node012", down=["mlx5_2"]), with_gpu("node013", 0, power_limit_w=600.0)]  # fmt: skip

    classes = classes_of([*ALIKE, *odd])

    assert len(classes) == 1
    assert set(texts(classes)) == {
        "node010: GPU3 PCIe width x8, the rest x16",
        "node011: GPU5 VBIOS 96.00.99, the rest 96.00.A5",
        "node012: NIC2 state down, the rest active",
        "node013: GPU0 power limit 600 W, the rest 700 W",
    }


def test_driver_difference_is_per_node_and_equal_gpu_limits_are_merged():
    facts = hgx_facts("node020")
    gpus = [msgspec.structs.replace(info, driver="550.1", max_sm_clock_mhz=1700.0) for info in facts.gpus]

    classes = classes_of([*ALIKE, node_topology(TopologyFacts("node020", gpus, facts.links, facts.nics))])

    assert set(texts(classes)) == {
        "node020: driver 550.1, the rest 570.124.06",
        "node020: GPU0-7 SM clock limit 1700 MHz, the rest 1980 MHz",
    }


def test_missing_gpu_is_reported_with_its_pci_address():
    facts = hgx_facts("node030")
    absent = [info for info in facts.gpus if info.index != 7]

    classes = classes_of([*ALIKE, node_topology(TopologyFacts("node030", absent, facts.links, facts.nics))])

    assert texts(classes) == [
        "node030: has 7 × NVIDIA H100 80GB HBM3 (none at 00000000:17:00.0), class A has 8 × NVIDIA H100 80GB HBM3",
    ]


def test_missing_nic_is_reported_by_name():
    facts = hgx_facts("node031")
    ports = [port for port in facts.nics if port.device != "mlx5_3"]

    classes = classes_of([*ALIKE, node_topology(TopologyFacts("node031", facts.gpus, facts.links, ports))])

    assert texts(classes) == ["node031: has 3 NICs (without mlx5_3), class A has 4"]


def test_a_node_without_devices_is_in_no_class():
    assert classes_of([node_topology(TopologyFacts("login"))]) == ()


NODES = [*ALIKE, hgx("node044", dead=[4]), hgx("node045", dead=[4]), with_width("node010", 3, 8),
         with_gpu("node011", 1, driver="550"), node_topology(pcie_facts("slow1")),
         hgx("node012", down=["mlx5_0"])]  # fmt: skip


@settings(max_examples=examples(30), deadline=None)
@given(st.permutations(NODES))
def test_classes_do_not_depend_on_the_order_of_nodes(nodes):
    def facts_of(classes):
        return [(made.name, made.nodes, made.differences, set(made.odd)) for made in classes]

    assert facts_of(classes_of(nodes)) == facts_of(classes_of(NODES))


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(["h100", "dead", "slow", "down"]), max_size=12))
def test_every_node_is_in_exactly_one_class(kinds):
    make = {"h100": hgx, "dead": lambda name: hgx(name, dead=[1]), "down": lambda name: hgx(name, down=["mlx5_0"]),
            "slow": lambda name: node_topology(pcie_facts(name))}  # fmt: skip
    nodes = [make[kind](f"n{number}") for number, kind in enumerate(kinds)]

    members = sorted(name for made in classes_of(nodes) for name in made.nodes)

    assert members == sorted(topology.node for topology in nodes)


PAIRS = list(itertools.combinations([f"GPU{number}" for number in range(6)], 2))


def unfolded(subject):
    """Pairs that a folded subject represents."""
    one, _, rest = subject.partition("–")
    numbers = []
    for part in rest.removeprefix("GPU").split(","):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return {frozenset((one, f"GPU{number}")) for number in numbers}


@given(st.lists(st.sampled_from(PAIRS), unique=True, min_size=1))
def test_folded_pairs_unfold_to_the_same_pairs_each_once(pairs):
    folded = [unfolded(subject) for subject, _ in folded_pairs(pairs)]

    assert set().union(*folded) == {frozenset(pair) for pair in pairs}
    assert sum(map(len, folded)) == len(pairs)


def test_labels_of_several_kinds_fold_apart():
    assert labels_folded(["GPU0", "GPU1", "GPU2", "GPU5", "NIC3"]) == "GPU0-2,5,NIC3"


# -- findings ----------------------------------------------------------------------------------------------------------


def test_differences_give_findings_whose_culprit_is_the_node_or_device():
    found = difference_findings(classes_of([*ALIKE, hgx("node044", dead=[4]), with_width("node010", 3, 8)]))

    assert [(one.id, one.severity, one.confidence, one.culprits) for one in found] == [
        ("topology_differs", "warning", "certain", ("node010:gpu3",)),
        ("topology_differs", "warning", "certain", ("node044",)),
    ]
    assert found[0].text == "node010: GPU3 PCIe width x8, the rest x16"
    assert found[1].text.startswith("node044: GPU4–GPU0-3 SYS, class A NV18; GPU4–GPU5 PIX")
    assert len(found[1].evidence) == 3


def test_no_two_findings_have_the_same_culprits():
    facts = hgx_facts("node020", dead=[2])
    gpus = [msgspec.structs.replace(info, driver="550.1") for info in facts.gpus]
    found = difference_findings(
        classes_of([*NODES, node_topology(TopologyFacts("node020", gpus, facts.links, facts.nics))])
    )

    assert len({(one.id, one.culprits) for one in found}) == len(found)


def test_difference_without_a_majority_is_an_info_finding_of_possible_confidence():
    (found,) = difference_findings(classes_of([hgx("node1"), hgx("node2", down=["mlx5_0"])]))

    assert (found.severity, found.confidence) == ("info", "possible")


def test_node_of_other_gpu_models_is_compared_with_none():
    assert difference_findings(classes_of([*ALIKE, node_topology(pcie_facts("slow1"))])) == ()


def with_gpus(name, count):
    facts = hgx_facts(name)
    kept = {info.uuid for info in facts.gpus[:count]}
    links = [link for link in facts.links if {end.id for end in (link.a, link.b) if end.kind == "gpu"} <= kept]
    return node_topology(TopologyFacts(name, facts.gpus[:count], links, facts.nics))


def test_several_nodes_with_the_same_number_of_gpus_are_a_class_of_their_own():
    assert difference_findings(classes_of([*ALIKE, with_gpus("half1", 4), with_gpus("half2", 4)])) == ()


def test_node_that_is_alone_with_its_number_of_gpus_differs():
    (found,) = difference_findings(classes_of([*ALIKE, with_gpus("node044", 7)]))

    assert (found.severity, found.culprits) == ("warning", ("node044",))
    assert "has 7 × NVIDIA H100 80GB HBM3" in found.text


def test_findings_of_simulated_nodes_are_marked_sim():
    simulated = [node_topology(TopologyFacts(name, facts.gpus, [msgspec.structs.replace(link, simulated=True)
                 for link in facts.links], facts.nics))
                 for name, facts in ((f"node{number}", hgx_facts(f"node{number}", dead=[4] if number == 3 else []))
                                     for number in range(4))]  # fmt: skip

    (found,) = difference_findings(classes_of(simulated))

    assert found.text.startswith("SIM node3: GPU4–GPU0-3 SYS")
    assert all(line.startswith("SIM link node3: ") for line in found.evidence)


# -- findings that the health analysis has already reported ------------------------------------------------------------


def others(nodes, *known):
    """Texts of the differences that are not already reported by the health analysis."""
    reported = ReportedFindings(known, {topology.node: topology for topology in nodes})
    return [found.text for found in difference_findings(classes_of(nodes), reported)]


def nvlink_down(gpu, *links):
    return FindingDraft("nvlink_down", "error", "certain", (gpu,), "down", parts=tuple(map(str, links)))


def with_links_down(node, index, numbers):
    """An HGX node with these NVLinks of one GPU down."""
    facts = hgx_facts(node)
    links = [msgspec.structs.replace(link, up=tuple(n for n in link.up if n not in numbers))
             if link.type == "nvlink" and link.a.id == uuid(node, index) else link for link in facts.links]  # fmt: skip
    return TopologyFacts(node, facts.gpus, links, facts.nics)


def test_difference_already_in_a_health_finding_of_its_node_is_not_repeated():
    nodes = [*ALIKE, with_width("node010", 3, 8), hgx("node012", down=["mlx5_2"])]

    left = others(nodes, FindingDraft("pcie_degraded", "warning", "certain", ("node010:gpu3",), "x8", parts=("width",)),
                  FindingDraft("nic_down", "error", "certain", ("node001:mlx5_0",), "another node's"))  # fmt: skip

    assert left == ["node012: NIC2 state down, the rest active"]


def test_nvlink_down_finding_covers_every_pair_of_its_gpu():
    assert others([*ALIKE, hgx("node044", dead=[4])], nvlink_down("node044:gpu4", *range(18))) == []


def test_a_node_with_an_nvlink_down_keeps_its_other_differences():
    facts = with_links_down("node044", 4, {3, 7})
    gpus = [msgspec.structs.replace(info, vbios="96.00.99") if info.index == 1 else info for info in facts.gpus]
    links = [msgspec.structs.replace(link, width=8) if link.type == "pcie" and link.a.id == uuid("node044", 6) else link
             for link in facts.links]  # fmt: skip
    odd = node_topology(TopologyFacts("node044", gpus, links, facts.nics))

    left = others([*ALIKE, odd], nvlink_down("node044:gpu4", 3, 7))

    assert sorted(left) == [
        "node044: GPU1 VBIOS 96.00.99, the rest 96.00.A5", "node044: GPU6 PCIe width x8, the rest x16"]  # fmt: skip


def test_nvlink_down_finding_does_not_cover_a_nic_relation_of_its_gpu():
    facts = with_links_down("node044", 4, {3, 7})
    moved = [msgspec.structs.replace(link, via=("pci0000:99",)) if link.type == "pcie" and link.a.id == "mlx5_2" else
             link for link in facts.links]  # fmt: skip

    (left,) = others([*ALIKE, node_topology(TopologyFacts("node044", facts.gpus, moved, facts.nics))],
                     nvlink_down("node044:gpu4", 3, 7))  # fmt: skip

    assert left == "node044: NIC2–GPU4-5 NODE, class A PIX"


def test_nvlink_down_finding_that_lists_too_few_links_covers_no_difference():
    nodes = [*ALIKE, node_topology(with_links_down("node044", 4, {3, 7}))]

    assert others(nodes, nvlink_down("node044:gpu4", 3, 7)) == []
    assert others(nodes, nvlink_down("node044:gpu4", 3)) == ["node044: GPU4–GPU0-3,5-7 NV16, class A NV18"]
    assert others(nodes, nvlink_down("node044:gpu5", 3, 7)) == ["node044: GPU4–GPU0-3,5-7 NV16, class A NV18"]
