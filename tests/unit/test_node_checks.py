"""`gconsole check` on a store: facts, text and exit code."""

import json

import pytest

from gconsole.core.store import Store
from gconsole.monitor.node_checks import check_nodes, exit_code, table_json, to_json, to_text
from gconsole.records import (
    Failure,
    Finding,
    Gpu,
    GpuInfo,
    GpuProcess,
    Host,
    Inventory,
    Log,
    Node,
    NodeState,
    Process,
    Rank,
    RankStat,
)

GIB = 1 << 30


def a_node(name, **figures):
    node = Node(node=name, hostname=name, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1, cpus=8,
                mem_total_bytes=64 * GIB, sample_interval_ms=1000)  # fmt: skip
    return [
        NodeState(node=name, state="ok"), node, Host(node=name, mem_available_bytes=32 * GIB, load_1m=1.0),
        Inventory(node=name, of="gpu", count=1), GpuInfo(node=name, index=0, uuid=f"{name}-0", persistence=True),
        Gpu(node=name, index=0, uuid=f"{name}-0", mem_used_bytes=8 * GIB, **figures),
        GpuProcess(node=name, index=0, uuid=f"{name}-0", pid=7, type="compute"),
    ]  # fmt: skip


def a_store(*records):
    store = Store()
    for number, record in enumerate(records):
        record.rx = 1 + number * 10**9
    store.apply(list(records))
    return store


def a_finding(severity, culprit="n1:gpu0", **fields):
    return Finding(id="gpu_ecc", severity=severity, confidence="certain", culprits=(culprit,), text="n1:gpu0: 3 errors",
                   first_seen=1, **fields)  # fmt: skip


def state_of(store, node, id):
    (checked,) = [checked for checked in check_nodes(store) if checked.node == node]
    return next(result.state for result in checked.checks if result.id == id)


def test_process_on_a_gpu_and_the_findings_of_the_node_itself_are_its_facts():
    store = a_store(*a_node("n1", ecc_uncorrected_volatile=3), *a_node("n10", ecc_uncorrected_volatile=0),
                    a_finding("error"))  # fmt: skip

    assert state_of(store, "n1", "gpu_memory_held") == "pass"
    assert (state_of(store, "n1", "gpu_ecc"), state_of(store, "n10", "gpu_ecc")) == ("fail", "pass")


def test_node_that_connected_late_is_unknown_where_it_was_watched_too_briefly():
    watched, late = a_node("n1"), a_node("n2")
    store = a_store(*watched, *[Host(node="n1")] * 10, *late)

    assert (state_of(store, "n1", "kernel_log"), state_of(store, "n1", "reboot")) == ("pass", "pass")
    assert (state_of(store, "n2", "kernel_log"), state_of(store, "n2", "reboot")) == ("pass", "unknown")


def test_fault_since_the_boot_is_of_its_node_and_the_table_has_the_remedies():
    late = Host(node="n1", uptime_s=86_400.0)
    late.t = 1_790_000_000 * 10**9
    fault = Log(node="n1", source="kernel", fault="disk", text="nvme0: I/O error", at=late.t - 7200 * 10**9)
    store = a_store(*a_node("n1"), *a_node("n2"), late, fault, *[Host(node="n2", uptime_s=86_400.0)] * 10, late)

    assert state_of(store, "n1", "kernel_since_boot") == "fail"
    assert state_of(store, "n2", "kernel_since_boot") == "pass"
    assert all(check["remedy"] for check in json.loads(table_json())["checks"])


def a_rank(ppid=50, state="moving", launcher=None, **fields):
    """The process on the GPU of n1 as a rank; 50 is its torchrun."""
    key = {"node": "n1", "pid": 7, "start_ticks": 1}
    other = {"node": "n1", "pid": 50, "start_ticks": 1, "ppid": 1, "uid": 0, "comm": "torchrun", "role": "launcher"}
    return [
        Rank(job="train", rank=3, source="environ", launcher=launcher, **key, **fields),
        RankStat(job="train", rank=3, state=state, **key),
        Process(ppid=ppid, uid=0, comm="python", role="rank", **key), Process(**other),
    ]  # fmt: skip


@pytest.mark.parametrize(("records", "words"), [
    (a_rank(state="zombie"), "rank 3 of train (pid 7, a zombie) holds gpu0"),
    (a_rank(status="stale"), "left over from an attempt that was restarted) holds gpu0"),
    (a_rank(ppid=1, launcher="torchrun"), "its torchrun has ended) holds gpu0"),
    (a_rank(), None), (a_rank(launcher="torchrun"), None), (a_rank(ppid=1, launcher="slurm"), None),
])  # fmt: skip
def test_process_of_an_ended_job_that_holds_a_gpu_fails_and_a_living_rank_passes(records, words):
    (checked,) = check_nodes(a_store(*a_node("n1"), *records))
    (result,) = [result for result in checked.checks if result.id == "gpu_left_over"]

    assert result.state == ("fail" if words else "pass")
    assert (words or "") in result.text


def test_cleared_finding_fails_no_check():
    store = a_store(*a_node("n1", ecc_uncorrected_volatile=0), a_finding("error", cleared_at=5))

    assert state_of(store, "n1", "gpu_ecc") == "pass"


@pytest.mark.parametrize(("records", "fail_on", "code"), [
    ([], "error", 0), ([a_finding("warning")], "error", 0), ([a_finding("warning")], "warning", 1),
    ([a_finding("error")], "error", 1), ([NodeState(node="n2", state="failed")], "error", 3),
    ([Inventory(node="n1", of="gpu", count=8)], "error", 3),
])  # fmt: skip
def test_exit_code_is_that_of_a_prolog(records, fail_on, code):
    store = a_store(*a_node("n1", ecc_uncorrected_volatile=0), *records)

    assert exit_code(check_nodes(store), fail_on) == code


def test_nothing_reached_is_4():
    failure = Failure("refused", "connection refused")
    nodes = check_nodes(a_store(NodeState(node="n1", state="failed", error=failure)))

    assert exit_code(nodes, "error") == 4
    assert "n1  not reached" in to_text(nodes)


def test_text_folds_nodes_with_equal_results_and_json_has_every_check_of_every_node():
    names = [f"node{number}" for number in range(1, 9)]
    nodes = check_nodes(a_store(*(record for name in names for record in a_node(name))))
    lines = to_text(nodes).splitlines()

    assert [line for line in lines if "gpu_ecc" in line] == [
        "? gpu_ecc                   node[1-8]  unknown: the driver does not report it"]  # fmt: skip
    assert any(line.split()[1:] == ["gpu_persistence", "8", "nodes", "passed"] for line in lines)
    document = json.loads(to_json(nodes))
    assert document["schema"] == "gconsole.check/1"
    assert {len(node["checks"]) for node in document["nodes"]} == {len(nodes[0].checks)}
