"""Topology output: text, JSON, Graphviz, SVG, and the report."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import msgspec
import pytest
from click.testing import CliRunner
from machines import hgx_facts, pcie_facts, uuid

from gconsole.analysis.topology.node import TopologyFacts
from gconsole.analysis.topology.routes import between
from gconsole.cli.export import schema
from gconsole.core.store import Store
from gconsole.records import End, Gpu, GpuInfo, GpuLink, GpuProcess, Link, Rank
from gconsole.report import make_report
from gconsole.topology.formats import FORMATS, to_dot, to_svg
from gconsole.topology.json_document import TopologyDocument
from gconsole.topology.pair_queries import find_gpu, path_text
from gconsole.topology.snapshot import TopologySnapshot, gather
from gconsole.topology.text import to_text

HOSTILE = 'evil"]; <script>\x1b[31m&\\"\nname'


def store_of(*facts: TopologyFacts, more: Sequence[object] = ()) -> Store:
    store = Store()
    for fact in facts:
        for record in (*fact.gpus, *fact.links, *fact.nics):
            record.node = fact.node
            store.apply([record])
    store.apply(more)
    return store


def fleet_of(*facts: TopologyFacts, more: Sequence[object] = ()) -> TopologySnapshot:
    return gather(store_of(*facts, more=more))


def rank(node: str, number: int, **more: object) -> Rank:
    known = {"job": "llama", "local_rank": number % 8, "pid": number, "start_ticks": 1, "source": "environ"}
    return Rank(node=node, rank=number, **(known | more))


def pods(*, more: Sequence[object] = ()) -> TopologySnapshot:
    """Four identical nodes, one with a GPU without NVLink, one with a NIC down, one of another type."""
    alike = [hgx_facts(f"node{number:03}") for number in range(1, 5)]
    odd = [hgx_facts("node044", dead=[4]), hgx_facts("node012", down=["mlx5_1"]), pcie_facts("slow1")]
    return fleet_of(*alike, *odd, more=more)


# -- text --------------------------------------------------------------------------------------------------------------


def test_topology_matrix_has_the_layout_of_nvidia_smi():
    lines = to_text(fleet_of(hgx_facts("n1"))).splitlines()

    head = next(line for line in lines if line.split()[:1] == ["GPU0"] and "GPU1" in line.split()[:2])
    row = next(line for line in lines if line.startswith("GPU0 "))
    assert head.split() == [*(f"GPU{n}" for n in range(8)), *(f"NIC{n}" for n in range(4)), "CPU", "Affinity", "NUMA",
                            "Affinity"]  # fmt: skip
    assert row.split() == ["GPU0", "X", *["NV18"] * 7, "PIX", "NODE", "SYS", "SYS", "0"]
    assert "NIC0: mlx5_0, NIC1: mlx5_1, NIC2: mlx5_2, NIC3: mlx5_3" in lines
    assert any(line.split()[:1] == ["NV#"] for line in lines)
    assert not any(line.split()[:1] == ["PXB"] for line in lines)  # a term that does not occur is not explained


def test_every_class_and_every_difference_is_in_the_text():
    text = to_text(pods())

    assert "class A  5 nodes: node[001-004,012]  8 × NVIDIA H100 80GB HBM3, 4 NICs" in text
    assert "▲ node012: NIC1 state down, the rest active" in text
    assert "▲ node044: GPU4–GPU5 PIX, class A NV18" in text
    assert "class C  1 node: slow1  4 × NVIDIA L40S, 1 NIC" in text


def test_ranks_are_listed_on_their_gpus_and_presumed_ones_are_marked():
    process = GpuProcess(node="n1", index=3, uuid=uuid("n1", 3), pid=1, type="compute", job="llama", rank=3)
    more = [process, rank("n1", 3), rank("n1", 5, gpu="6"), rank("n1", 1)]

    rows = {line.split()[0]: line.split()[-1] for line in to_text(fleet_of(hgx_facts("n1"), more=more)).splitlines()
            if line.startswith("GPU")}  # fmt: skip

    assert (rows["GPU3"], rows["GPU6"], rows["GPU1"], rows["GPU5"]) == ("3", "5", "1?", "1")


def test_ranks_of_many_nodes_are_abbreviated_to_the_first_and_last():
    facts = [hgx_facts(f"n{node}") for node in range(6)]
    more = [rank(f"n{number // 8}", number, gpu=str(number % 8)) for number in range(48)]

    text = to_text(fleet_of(*facts, more=more))

    assert "0,8,16,…40" in text


def test_ranks_are_prefixed_with_their_job_when_two_jobs_run():
    more = [rank("n1", 0, gpu="0"), rank("n1", 0, gpu="1", job="eval", pid=9)]

    text = to_text(fleet_of(hgx_facts("n1"), more=more))

    assert "llama:0" in text
    assert "eval:0" in text


def test_node_text_has_nominal_and_measured_bandwidths():
    more = [Gpu(node="n1", index=0, uuid=uuid("n1", 0), nvlink_rx_bytes_s=100e9, nvlink_tx_bytes_s=99e9,
                pcie_rx_bytes_s=1e9)]  # fmt: skip
    text = to_text(fleet_of(hgx_facts("n1", down=["mlx5_2"]), more=more), "n1")

    assert "├─ GPU0  PCIe 5 x16 63 GB/s (now 1.00 GB/s in, – out)  NVLink to NVSwitch 18 × 26.6 GB/s = 478 GB/s" in text
    assert "(now 100 GB/s in, 99.0 GB/s out)" in text
    assert "NIC2  PCIe 5 x16 63 GB/s  mlx5_2  down" in text
    assert "GPU0-7 with each other: peer access: read, write and atomics over NVLink; 478 GB/s over NVSwitch" in text


def test_node_text_lists_its_differences_without_the_node_name():
    text = to_text(pods(), "node044")

    assert "  ▲ GPU4–GPU5 PIX, class A NV18" in text
    assert "18 NVLinks down" in text
    assert "GPU4–GPU0-3: peer access: read, write and atomics over PCIe; at most 63 GB/s over PCIe, NUMA node" in text


def test_path_between_nodes_lists_every_hop_and_its_assumptions():
    fleet = pods()

    text = path_text(fleet, find_gpu(fleet, "node001:0"), find_gpu(fleet, "node044:gpu7"))

    head = "node001 GPU0 to node044 GPU7: 50 GB/s over PCIe, node001:mlx5_0, InfiniBand, node044:mlx5_3"
    assert text.startswith(head)
    assert "│ 400 Gb/s, 50 GB/s (port)" in text
    assert "assumes that all ports of one network can reach each other" in text


def test_path_between_nodes_names_what_carries_it_or_what_is_missing():
    bare = hgx_facts("bare")
    fleet = fleet_of(hgx_facts("n1"), hgx_facts("n2"), msgspec.structs.replace(bare, nics=(), links=[
        link for link in bare.links if "nic" not in (link.a.kind, link.b.kind)]))  # fmt: skip

    over = path_text(fleet, find_gpu(fleet, "n1:0"), find_gpu(fleet, "n2:0"))
    missing = path_text(fleet, find_gpu(fleet, "n1:0"), find_gpu(fleet, "bare:0"))

    assert "network: RDMA over mlx5_0 and mlx5_0" in over
    assert missing.startswith("n1 GPU0 to bare GPU0: no known path")
    assert "network: no path; no NIC was reported by bare" in missing
    assert "RDMA" not in missing


@pytest.mark.parametrize(("name", "message"), [("node9:0", "by node 'node9'"), ("slow1:7", "GPU0, GPU1, GPU2, GPU3"),
                                               ("nonsense", "is not NODE:GPU")])  # fmt: skip
def test_unknown_gpu_is_rejected_with_the_valid_choices(name: str, message: str):
    with pytest.raises(LookupError, match=message):
        find_gpu(pods(), name)


def test_nvswitches_without_addresses_are_shown_without_a_count():
    facts = hgx_facts("n1")
    links = [msgspec.structs.replace(link, b=End("switch")) if link.type == "nvlink" else link for link in facts.links]
    fleet = fleet_of(TopologyFacts("n1", facts.gpus, links, facts.nics))

    assert fleet.nodes["n1"].word("GPU0", "GPU1").startswith("NV")
    assert "NVSwitch, count not reported\n" in to_text(fleet, "n1")


def test_text_without_devices_reports_no_topology():
    assert (
        to_text(fleet_of())
        == "no GPU or NIC was reported; check the GPU driver of the nodes with: gconsole doctor TARGET"
    )


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_document_matches_its_schema():
    more = [GpuLink(node="node001", index=0, uuid=uuid("node001", 0), link=link, rx_bytes_s=1e9, tx_bytes_s=2e9)
            for link in range(18)]  # fmt: skip
    fleet = pods(more=[*more, rank("node001", 2, gpu="2")])

    text = FORMATS["json"](fleet, None)
    made = msgspec.json.decode(text, type=TopologyDocument)

    assert list(json.loads(text)) == ["schema", "classes", "nodes", "links", "groups"]
    assert [(line.name, len(line.nodes)) for line in made.classes] == [("A", 5), ("B", 1), ("C", 1)]
    assert made.classes[1].matrix[4][5] == made.classes[1].matrix[5][4] == "PIX"
    assert made.classes[1].differences[0].text == "node044: GPU4–GPU0-3 SYS, class A NV18"
    node = next(one for one in made.nodes if one.node == "node001")
    assert (node.node_class, len(node.switches), node.devices[5].nearest_nics) == ("A", 4, ["NIC2"])
    assert (node.devices[2].ranks, node.devices[2].numa_node) == ([2], 0)
    nvlink = next(one for one in made.links if one.node == "node001" and one.type == "nvlink" and one.a == "GPU0")
    assert (nvlink.bandwidth_source, nvlink.rx_bytes_s, nvlink.up) == ("driver", 5e9, True)
    pair = next(one for one in made.links if (one.node, one.type, one.a, one.b) == ("node044", "pair", "GPU0", "GPU4"))
    assert (pair.relation, pair.at_most, pair.peer_access) == ("SYS", True, True)


def test_the_document_of_one_node_has_that_node_and_its_class():
    made = msgspec.json.decode(FORMATS["json"](pods(), "slow1"), type=TopologyDocument)

    assert ([cls.name for cls in made.classes], [node.node for node in made.nodes]) == (["C"], ["slow1"])
    assert {line.node for line in made.links} == {"slow1"}


def test_schema_command_describes_the_topology_document():
    done = CliRunner().invoke(schema, [])

    definitions = json.loads(done.output)["$defs"]
    assert set(definitions["TopologyDocument"]["properties"]) == {"schema", "classes", "nodes", "links", "groups"}
    assert "Bandwidths are per direction" in definitions["TopologyLink"]["description"]


def test_the_report_has_the_classes():
    report = make_report(store_of(hgx_facts("n1"), hgx_facts("n2"), pcie_facts("s")))

    assert [(line.name, line.nodes) for line in report.topology.classes] == [("A", ("n1", "n2")), ("B", ("s",))]


# -- drawings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [None, "node044", "slow1"])
def test_graphviz_renders_the_topology_without_errors(node: str | None):
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("Graphviz (dot) is not installed")

    drawn = subprocess.run([dot, "-Tsvg"], input=to_dot(pods(), node), capture_output=True, text=True, check=True)

    assert drawn.stderr == ""
    assert "GPU0" in drawn.stdout
    assert "18 × 26.6 GB/s" in drawn.stdout or node == "slow1"


def test_svg_is_well_formed_and_has_one_drawing_per_class():
    root = ElementTree.fromstring(to_svg(pods()))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]

    assert texts.count("GPU0") == 3  # one drawing per class
    assert "NVSwitch ×4" in texts
    width = float(root.get("width"))
    assert all(0 <= float(element.get("x")) <= width for element in root.iter("{http://www.w3.org/2000/svg}rect")
               if element.get("x"))  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_names_from_a_node_are_escaped_in_every_format(form: str):
    facts = hgx_facts("n1")
    gpus = [msgspec.structs.replace(info, name=HOSTILE, cpu_affinity=HOSTILE) for info in facts.gpus]
    nics = [msgspec.structs.replace(port, device=f"{HOSTILE}{number}") for number, port in enumerate(facts.nics)]
    places = [msgspec.structs.replace(link, via=(HOSTILE, HOSTILE), b=End("numa", HOSTILE)) for link in facts.links
              if link.type == "pcie"]  # fmt: skip
    peers = [msgspec.structs.replace(link, read=HOSTILE) for link in facts.links if link.type == "peer"]
    links = [*places, *peers, *(link for link in facts.links if link.type == "nvlink")]
    fleet = fleet_of(TopologyFacts("n1", gpus, links, nics), more=[rank("n1", 0, gpu="0", job=HOSTILE)])

    assert "\x1b" not in path_text(fleet, fleet.nodes["n1"].gpus[0], fleet.nodes["n1"].gpus[7])
    for node in (None, "n1"):
        text = FORMATS[form](fleet, node)
        assert "\x1b" not in text
        if form == "svg":
            ElementTree.fromstring(text)
        if form == "dot" and shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        if form == "json":
            json.loads(text)


def test_simulated_fleet_is_marked_in_every_format():
    facts = hgx_facts("n1")
    links = [msgspec.structs.replace(link, simulated=True) for link in facts.links]
    fleet = fleet_of(TopologyFacts("n1", facts.gpus, links, facts.nics))

    for form in ("text", "dot", "svg"):
        assert all("SIM" in FORMATS[form](fleet, node) for node in (None, "n1"))
    assert '"simulated": true' in FORMATS["json"](fleet, None)


def test_xgmi_between_gpus_of_amd_is_in_matrix_tree_pictures_and_json():
    gpus = [GpuInfo(node="amd1", index=index, uuid=f"amd-{index}", name="AMD Instinct MI300X") for index in range(3)]
    links = [Link(node="amd1", type="pcie", a=End("gpu", gpu.uuid), b=End("numa", "0"), gen=5, width=16,
                  via=(f"0000:0{gpu.index}:01.0", f"pci0000:0{gpu.index}")) for gpu in gpus]  # fmt: skip
    links += [Link(node="amd1", type="xgmi", a=End("gpu", f"amd-{near}"), b=End("gpu", f"amd-{far}"), distance=15,
                   speed_bytes_s=64e9) for near, far in ((0, 1), (1, 2))]  # fmt: skip
    fleet = fleet_of(TopologyFacts("amd1", gpus, links))
    made, text = fleet.nodes["amd1"], to_text(fleet, "amd1")

    assert [made.word("GPU0", other) for other in ("GPU1", "GPU2")] == ["XGMI", "NODE"]
    assert "XGMI" in to_text(fleet)
    assert "Infinity Fabric" in to_text(fleet)
    assert "xGMI to GPU1 64 GB/s" in text
    assert "NVLink to" not in text
    assert FORMATS["json"](fleet, "amd1").count('"xgmi"') == 2
    assert "64 GB/s" in to_dot(fleet)
    assert "64 GB/s" in to_svg(fleet, "amd1")
    path = between([made], made.gpus[0].vertex, made.gpus[1].vertex)
    assert path is not None
    assert (path.bytes_s, path.hops) == (64e9, 1)
