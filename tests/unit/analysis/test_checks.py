"""The table of node checks: each passes, fails, is unknown or absent."""

import msgspec
import pytest

from gconsole.analysis.checks.result import NodeFacts
from gconsole.analysis.checks.table import CHECKS, run_checks
from gconsole.analysis.finding import IDS
from gconsole.analysis.health import CHECKS as HEALTH
from gconsole.records import Finding, Gpu, GpuInfo, Host, Inventory, Missing, Nic, Node

GIB = 1 << 30
#: Health findings that fail no check: of a job or the console, not of a node; and heat, which a check measures itself.
WITHOUT_CHECK = {"gpu_memory_imbalance", "console_late", "gpu_hot"}


def facts(**fields):
    """A healthy node with two GPUs behind NVLinks, watched for a minute."""
    info = GpuInfo(index=0, uuid="a", persistence=True, ecc_mode=True, nvlinks=18, fabric_state="completed",
                   pcie_width=16, temp_slowdown_c=95.0)  # fmt: skip
    gpu = Gpu(index=0, uuid="a", temp_c=60.0, mem_used_bytes=40 * GIB, util_pct=97.0, sm_clock_mhz=1980.0,
              ecc_uncorrected_volatile=0, remap_pending=False)  # fmt: skip
    other = (msgspec.structs.replace(info, index=1, uuid="b"), msgspec.structs.replace(gpu, index=1, uuid="b"))
    node = Node(hostname="n1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1, cpus=8,
                mem_total_bytes=64 * GIB, sample_interval_ms=1000)  # fmt: skip
    host = Host(mem_available_bytes=32 * GIB, mem_stall_pct=0.0, load_1m=8.0)
    healthy = {
        "about": node, "host": host, "gpus": [(info, gpu), other], "nics": [Nic(device="eth0", port=0, state="up")],
        "inventory": {"gpu": Inventory(of="gpu", count=2)}, "occupied": frozenset({"a", "b"}), "watched_s": 60.0,
        "nodes": 4,
    }  # fmt: skip
    return NodeFacts("n1", **(healthy | fields))


def a_finding(id, text):
    return Finding(id=id, severity="warning", confidence="certain", culprits=("n1",), text=text, first_seen=1)


def states(of):
    return {result.id: result.state for result in run_checks(of)}


def changed(**fields):
    """The healthy node with other figures of GPU 1."""
    first, (info, gpu) = facts().gpus
    own = {name: value for name, value in fields.items() if name in info.__struct_fields__}
    figures = {name: value for name, value in fields.items() if name not in own}
    return facts(gpus=[first, (msgspec.structs.replace(info, **own), msgspec.structs.replace(gpu, **figures))])


def failed(of):
    return {result.id: result.text for result in run_checks(of) if result.state == "fail"}


def test_ids_are_unique_and_every_check_has_a_source_a_limit_and_a_remedy():
    assert len({check.id for check in CHECKS}) == len(CHECKS) >= 30
    for check in CHECKS:
        assert check.what and check.source and check.limit and check.remedy, check.id
        assert set(check.findings) <= set(IDS)
        assert bool(check.findings) != (check.measure is not None), check.id


def test_every_health_finding_fails_a_check():
    covered = {id for check in CHECKS for id in check.findings}
    assert {check.__name__ for check in HEALTH} - covered == WITHOUT_CHECK


def test_healthy_node_passes_every_check():
    assert set(states(facts()).values()) == {"pass"}


@pytest.mark.parametrize("check", [check for check in CHECKS if check.findings], ids=lambda check: check.id)
def test_open_finding_of_a_check_fails_it_with_its_text_and_remedy(check):
    for id in check.findings:
        finding = a_finding(id, "n1: it is broken")
        (result,) = [result for result in run_checks(facts(findings=[finding])) if result.state == "fail"]
        assert (result.id, result.text, result.severity) == (check.id, "it is broken", "warning")
        assert result.remedy


@pytest.mark.parametrize(("of", "id", "words"), [
    (changed(persistence=False), "gpu_persistence", "gpu1 persistence mode off"),
    (changed(temp_c=93.0), "gpu_temperature", "gpu1 93 °C"),
    (changed(mem_temp_c=110.0), "gpu_temperature", "memory 110 °C"),
    (facts(occupied=frozenset({"a"})), "gpu_memory_held", "gpu1 40.0 GiB held by no process"),
    (facts(host=Host(mem_available_bytes=GIB)), "memory", "1.0 GiB of 64.0 GiB available"),
    (facts(host=Host(mem_stall_pct=30.0)), "memory_pressure", "30 % of the last 10 s"),
    (facts(host=Host(load_1m=17.0)), "load", "load 17 on 8 CPUs"),
])  # fmt: skip
def test_value_beyond_its_limit_fails_and_names_device_and_value(of, id, words):
    assert words in failed(of)[id]


def test_unknown_values_are_unknown_and_not_passed():
    bare = [(GpuInfo(index=index, uuid=str(index), nvlinks=18), Gpu(index=index, uuid=str(index))) for index in (0, 1)]
    result = states(facts(gpus=bare, host=None))

    for id in ("gpu_persistence", "gpu_temperature", "gpu_memory_held", "gpu_busy_without_process", "gpu_ecc",
               "gpu_remap", "pcie_link", "nvlink_fabric", "gpu_clock", "gpu_settings", "memory", "load"):  # fmt: skip
        assert result[id] == "unknown", id


def test_gpus_that_cannot_be_read_or_have_not_all_reported_are_unknown():
    broken = facts(gpus=[], inventory={"gpu": Inventory(of="gpu", fault="gpu_hung", text="nvmlInit hangs")})
    assert {states(broken)[id] for id in ("gpu_reachable", "gpu_ecc", "nvlink_state")} == {"unknown"}
    assert states(facts(inventory={"gpu": Inventory(of="gpu", count=8)}))["gpu_reachable"] == "unknown"
    assert states(facts(about=None))["memory"] == "unknown"
    assert states(facts(inventory={}))["gpu_driver"] == "unknown"


def test_devices_that_a_node_does_not_have_are_absent():
    bare = facts(gpus=[], nics=[], nodes=1, inventory={of: Inventory(of=of, count=0) for of in ("gpu", "nic")})
    result = states(bare)

    assert {
        result[id]
        for id in ("gpu_driver", "gpu_count", "gpu_reachable", "gpu_ecc", "nvlink_state", "nic_state", "topology")
    } == {"absent"}
    assert result["memory"] == "pass"


def test_check_of_a_rate_is_unknown_until_it_was_watched_and_fails_at_once():
    finding = a_finding("nvlink_errors", "errors")

    (result,) = [result for result in run_checks(facts(watched_s=8.0)) if result.id == "nvlink_errors"]
    assert (result.state, result.text) == ("unknown", "needs --for 20s")
    assert states(facts(watched_s=8.0, findings=[finding]))["nvlink_errors"] == "fail"


def test_source_that_the_agent_cannot_read_is_unknown_with_the_reason():
    node = msgspec.structs.replace(facts().about, missing=(Missing("kernel_log", "no permission for /dev/kmsg"),))

    (result,) = [result for result in run_checks(facts(about=node)) if result.id == "kernel_log"]
    assert (result.state, result.text) == ("unknown", "no permission for /dev/kmsg")
