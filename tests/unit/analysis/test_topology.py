"""Node topology: relations between devices, link bandwidth, and the best path between two GPUs."""

from __future__ import annotations

import itertools
import math

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import gpu, hgx, hgx_facts, nic, pcie_facts, peer, uuid

from gconsole.analysis.topology.link_graph import Bandwidth, LinkEdge, LinkGraph, Vertex, of_nvlinks, of_pcie
from gconsole.analysis.topology.node import TopologyFacts, node_topology
from gconsole.analysis.topology.routes import ENDS, OUTSIDE, best_route, between, peer_access, remote_access
from gconsole.records import End, Link


def gpu_at(topology, index):
    return topology.gpus[index]


def route(one, a, other, b):
    return between([one, other], gpu_at(one, a).vertex, gpu_at(other, b).vertex)


# -- relations ---------------------------------------------------------------------------------------------------------


def test_gpus_behind_nvswitches_are_connected_by_all_their_nvlinks():
    topology = hgx("n")

    assert topology.word("GPU0", "GPU7") == topology.word("GPU7", "GPU0") == "NV18"
    assert topology.word("GPU3", "GPU3") == "X"
    assert len(topology.switches) == 4


def test_nvlink_count_of_a_pair_is_the_lower_count_of_active_links():
    facts = hgx_facts("n")
    links = [msgspec.structs.replace(link, up=link.up[1:]) if link.a.id == uuid("n", 2) and link.type == "nvlink"
             else link for link in facts.links]  # fmt: skip
    topology = node_topology(TopologyFacts("n", facts.gpus, links, facts.nics))

    assert (topology.word("GPU2", "GPU5"), topology.word("GPU1", "GPU5")) == ("NV14", "NV18")


def test_gpu_without_nvlinks_uses_the_pcie_relation_from_the_driver():
    topology = hgx("n", dead=[4])

    assert [topology.word("GPU4", f"GPU{other}") for other in (5, 6, 0)] == ["PIX", "NODE", "SYS"]


def test_direct_gpu_to_gpu_nvlinks_connect_only_that_pair():
    links = [Link(type="nvlink", a=End("gpu", uuid("n", one)), b=End("gpu", uuid("n", one ^ 1)), links=(0, 1),
                  up=(0, 1), version=3) for one in range(4)]  # fmt: skip
    links += [peer("n", one, other, "SYS") for one, other in itertools.combinations(range(4), 2)]
    topology = node_topology(TopologyFacts("n", [gpu("n", index) for index in range(4)], links))

    assert (topology.word("GPU0", "GPU1"), topology.word("GPU1", "GPU2")) == ("NV2", "SYS")


def test_nvlinks_with_unknown_state_are_not_counted():
    facts = hgx_facts("n")
    unsure = [msgspec.structs.replace(link, up=(), unsupported={"up": "no"}) if link.type == "nvlink" else link
              for link in facts.links]  # fmt: skip

    assert node_topology(TopologyFacts("n", facts.gpus, unsure)).word("GPU0", "GPU1") == "NV?"


def test_nic_to_gpu_relation_follows_their_shared_pcie_bridges():
    topology = hgx("n")

    assert [topology.word("GPU0", f"NIC{number}") for number in range(4)] == ["PIX", "NODE", "SYS", "SYS"]
    assert [nic.name for nic in topology.nearest_nics(gpu_at(topology, 5))] == ["mlx5_2"]


@pytest.mark.parametrize(("one", "other", "word"), [
    (("d", "u", "r", "root"), ("e", "u", "r", "root"), "PIX"),
    (("d", "u", "r", "root"), ("d", "u", "r", "root"), "PIX"),
    (("d", "u", "d2", "u2", "r", "root"), ("e", "v", "e2", "u2", "r", "root"), "PXB"),
    (("r", "root"), ("s", "root"), "PHB"),
    (("r", "root"), ("s", "other"), "NODE"),
    ((), ("s", "other"), "?"),
])  # fmt: skip
def test_pcie_relation_is_named_after_the_closest_common_ancestor(one, other, word):
    places = [Link(type="pcie", a=End("nic", f"mlx5_{number}"), b=End("numa", "0"), via=via)
              for number, via in enumerate((one, other))]  # fmt: skip

    assert node_topology(TopologyFacts("", (), places, [nic("", 0), nic("", 1)])).word("NIC0", "NIC1") == word


def test_unreported_links_leave_relations_routes_and_peer_access_unknown():
    topology = node_topology(TopologyFacts("n", [gpu("n", 0), gpu("n", 1)]))

    assert topology.word("GPU0", "GPU1") == "?"
    assert topology.nearest_nics(gpu_at(topology, 0)) == ()
    assert (gpu_at(topology, 0).numa, route(topology, 0, topology, 1)) == (None, None)
    assert peer_access(topology, *topology.gpus).allowed is None


def test_mig_device_is_excluded_from_the_topology():
    part = gpu("n", 0, parent=uuid("n", 0))

    assert len(node_topology(TopologyFacts("n", [gpu("n", 0), part])).gpus) == 1


def test_ethernet_nics_are_included_only_without_rdma_nics():
    assert [nic.name for nic in node_topology(pcie_facts("n")).nics] == ["eth0"]
    both = hgx_facts("n")
    facts = TopologyFacts("n", both.gpus, both.links, [*both.nics, *pcie_facts("n").nics])
    assert {nic.name for nic in node_topology(facts).nics} == {f"mlx5_{number}" for number in range(4)}


# -- bandwidth ---------------------------------------------------------------------------------------------------------


def test_bandwidth_states_whether_it_is_driver_reported_or_nominal():
    up = Link(type="nvlink", a=End("gpu", "a"), b=End("switch", "s"), up=tuple(range(18)), version=4,
              speed_bytes_s=26.562e9)  # fmt: skip
    nominal = msgspec.structs.replace(up, speed_bytes_s=None)

    stated = of_nvlinks([up])
    assert (stated.source, stated.text, round(stated.bytes_s / 1e9)) == ("driver", "18 × 26.6 GB/s", 478)
    assert (of_nvlinks([nominal]).source, of_nvlinks([nominal]).bytes_s) == ("nominal", 450e9)
    assert of_nvlinks([msgspec.structs.replace(nominal, version=None)]) is None
    assert of_nvlinks([msgspec.structs.replace(up, up=())]) is None


@pytest.mark.parametrize(("gen", "gigabytes_s"), [(3, 15.75), (4, 31.5), (5, 63.0), (6, 121.0)])
def test_pcie_x16_bandwidth_follows_the_generation(gen, gigabytes_s):
    assert of_pcie(gen, 16).bytes_s / 1e9 == pytest.approx(gigabytes_s, rel=0.001)
    assert of_pcie(gen, None) is None


# -- paths -------------------------------------------------------------------------------------------------------------


def test_best_route_between_gpus_of_a_node_uses_nvlink():
    topology = hgx("n")

    best = route(topology, 0, topology, 7)

    assert [stop.kind for stop in best.stops] == ["gpu", "switch", "gpu"]
    assert (round(best.bytes_s / 1e9), best.is_bound, best.narrowest) == (478, False, "18 × 26.6 GB/s")


def test_best_route_without_nvlink_uses_pcie_and_no_other_gpu():
    topology = hgx("n", dead=[4])

    near, far = route(topology, 4, topology, 5), route(topology, 4, topology, 0)

    assert [stop.kind for stop in near.stops] == ["gpu", "pci", "pci", "pci", "gpu"]
    assert (round(near.bytes_s / 1e9), near.is_bound) == (63, False)
    assert far.is_bound  # the bandwidth between two CPUs is unknown
    assert [stop.kind for stop in far.stops].count("numa") == 2


def test_best_route_between_nodes_uses_the_nearest_nics():
    one, other = hgx("n1"), hgx("n2")

    best = route(one, 0, other, 7)

    assert [stop.id for stop in best.stops if stop.kind == "nic"] == ["mlx5_0", "mlx5_3"]
    assert (best.bytes_s, best.narrowest, best.is_bound) == (50e9, "400 Gb/s", False)


def test_best_route_avoids_a_nic_that_is_down():
    one, other = hgx("n1", down=["mlx5_0"]), hgx("n2")

    best = route(one, 0, other, 0)

    assert [stop.id for stop in best.stops if stop.kind == "nic"] == ["mlx5_1", "mlx5_0"]


def test_no_route_connects_different_network_types():
    assert route(hgx("n1"), 0, node_topology(pcie_facts("n2")), 0) is None


def test_best_route_within_one_nvlink_fabric_crosses_nodes():
    clique = {"fabric_state": "completed", "fabric_cluster": "01020304-0506-0708-090a-0b0c0d0e0f10", "fabric_clique": 1}
    nodes = []
    for name in ("n1", "n2"):
        facts = hgx_facts(name)
        infos = [msgspec.structs.replace(info, **clique) for info in facts.gpus]
        nodes.append(node_topology(TopologyFacts(name, infos, facts.links, facts.nics)))

    best = route(nodes[0], 0, nodes[1], 7)

    assert [stop.kind for stop in best.stops] == ["gpu", "switch", "fabric", "switch", "gpu"]
    assert remote_access(gpu_at(nodes[0], 0), gpu_at(nodes[1], 7)).allowed
    assert not remote_access(gpu_at(nodes[0], 0), gpu_at(hgx("n3"), 0)).allowed


def test_fabric_with_an_all_zero_id_is_not_shared_between_nodes():
    facts = hgx_facts("n")
    unset = "00000000-0000-0000-0000-000000000000"
    infos = [msgspec.structs.replace(info, fabric_state="completed", fabric_cluster=unset, fabric_clique=0)
             for info in facts.gpus]  # fmt: skip

    graph = node_topology(TopologyFacts("n", infos, facts.links)).graph

    assert not [vertex for vertex in graph if vertex.kind == "fabric"]


WIDTHS = st.sampled_from([None, 1.0, 2.0, 2.0, 5.0, math.inf])


@st.composite
def graphs(draw):
    """Random graphs of up to seven devices, some of which do not forward traffic."""
    count = draw(st.integers(2, 7))
    kinds = ["gpu", "gpu", *(draw(st.sampled_from(["gpu", "nic", "pci", "switch"])) for _ in range(count - 2))]
    vertices = [Vertex("n", kind, str(number)) for number, kind in enumerate(kinds)]
    graph = LinkGraph(vertices)
    for one, other in itertools.combinations(vertices, 2):
        if draw(st.booleans()):
            graph.add_edge(one, other, LinkEdge("t", draw(WIDTHS), ANY))
    return graph, vertices


ANY = Bandwidth(1.0, "nominal", "a link")


@pytest.mark.slow
@given(graphs())
def test_best_route_is_the_widest_and_among_equals_the_shortest(drawn):
    graph, (start, end, *rest) = drawn
    blocked = [vertex for vertex in rest if vertex.kind in ENDS | OUTSIDE]

    found = best_route(graph, start, end, blocked)

    passable = nx.Graph()
    passable.add_nodes_from(vertex for vertex in graph if vertex not in blocked)
    passable.add_edges_from((near, far) for near, far in itertools.permutations(passable, 2) if graph.edge(near, far))
    every = [(min(_weight(graph, edge) for edge in itertools.pairwise(path)), -len(path))
             for path in nx.all_simple_paths(passable, start, end)]  # fmt: skip
    if not every:
        assert found is None
        return
    edges = list(itertools.pairwise(found.stops))
    assert (min(_weight(graph, edge) for edge in edges), -len(found.stops)) == max(every)
    assert found.is_bound == any(graph.edge(*edge).width is None for edge in edges)
    assert not set(found.stops) & set(blocked)


def _weight(graph, edge):
    return graph.edge(*edge).known_width


# -- peer access -------------------------------------------------------------------------------------------------------


def test_peer_access_states_the_medium_or_the_reason_it_is_unavailable():
    fast, slow = hgx("n"), node_topology(pcie_facts("n"))

    assert peer_access(fast, *fast.gpus[:2]).why == "read, write and atomics over NVLink"
    assert peer_access(slow, *slow.gpus[:2]).allowed is False
    assert "no read and no write: not supported by the chipset" in peer_access(slow, *slow.gpus[:2]).why


def test_peer_access_with_an_unreported_status_is_unknown():
    silent = Link(type="peer", a=End("gpu", uuid("n", 0)), b=End("gpu", uuid("n", 1)), read="ok",
                  unsupported={"write": "Insufficient Permissions"})  # fmt: skip
    topology = node_topology(TopologyFacts("n", [gpu("n", 0), gpu("n", 1)], [silent]))

    access = peer_access(topology, *topology.gpus)

    assert (access.allowed, access.why) == (None, "Insufficient Permissions")
