"""A fleet of real nodes, each with its own fake NVML: the output of `gconsole topo`."""

import json
import shutil

import pytest
from nvml import scenarios
from nvml.library import NAME, Scenario, folder
from program import gconsole
from rig import Rig, RigUnavailable


def equip(node, lines):
    """Install a fake NVML with this scenario on a node: its interpreter finds both in the node's folder."""
    shutil.copy(folder() / NAME, node.folder / NAME)
    Scenario(node.folder / "scenario", lines)
    python = node.folder / "python-with-nvml"
    python.write_text(f"#!/bin/sh\nexport LD_LIBRARY_PATH={node.inside} NVML_SCENARIO={node.inside}/scenario\n"
                      'exec python3 "$@"\n')  # fmt: skip
    python.chmod(0o755)
    return {"python": f"{node.inside}/{python.name}"}


def without_nvlink(gpu):
    """An HGX machine with one GPU whose NVLinks are all down."""
    return {f"gpu{gpu}.field.165@{link}": "u32:0" for link in range(18)}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    scenarios_by_node = {
        "node1": scenarios.hgx_h100(),
        "node2": scenarios.hgx_h100(),
        "node3": scenarios.hgx_h100(),
        "node4": scenarios.hgx_h100() | without_nvlink(4),
        "node5": scenarios.pcie_only(),
        "node6": scenarios.hgx_h100() | {"gpu5.vbios": "96.00.99"},
    }
    try:
        with Rig(nodes=list(scenarios_by_node), name="topo") as rig:
            python = {name: equip(rig.node(name), lines) for name, lines in scenarios_by_node.items()}
            yield rig.write_hosts_toml(tmp_path_factory.mktemp("fleet") / "hosts.toml", nodes=python)
    except RigUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def batch_outputs(hosts, tmp_path_factory):
    """(report, records file) of one batch run over the fleet."""
    folder = tmp_path_factory.mktemp("seen")
    run = gconsole("batch", hosts, "--quiet", "-o", folder / "report.json", "--records", folder / "run.ndjson")
    assert run.status == 0, run.stderr
    return json.loads((folder / "report.json").read_text()), folder / "run.ndjson"


def test_topo_prints_the_matrix_of_every_class_and_names_every_difference(hosts):
    run = gconsole("topo", hosts)

    assert run.status == 0, run.stderr
    lines = run.stdout.splitlines()
    assert "class A  4 nodes: node[1-3,6]  8 × NVIDIA H100 80GB HBM3" in run.stdout
    assert "class B  1 node: node4" in run.stdout
    assert "class C  1 node: node5  4 × NVIDIA L40S" in run.stdout
    assert "  ▲ node4: GPU4–GPU5 PIX, class A NV18" in lines
    assert "  ▲ node6: GPU5 VBIOS 96.00.99, the rest 96.00.A5.00.01" in lines
    row = next(line for line in lines if line.startswith("GPU0 "))
    assert row.split()[:9] == ["GPU0", "X", *["NV18"] * 7]


def test_difference_within_a_topology_class_is_a_finding(batch_outputs):
    texts = {
        tuple(line["culprits"]): line["text"]
        for line in batch_outputs[0]["findings"]
        if line["id"] == "topology_differs"
    }
    assert any("VBIOS" in text for culprits, text in texts.items() if any("node6" in name for name in culprits)), texts


def test_topo_of_a_node_from_records_shows_peer_access(batch_outputs):
    odd, slow = (gconsole("topo", "--from", batch_outputs[1], "--node", node) for node in ("node4", "node5"))

    assert odd.status == 0
    assert "▲ GPU4–GPU5 PIX, class A NV18" in odd.stdout
    assert "18 NVLinks down" in odd.stdout
    assert "peer access: read, write and atomics over NVLink; 478 GB/s over NVSwitch (18 × 26.6 GB/s)" in odd.stdout
    assert "peer access: no; no read and no write: not supported by the chipset" in slow.stdout


def test_topo_json_file_has_the_same_classes_as_the_report(batch_outputs, tmp_path):
    report, records = batch_outputs
    run = gconsole("topo", "--from", records, "--format", "json", "-o", tmp_path / "topology.json")

    assert (run.status, run.stdout) == (0, "")
    document = json.loads((tmp_path / "topology.json").read_text())
    assert [line["nodes"] for line in report["topology"]["classes"]] == [line["nodes"] for line in document["classes"]]
    assert len([line for line in document["links"] if line["type"] == "pair"]) == 5 * 28 + 6


@pytest.mark.parametrize(("arguments", "message"), [
    (("--node", "node99"), "--node node99: node not found"),
    (("--path", "node1:0", "node5:9"), "GPU0, GPU1, GPU2, GPU3"),
    (("--path", "node1:0", "node1:0"), "both ends are the same GPU"),
    (("--path", "node1:0", "node1:1", "--format", "dot"), "--path conflicts with --node"),
])  # fmt: skip
def test_invalid_topo_arguments_are_rejected_in_one_line(batch_outputs, arguments, message):
    run = gconsole("topo", "--from", batch_outputs[1], *arguments)

    assert run.status == 2
    assert message in run.stderr


def test_topo_path_within_a_node_shows_bandwidth_and_peer_access(batch_outputs):
    run = gconsole("topo", "--from", batch_outputs[1], "--path", "node1:0", "node1:gpu7")

    assert run.status == 0
    assert run.stdout.splitlines()[0] == "node1 GPU0 to node1 GPU7: 478 GB/s over NVSwitch (18 × 26.6 GB/s)"
    assert "peer access: read, write and atomics over NVLink" in run.stdout


def test_check_names_the_node_whose_nvlinks_are_down_and_no_other(hosts):
    run = gconsole("check", hosts, "--for", "13s", "--json")

    assert run.status == 1, run.stderr
    nodes = json.loads(run.stdout)["nodes"]
    failed = {(node["node"], check["id"]) for node in nodes for check in node["checks"] if check["state"] == "fail"}
    of_gpus = {entry for entry in failed if entry[1].startswith(("gpu_", "nvlink_"))}
    busy = {
        (f"node{number}", f"gpu_{what}") for number in range(1, 7) for what in ("memory_held", "busy_without_process")
    }
    assert of_gpus == busy | {("node4", "nvlink_state")}, "GPUs of the scenarios work without processes"
    assert {(node["node"], check["state"]) for node in nodes for check in node["checks"]
            if check["id"] == "nvlink_fabric"} == {(f"node{number}", "absent" if number == 5 else "pass")
                                                   for number in range(1, 7)}  # fmt: skip
