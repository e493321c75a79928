"""Health findings: each fault is found, and similar healthy or unknown states are not."""

from __future__ import annotations

import msgspec
import pytest

from gconsole.analysis.finding import IDS
from gconsole.analysis.health import CHECKS, health_findings
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.records import (
    AgentCost,
    Digest,
    Gap,
    Gpu,
    GpuDigest,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    Inventory,
    Log,
    Nic,
    Node,
    NodeState,
    Process,
    Rank,
)

LIMITS = HealthConfig()
GIB = 1 << 30
SECOND = 10**9


def a_node(name="n1", agent="a", boot_id="b", kernel="6.1"):
    return Node(node=name, agent=agent, hostname=name, boot_id=boot_id, kernel=kernel, arch="x86_64", python="3.11",
                uid=0, pid=1, sample_interval_ms=1000)  # fmt: skip


def info(index=0, node="n1", **fields):
    return GpuInfo(node=node, index=index, uuid=f"{node}-{index}", **{"name": "H100"} | fields)


def gpu(index=0, node="n1", at=0, **fields):
    now = int(at * SECOND)
    return Gpu(node=node, index=index, uuid=f"{node}-{index}", mono=now, rx=now, **{"util_pct": 98.0} | fields)


def seconds(count, indices=(0,), node="n1", **fields):
    """Samples of these GPUs, one per second for `count` seconds."""
    return [gpu(index, node, at, **fields) for at in range(count) for index in indices]


def complete(name, records, **fields):
    """The inventory of a node that has reported all of its GPUs."""
    whole = {one.uuid for one in records if isinstance(one, GpuInfo) and one.node == name and one.parent is None}
    return Inventory(node=name, **{"of": "gpu", "count": len(whole)} | fields)


def found(*records, limits=LIMITS):
    facts = HealthState(limits.window_s, limits.busy_pct)
    flat = [one for record in records for one in (record if isinstance(record, list) else [record])]
    names = sorted({record.node for record in flat})
    facts.add([a_node(name) for name in names if any(one.node == name and not isinstance(one, Node) for one in flat)])
    facts.add([complete(name, flat) for name in names])
    facts.add(flat)
    return {(one.id, *one.culprits): one for one in health_findings(facts, limits)}


def the_one(*records, **options):
    (one,) = found(*records, **options).values()
    return one


def test_every_check_function_is_named_after_a_listed_finding_id():
    assert {check.__name__ for check in CHECKS} <= IDS.keys()


def test_a_healthy_fleet_has_no_finding():
    nodes = [[a_node(name), *(info(i, name) for i in range(8)), *seconds(90, range(8), name, temp_c=61.0)]
             for name in ("n1", "n2")]  # fmt: skip

    assert found(*nodes) == {}


class TestGpuErrors:
    def test_lost_gpu_is_one_error_and_its_old_metrics_give_no_findings(self):
        one = the_one(info(3), gpu(3, ecc_uncorrected_volatile=5), info(3, lost="GPU is lost"))

        assert (one.id, one.severity, one.confidence, one.culprits) == ("gpu_lost", "error", "certain", ("n1:gpu3",))
        assert "GPU is lost" in one.text
        assert one.evidence == ("gpu_info.lost n1:gpu3 GPU is lost",)

    def test_gpu_that_could_not_be_opened_is_lost_until_its_info_arrives(self):
        event = GpuEvent(node="n1", index=5, event="lost", severity="error", text="cannot open it")

        assert ("gpu_lost", "n1:gpu5") in found(event)
        assert found(event, info(5)) == {}

    def test_a_mig_device_that_was_removed_is_not_lost(self):
        assert found(info(0, parent="p", mig_index=1, lost="this MIG device was removed")) == {}

    def test_xid_requiring_a_reset_stays_an_error_until_the_node_reboots(self):
        xid = GpuEvent(node="n1", index=2, uuid="n1-2", event="xid", severity="error", xid=79,
                       text="XID 79: fallen off the bus", rx=SECOND, try_="drain it")  # fmt: skip
        much_later = gpu(2, at=90_000)
        one = the_one(info(2), xid, xid, much_later)

        assert (one.id, one.severity) == ("gpu_xid", "error")
        assert "XID 79: fallen off the bus, 2 times (drain it)" in one.text
        assert one.evidence[0].startswith("gpu_event.xid n1:gpu2 79")
        assert ("gpu_xid", "n1:gpu2") in found(info(2), xid, a_node(agent="another"))
        assert found(info(2), xid, a_node(agent="another", boot_id="new"), info(2)) == {}

    def test_driver_that_requires_no_action_any_more_clears_the_errors_that_a_reset_ends(self):
        def xid(number, severity, action, **fields):
            return GpuEvent(node="n1", uuid="n1-2", event="xid", severity=severity, text=f"XID {number}", xid=number,
                            action=action, pci_bus_id="00000000:3B:00.0", rx=SECOND, **fields)  # fmt: skip

        stopped, required = xid(119, "error", "RESET_GPU"), xid(154, "error", "RESET_GPU")
        drained, done = xid(154, "error", "XID_154"), xid(154, "info", "IGNORE")
        assert the_one(info(2), stopped, required).evidence[0].startswith("gpu_event.xid n1:gpu2 119 RESET_GPU")
        assert found(info(2), stopped, required, done) == {}
        assert "XID 154" not in the_one(info(2), stopped, drained, done).text, "nothing was reset"
        assert the_one(info(2), stopped, required, done, stopped).severity == "error"
        nowhere = [GpuEvent(node="n1", pci_bus_id="0:77:0", event="xid", severity=one.severity, xid=one.xid, text="x",
                            action=one.action) for one in (stopped, required, done)]  # fmt: skip
        assert found(*nowhere[:2]) and found(*nowhere) == {}

    def test_recovered_gpu_has_no_finding_of_an_xid_from_before(self):
        before = Log(node="n1", source="kernel", severity="error", text="Xid 119", fault="xid", subject="0000:3b:00",
                     t=SECOND, rx=SECOND)  # fmt: skip
        other = msgspec.structs.replace(before, subject="0000:3c:00")
        done = GpuEvent(node="n1", uuid="n1-2", event="xid", severity="info", text="XID 154", xid=154,
                        pci_bus_id="00000000:3B:00.0", action="IGNORE", rx=SECOND)  # fmt: skip
        assert found(info(2), before)
        assert found(info(2), before, done) == {}
        assert found(info(2), other, done)

    def test_xid_caused_by_a_program_is_a_warning_for_about_an_hour(self):
        xid = GpuEvent(node="n1", uuid="n1-2", event="xid", severity="warning", text="XID 31: x", xid=31, rx=SECOND)

        assert the_one(info(2), xid, gpu(2, at=3500)).severity == "warning"
        assert found(info(2), xid, gpu(2, at=3700)) == {}

    def test_informational_xid_gives_no_finding(self):
        assert found(GpuEvent(node="n1", uuid="n1-0", event="xid", severity="info", text="XID 45", xid=45)) == {}

    def test_two_xids_of_one_gpu_are_one_finding_with_the_higher_severity(self):
        xids = [GpuEvent(node="n1", uuid="n1-0", event="xid", severity=severity, text=f"XID {number}", xid=number)
                for number, severity in ((31, "warning"), (95, "error"))]  # fmt: skip
        one = the_one(info(0), xids)

        assert (one.severity, len(one.evidence)) == ("error", 2)

    def test_xid_at_an_unknown_pci_address_names_the_address(self):
        one = the_one(GpuEvent(node="n1", pci_bus_id="0:77:0", event="xid", severity="error", text="XID 79", xid=79))

        assert "n1:0:77:0" in one.text

    def test_recovery_action_gives_a_finding_until_the_driver_clears_it(self):
        wanted = gpu(0, recovery_action="node_reboot")

        assert "node reboot" in the_one(info(0), wanted).text
        assert found(info(0), wanted, gpu(0, at=1, recovery_action="none")) == {}

    def test_volatile_uncorrected_ecc_is_an_error_and_aggregate_alone_is_not(self):
        assert the_one(info(0), gpu(0, ecc_uncorrected_volatile=2)).severity == "error"
        assert found(info(0), gpu(0, ecc_uncorrected_volatile=0, ecc_uncorrected_aggregate=9)) == {}

    def test_corrected_ecc_errors_are_a_warning_only_above_a_rate(self):
        one = the_one(info(0), gpu(0, grown={"ecc_corrected_volatile": 11}))

        assert (one.id, one.severity) == ("gpu_ecc", "warning")
        assert found(info(0), gpu(0, grown={"ecc_corrected_volatile": 10})) == {}

    def test_gpu_that_has_to_be_replaced_is_not_to_be_reset_alone(self):
        finding = the_one(info(0), gpu(0, ecc_uncorrected_volatile=3, remap_failed=True))
        assert finding.text.endswith(
            "3 uncorrected memory errors; results may be wrong; row remapping failed; RMA the GPU"
        )
        assert len(finding.evidence) == 2

    def test_pending_remap_or_retirement_is_a_warning_and_failed_remap_an_error(self):
        assert the_one(info(0), gpu(0, remap_pending=True)).id == "gpu_remap_pending"
        assert the_one(info(0), gpu(0, retire_pending=True)).severity == "warning"
        one = the_one(info(0), gpu(0, remap_failed=True))
        assert (one.id, one.severity) == ("gpu_ecc", "error")


class TestLinks:
    def test_nvlinks_that_go_down_are_an_error_naming_the_links(self):
        links = [GpuLink(node="n1", index=0, uuid="n1-0", link=n, up=True) for n in range(18)]
        fell = [GpuLink(node="n1", index=0, uuid="n1-0", link=n, up=False) for n in (7, 8)]
        one = the_one(info(0), links, fell)

        assert (one.id, one.severity) == ("nvlink_down", "error")
        assert "NVLink 7-8 went down; 16 of 18 up" in one.text
        assert one.evidence == ("gpu_link.up link 7 n1:gpu0 False", "gpu_link.up link 8 n1:gpu0 False")

    def test_a_gpu_whose_links_are_not_all_reported_yet_is_not_compared_with_its_peers(self):
        infos = [info(index, nvlinks=12) for index in range(4)]
        links = [
            [GpuLink(node="n1", index=index, uuid=f"n1-{index}", link=n, up=True) for n in range(12)]
            for index in range(4)
        ]
        assert found(infos, *links[:3], links[3][:4]) == {}
        assert found(infos, *links) == {}

    def test_nvlink_that_was_never_up_is_detected_by_comparison_with_peers(self):
        def links(index, up):
            return [GpuLink(node="n1", index=index, uuid=f"n1-{index}", link=n, up=n < up) for n in range(12)]

        infos = [info(index, nvlinks=12) for index in range(4)]
        assert found(infos, *(links(i, 4) for i in range(4))) == {}
        one = the_one(infos, *(links(i, 12) for i in range(3)), links(3, 11))
        assert (one.culprits, "11 NVLinks up, peers have 12" in one.text) == (("n1:gpu3",), True)

    def test_nvlink_replays_are_a_warning_and_a_few_crc_errors_are_not(self):
        few = gpu(0, grown={"nvlink_crc_errors": 5000})
        assert found(info(0), few) == {}
        link = GpuLink(node="n1", index=0, uuid="n1-0", link=3, grown={"replay_errors": 1})
        one = the_one(info(0), link, gpu(0, grown={"nvlink_replay_errors": 1}))
        assert (one.id, one.severity, "1 replay on NVLink 3" in one.text) == ("nvlink_errors", "warning", True)
        assert "CRC" in the_one(info(0), gpu(0, grown={"nvlink_crc_errors": 6001})).text

    def test_reduced_pcie_width_or_generation_under_load_is_a_warning(self):
        narrow = info(0, pcie_width=8, pcie_width_max=16)
        assert "PCIe x8, GPU and slot support x16" in the_one(narrow).text
        slow = info(0, pcie_gen=1, pcie_gen_max=5)
        assert found(slow, seconds(200, util_pct=0.0)) == {}
        assert found(slow, seconds(6)) == {}, "not sampled three times since it became active"
        assert "gen 1 under load" in the_one(slow, seconds(9)).text

    def test_pcie_replays_are_a_warning_only_above_a_rate(self):
        assert "9 PCIe replays" in the_one(info(0), gpu(0, grown={"pcie_replays": 9})).text
        assert found(info(0), gpu(0, grown={"pcie_replays": 8})) == {}


class TestPorts:
    def test_port_that_goes_down_is_an_error(self):
        one = the_one(
            Nic(node="n1", device="mlx5_0", port=1, rdma=True, state="active"),
            Nic(node="n1", device="mlx5_0", port=1, rdma=True, state="down", physical_state="polling"),
        )
        assert (one.id, one.severity, one.culprits) == ("nic_down", "error", ("n1:mlx5_0",))
        assert "is down (polling); it was up" in one.text

    def test_a_port_that_vanishes_is_down(self):
        up = Nic(node="n1", device="eth0", port=0, state="up")
        assert "is gone" in the_one(up, Nic(node="n1", device="eth0", port=0, state="gone")).text

    def test_a_port_that_was_never_up_is_not_down(self):
        assert found(Nic(node="n1", device="eth1", port=0, state="down", link_downed=1)) == {}
        disabled = {"rdma": True, "state": "down", "physical_state": "disabled", "link_downed": 3}
        assert found(Nic(node="n1", device="mlx5_1", port=1, **disabled)) == {}

    def test_port_first_seen_polling_after_a_lost_link_is_likely_down(self):
        one = the_one(Nic(node="n1", device="mlx5_1", port=1, rdma=True, state="down", physical_state="polling",
                          link_downed=2))  # fmt: skip
        assert (one.confidence, one.id) == ("likely", "nic_down")

    def test_port_errors_above_a_rate_are_a_warning_and_congestion_is_not(self):
        def nic(**grown):
            return Nic(node="n1", device="mlx5_0", port=1, rdma=True, state="active", grown=grown)

        one = the_one(nic(symbol_errors=11, cnp_handled=10_000))
        assert (one.id, "11 symbol errors" in one.text, "cnp" in str(one)) == ("nic_errors", True, False)
        assert found(nic(symbol_errors=10, ecn_marked=10**6, rx_discards=10**4)) == {}
        assert "link flapped 1 time" in the_one(nic(link_downed=1)).text


HOT = {"clocks_event_share_pct": {"hw_thermal_slowdown": 50.0}, "temp_c": 91.0, "sm_clock_mhz": 990.0}


class TestThrottling:
    def test_thermal_throttling_under_load_reports_share_temperature_and_clock(self):
        one = the_one(info(0, max_sm_clock_mhz=1980.0), seconds(61, **HOT))

        assert (one.id, one.severity) == ("gpu_throttle", "warning")
        assert "temperature (hw_thermal_slowdown) for 50 % of its busy time" in one.text
        assert "91 °C; SM clock 990 of 1,980 MHz" in one.text
        assert one.evidence[0] == "gpu.clocks_event_share_pct.hw_thermal_slowdown n1:gpu0 50"

    def test_throttle_reason_without_a_counter_is_taken_from_the_sampled_reasons(self):
        assert "hw_slowdown" in the_one(info(0), seconds(61, clocks_event_reasons=("hw_slowdown",))).text

    @pytest.mark.parametrize("why", [
        {"util_pct": 0.0},
        {"clocks_event_reasons": ("gpu_idle",)},
        {"clocks_event_share_pct": {"hw_thermal_slowdown": 9.0}},
        {"clocks_event_share_pct": {"sw_power_cap": 100.0}, "clocks_event_reasons": ("sw_power_cap",)},
        {"util_pct": None},
    ])  # fmt: skip
    def test_idle_gpus_short_throttling_and_power_caps_give_no_finding(self, why):
        assert found(info(0), seconds(61, **HOT | why)) == {}

    def test_fifteen_seconds_of_throttled_work_give_no_finding(self):
        assert found(info(0), seconds(15, **HOT)) == {}

    def test_eight_seconds_of_work_throttled_all_the_time_are_a_finding_and_of_idleness_none(self):
        always = {"clocks_event_reasons": ("hw_thermal_slowdown",), "util_pct": 99.0}

        assert "(hw_thermal_slowdown) for 100 % of its busy time" in the_one(info(0), seconds(8, **always)).text
        assert found(info(0), seconds(4, **always)) == {}
        assert found(info(0), seconds(8, **always | {"util_pct": 0.0})) == {}

    def test_throttling_older_than_the_window_gives_no_finding(self):
        later = [gpu(0, at=at) for at in range(61, 140)]

        assert found(info(0), seconds(61, **HOT), later) == {}


def a_job(count, **fields):
    """`count` ranks on as many GPUs, eight per node, each active for a minute."""
    records = []
    for rank in range(count):
        node, index = f"n{rank // 8 + 1}", rank % 8
        own = {name: value(rank) if callable(value) else value for name, value in fields.items()}
        records += [info(index, node, mem_total_bytes=80 * GIB), *seconds(61, (index,), node, **own)]
        records.append(GpuProcess(node=node, index=index, uuid=f"{node}-{index}", pid=rank + 1, type="compute", job="j",
                                  rank=rank))  # fmt: skip
    return records


class TestSlowGpuAmongPeers:
    def test_gpu_with_a_slower_clock_than_its_peers_is_a_likely_straggler(self):
        one = the_one(a_job(16, sm_clock_mhz=lambda rank: 1200.0 if rank == 11 else 1900.0 + rank))

        assert (one.id, one.confidence, one.culprits) == ("gpu_straggler", "likely", ("n2:gpu3",))
        assert "SM clock 1,200 MHz, its 15 peers 1,906 MHz" in one.text

    def test_gpu_with_higher_power_than_its_peers_is_a_possible_straggler(self):
        one = the_one(a_job(8, power_w=lambda rank: 690.0 if rank == 2 else 300.0))

        assert (one.id, one.confidence) == ("gpu_straggler", "possible")
        assert "power 690 W, its 7 peers 300 W" in one.text

    def test_jobless_few_or_evenly_split_peers_give_no_straggler_finding(self):
        slow = {"sm_clock_mhz": lambda rank: 1200.0 if rank == 1 else 1900.0}
        alone = [record for record in a_job(8, **slow) if not isinstance(record, GpuProcess)]
        camps = a_job(8, sm_clock_mhz=lambda rank: 1200.0 if rank % 2 else 1900.0)

        assert found(alone) == found(a_job(3, **slow)) == found(camps) == {}

    def test_peers_of_another_model_are_not_compared(self):
        records = a_job(8, sm_clock_mhz=lambda rank: 1200.0 if rank < 4 else 1900.0)
        others = [info(index, name="A100", mem_total_bytes=80 * GIB) for index in range(4)]

        assert found(records, others) == {}

    def test_rank_using_far_more_memory_is_reported_with_peak_and_average(self):
        one = the_one(a_job(8, mem_used_bytes=lambda rank: (70 if rank == 5 else 40) * GIB))

        assert (one.id, one.culprits) == ("gpu_memory_imbalance", ("rank 5", "n1:gpu5"))
        assert "rank 5 of j uses 70.0 GiB at peak, its 7 peers 40.0 GiB" in one.text
        assert "average 70.0 GiB, peers 40.0 GiB; GPU memory 80.0 GiB" in one.text

    def test_memory_peak_between_two_samples_counts(self):
        records = a_job(8, mem_used_bytes=40 * GIB)
        spike = GpuDigest(node="n1", index=5, uuid="n1-5", samples=10, mono=60 * SECOND,
                          mem_used_bytes=Digest(40 * GIB, 41 * GIB, 75 * GIB, 40 * GIB))  # fmt: skip

        assert "75.0 GiB at peak" in the_one(records, spike).text

    def test_pipeline_stages_and_shared_gpus_are_not_a_memory_imbalance(self):
        stages = a_job(8, mem_used_bytes=lambda rank: (70 if rank < 4 else 40) * GIB)
        shared = a_job(8, mem_used_bytes=lambda rank: (70 if rank == 5 else 40) * GIB)
        shared.append(GpuProcess(node="n1", index=5, uuid="n1-5", pid=99, type="mps", job="j", rank=99))

        assert found(stages) == found(shared) == {}


class TestVersions:
    def test_node_with_a_different_driver_is_reported_with_the_majority_version(self):
        drivers = [info(0, name, driver="570.1" if name != "n3" else "550.9") for name in ("n1", "n2", "n3", "n4")]
        one = the_one(drivers)

        assert (one.id, one.severity, one.culprits) == ("version_skew", "warning", ("n3",))
        assert one.text == "n3: driver 550.9, 3 nodes have 570.1"
        assert one.evidence == ("gpu_info.driver n3 550.9",)

    def test_node_with_two_version_differences_is_one_finding(self):
        nodes = [a_node(name, kernel="6.1" if name != "n3" else "5.15") for name in ("n1", "n2", "n3")]
        infos = [info(0, node.node, cuda_driver="12.8" if node.node != "n3" else "12.4") for node in nodes]
        one = the_one(nodes, infos)

        assert "CUDA 12.4" in one.text
        assert "kernel 5.15" in one.text

    def test_version_skew_without_a_majority_reports_every_node(self):
        assert {one.culprits for one in found(a_node("n1", kernel="1"), a_node("n2", kernel="2")).values()} == {
            ("n1",), ("n2",)}  # fmt: skip

    def test_nccl_version_is_compared_between_nodes_whose_ranks_report_it(self):
        def rank(node, version):
            return Rank(node=node, job="j", rank=0, pid=1, start_ticks=1, source="environ", nccl=version)

        one = the_one(rank("n1", "2.21.5"), rank("n2", "2.21.5"), rank("n3", "2.18.3"), a_node("n4"))
        assert (one.culprits, one.evidence) == (("n3",), ("rank.nccl n3 2.18.3",))

    def test_removed_node_is_excluded_from_the_version_comparison(self):
        nodes = [a_node("n1"), a_node("n2"), a_node("n3", kernel="other")]

        assert found(nodes, NodeState(node="n3", state="removed")) == {}


def test_findings_of_simulated_gpus_are_marked_sim():
    one = the_one(info(0, simulated=True), gpu(0, ecc_uncorrected_volatile=1, simulated=True))

    assert one.text.startswith("SIM n1:gpu0: ")
    assert one.evidence == ("SIM gpu.ecc_uncorrected_volatile n1:gpu0 1",)


def ticks(*ahead_s, agent="a", first=0):
    """One tick per second of a node with CLOCK_REALTIME ahead of its raw clock by these seconds."""
    return [
        AgentCost(node="n1", agent=agent, mono=at * SECOND, t=int((at + ahead) * SECOND), rx=at * SECOND,
                  sample_interval_ms=1000)
        for at, ahead in enumerate(ahead_s, first)
    ]  # fmt: skip


class TestClockStep:
    def test_forward_clock_step_of_an_hour_is_a_warning(self):
        one = the_one(ticks(0, 0, 3600, 3600))
        assert (one.id, one.severity, one.culprits) == ("clock_step", "warning", ("n1",))
        assert "stepped by +3,600.000 s" in one.text
        assert one.evidence == ("agent_cost.t n1 +3,600.000 s against agent_cost.mono",)

    def test_backward_clock_step_is_reported_with_its_sign(self):
        assert "stepped by -0.250 s" in the_one(ticks(0, 0, -0.25, -0.25)).text

    def test_clock_step_finding_clears_after_the_window(self):
        aged = LIMITS.window_s + 5
        assert found(ticks(0, 3600, 3600), ticks(3600, first=int(aged))) == {}

    @pytest.mark.parametrize("ahead_s", [
        pytest.param((0, 0.0005, 0.001, 0.0015, 0.002), id="slewed clock"),
        pytest.param((0, 0, 0.3, 0, 0), id="one delayed read"),
        pytest.param((0, 0.3, 0, 0.6, 0), id="several reads with different delays"),
        pytest.param((3600,), id="single tick"),
    ])  # fmt: skip
    def test_slewing_delayed_reads_and_a_single_tick_are_not_clock_steps(self, ahead_s):
        assert found(ticks(*ahead_s)) == {}

    def test_clock_slewed_during_an_agent_pause_is_not_a_step(self):
        assert found(ticks(0, 0), ticks(0.25, 0.25, first=1000)) == {}
        assert "+0.700 s" in the_one(ticks(0, 0), ticks(0.7, 0.7, first=1000)).text

    def test_offset_change_between_two_agent_incarnations_is_not_a_step(self):
        assert found(ticks(0, 0), ticks(100, 100, agent="b", first=2)) == {}


def kernel_log(
    fault, subject="", *, rx=100 * SECOND, age_s=0, over=False, severity="error", node="n1", text="a message"
):
    at = rx - int(age_s * SECOND)
    return Log(node=node, source="kernel", severity=severity, text=text, fault=fault, subject=subject or None,
               t=rx, rx=rx, at=at, is_over=over)  # fmt: skip


class TestKernelFaults:
    def test_fault_of_the_last_hour_is_a_warning_with_its_message_and_time(self):
        one = the_one(kernel_log("oom_kill", "python3", age_s=40, text="Killed process 4711 (python3)"))
        assert (one.id, one.severity, one.culprits) == ("kernel_fault", "warning", ("n1", "oom_kill python3"))
        expected = (
            "a process was killed for lack of memory at 1970-01-01T00:01:00.000000Z: Killed process 4711 (python3)"
        )
        assert expected in one.text

    @pytest.mark.parametrize(
        "fault", ["segfault", "oom_kill_in_cgroup", "link", "thermal", "ecc_corrected", "pcie_corrected"]
    )
    def test_fault_that_need_not_concern_the_job_is_only_an_event(self, fault):
        assert not found(kernel_log(fault))

    def test_old_fault_is_only_an_event(self):
        assert not found(kernel_log("disk", "sda", age_s=3700))
        assert not found(kernel_log("disk", "sda"), gpu(at=3800))
        assert found(kernel_log("disk", "sda", age_s=1700), gpu(at=1900))

    def test_server_that_responds_again_is_no_longer_a_finding(self):
        lost, back = kernel_log("nfs", "filer01"), kernel_log("nfs", "filer01", over=True, severity="info")
        assert not found(lost, back)
        assert found(lost, kernel_log("nfs", "filer02", over=True)), "that was another server"
        assert found(lost, back, lost)

    def test_repeated_fault_is_one_finding_with_its_count(self):
        one = the_one(kernel_log("disk", "sda"), kernel_log("disk", "sda"), kernel_log("disk", "sda"))
        assert "a disk reported errors, 3 times at " in one.text

    def test_xid_from_before_is_a_finding_only_if_the_gpu_needs_attention(self):
        assert found(kernel_log("xid", "0000:3b:00", severity="error"))
        assert not found(kernel_log("xid", "0000:3b:00", severity="warning"))

    def test_minor_xid_after_a_serious_one_from_before_does_not_hide_it(self):
        serious, minor = (kernel_log("xid", "0000:3b:00", severity=severity) for severity in ("error", "info"))
        over = kernel_log("xid", "0000:3b:00", severity="info", over=True)
        assert found(serious, minor)
        assert not found(serious, over)
        assert not found(serious, over, minor)

    def test_error_of_an_agent_is_a_finding_of_its_node_also_without_a_text(self):
        for text in ("sampler x failed: Traceback\n  ValueError: y", "", " \n"):
            found_ids = {id for id, *_ in found(Log(node="n1", source="agent", severity="error", text=text))}
            assert found_ids == {"agent_error"}

    def test_log_of_another_source_is_none(self):
        assert not found(Log(node="n1", source="agent", severity="warning", text="disk", fault="disk"))

    def test_flood_of_kinds_of_faults_keeps_the_newest(self):
        faults = [kernel_log("disk", f"sd{number}") for number in range(600)]
        assert [culprits for _, *culprits in found(*faults)] == [["n1", f"disk sd{n}"] for n in range(592, 600)]


def a_rank(rank=3, *, pid=4711, node="n1", at_s=50, start_s=10, status="present", job="llama", size=4, **fields):
    at = int(at_s * SECOND)
    return Rank(node=node, job=job, rank=rank, world_size=size, pid=pid, start_ticks=start_s * 100, source="environ",
                status=status, t=at, mono=at, rx=at, **fields)  # fmt: skip


class TestRanksNamedByTheKernel:
    def killed(self, *records, fault="oom_kill_in_cgroup", at_s=99.0, pid=4711):
        log = kernel_log(fault, "python3")
        log = msgspec.structs.replace(log, pid=pid, at=int(at_s * SECOND))
        facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
        facts.add(sorted([*records, log], key=lambda record: record.rx))
        return [draft for draft in health_findings(facts, LIMITS) if draft.id == "kernel_fault"]

    @pytest.mark.parametrize("fault", ["oom_kill_in_cgroup", "oom_kill", "segfault"])
    def test_kill_of_a_rank_that_is_gone_is_a_finding_that_names_it(self, fault):
        [one] = self.killed(a_rank(), a_rank(status="exited", at_s=100), fault=fault)
        assert one.text.endswith("; it was rank 3 of llama")
        assert one.victims == ("rank 3",)

    def test_kill_of_a_process_below_a_rank_names_the_rank(self):
        worker = Process(node="n1", pid=4711, start_ticks=1, ppid=1, uid=0, comm="python3", role="dataloader_worker",
                         job="llama", rank=3, t=50 * SECOND, rx=50 * SECOND)  # fmt: skip
        [one] = self.killed(worker, msgspec.structs.replace(worker, gone=True, t=100 * SECOND, rx=100 * SECOND))
        assert one.text.endswith("; it was a process below rank 3 of llama")

    @pytest.mark.parametrize(
        "records",
        [
            [],
            [a_rank(pid=4712)],
            [a_rank(node="n2")],
            [a_rank(), a_rank(status="exited", at_s=60)],  # had ended before
            [a_rank(), a_rank(status="exited", at_s=300)],  # lived on
            [a_rank(at_s=110, start_s=105)],  # started after the kill: the pid was used again
            [a_rank(status="exited", at_s=100)],
            [a_rank(), gpu(at=400)],
        ],
        ids=["none", "pid", "node", "before", "later", "reused", "unseen", "alive"],
    )  # fmt: skip
    def test_process_that_cannot_have_been_a_rank_is_none(self, records):
        assert self.killed(*records) == []

    def test_fault_of_the_machine_stays_a_finding_without_a_rank(self):
        [one] = self.killed(a_rank(pid=1), fault="oom_kill")
        assert one.victims == () and "rank" not in one.text


def a_boot(node="n1", at_s=1000.0, rx_s=1010.0, severity="warning"):
    return Log(node=node, source="boot", severity=severity, text="the node booted without a shutdown before",
               fault="reboot", at=int(at_s * SECOND), t=int(rx_s * SECOND), rx=int(rx_s * SECOND))  # fmt: skip


class TestReboots:
    def rebooted(self, *records):
        facts = HealthState(LIMITS.window_s, LIMITS.busy_pct)
        facts.add(records)
        return [draft for draft in health_findings(facts, LIMITS) if draft.id == "node_rebooted"]

    def test_reboot_under_a_job_while_watched_is_an_error_with_its_ranks(self):
        [one] = self.rebooted(
            a_node(agent="a"), a_rank(2, pid=10), a_rank(3), a_node(agent="b", boot_id="c"), a_boot(),
        )  # fmt: skip
        assert (one.severity, one.confidence, one.culprits, one.victims) == (
            "error", "certain", ("n1",), ("rank 2", "rank 3"),
        )  # fmt: skip
        assert "while 2 ranks of llama ran there: the node booted without a shutdown" in one.text

    def test_reboot_of_an_idle_node_and_a_new_agent_are_none(self):
        assert not self.rebooted(a_node(agent="a"), a_node(agent="b", boot_id="c"), a_boot())
        assert not self.rebooted(a_node(agent="a"), a_rank(), a_node(agent="b"), a_boot())
        ended = a_rank(status="exited", at_s=60)
        assert not self.rebooted(a_node(agent="a"), a_rank(), ended, a_node(agent="b", boot_id="c"), a_boot())

    def test_reboot_before_the_console_came_concerns_a_job_that_lacks_ranks_since(self):
        others = [a_rank(rank, node=f"n{rank + 2}", at_s=1005, start_s=100) for rank in range(3)]
        [one] = self.rebooted(a_boot(), *others)
        assert (one.severity, one.confidence, one.culprits) == ("info", "possible", ("n1",))
        assert "while llama ran on other nodes; it may have been part of it, as the job lacks 1 rank:" in one.text

    @pytest.mark.parametrize(
        "records",
        [
            [a_rank(rank, node="n2", pid=rank + 1, at_s=1005, start_s=100) for rank in range(4)],  # none is missing
            [a_rank(0, node="n2", at_s=1005, start_s=1002)],  # started after the boot
            [a_rank(0, node="n2", at_s=1005, start_s=960)],  # too close to it to be sure
            [a_rank(0, node="n1", at_s=1005, start_s=100)],  # ranks live on the node itself
            [a_rank(0, node="n2", at_s=1005, start_s=100, size=None)],
            [],
        ],
        ids=["complete", "later", "close", "here", "size", "no job"],
    )  # fmt: skip
    def test_reboot_that_need_not_concern_the_job_is_only_an_event(self, records):
        assert not self.rebooted(a_boot(), *records)


class TestServiceFaults:
    def test_failed_service_is_a_warning_until_it_starts(self):
        failed = msgspec.structs.replace(kernel_log("service_failed", "slurmd.service"), source="journal")
        assert list(found(failed)) == [("service_fault", "n1", "service_failed slurmd.service")]
        assert not found(failed, msgspec.structs.replace(failed, is_over=True, severity="info"))

    def test_state_in_slurm_is_a_finding_only_if_jobs_are_lost(self):
        down = msgspec.structs.replace(kernel_log("slurm_node", "n1"), source="slurm")
        assert found(down)
        assert not found(msgspec.structs.replace(down, severity="warning"))

    @pytest.mark.parametrize("source", ["kmsg", "core", "kubernetes", "console"])
    def test_other_sources_are_events(self, source):
        assert not found(msgspec.structs.replace(kernel_log("oom_kill", "python3"), source=source))

    def test_message_of_an_earlier_boot_does_not_end_a_fault_of_this_one(self):
        assert found(kernel_log("nfs", "a", age_s=10), kernel_log("nfs", "a", over=True, age_s=50))


class TestRecordsMissing:
    def test_cut_is_an_info_that_counts_what_is_missing_and_ages(self):
        cut = Gap(node="n1", source="link", reason="no agent for 12 s: the one before ended", count=11, rx=100 * SECOND)
        later = NodeState(node="n2", state="ok", rx=101 * SECOND)

        finding = found(a_node(), cut, later)["records_missing", "n1"]

        assert (finding.severity, finding.culprits) == ("info", ("n1",))
        assert finding.text == "n1: 11 ticks or records are missing: no agent for 12 s: the one before ended"
        long_after = NodeState(node="n2", state="ok", rx=(101 + int(LIMITS.window_s)) * SECOND)
        assert ("records_missing", "n1") not in found(a_node(), cut, long_after)

    @pytest.mark.parametrize(("node", "source"), [("", "recording night"), ("n1", "sampler:host"), ("n1", "limit")])
    def test_gaps_of_samplers_limits_and_the_console_are_not_of_a_node(self, node, source):
        gap = Gap(node=node, source=source, reason="x", count=1, rx=100 * SECOND)
        assert "records_missing" not in {name for name, *_ in found(a_node(), gap)}
