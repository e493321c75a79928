"""The table of node checks: each passes, fails, is unknown or absent."""

import msgspec
import pytest

from gconsole.analysis.checks.resources import cpus_of, job_key, usual_of_jobs
from gconsole.analysis.checks.result import NodeFacts, Usual
from gconsole.analysis.checks.settings import gbits, usual_settings
from gconsole.analysis.checks.table import CHECKS, run_checks
from gconsole.analysis.finding import IDS
from gconsole.analysis.health import CHECKS as HEALTH
from gconsole.records import (
    Capacity,
    ClockSource,
    Finding,
    Gpu,
    GpuInfo,
    Host,
    Inventory,
    Log,
    Missing,
    Nic,
    Node,
    NodeSetting,
    RankSetting,
)

GIB = 1 << 30
SECOND, DAY_S, NOW = 10**9, 86_400.0, 1_790_000_000 * 10**9
#: Health findings that fail no check: of a job or the console, not of a node; and heat, which a check measures itself.
WITHOUT_CHECK = {"launcher_waits", "gpu_memory_imbalance", "console_late", "gateway_lost", "gpu_hot", "records_missing"}


SETTINGS = {
    ("service", "slurmd"): "active", ("service", "nvidia-persistenced"): "active", ("service", "chrony"): "active",
    ("service", "chronyd"): "enabled", ("module", "nvidia"): "570.1", ("module", "nvidia_peermem"): "loaded",
    ("nvidia_modules", ""): "proprietary", ("virtual_machine", ""): "no", ("acs", ""): "no redirects",
    ("governor", ""): "performance", ("cpu_driver", ""): "acpi-cpufreq", ("pci_width", "0000:18:00.0"): "x16 of x16",
    ("memory_errors", "mc0"): "0", ("boots_in_a_day", ""): "1", ("nic_rate", "mlx5_0/1"): "400 Gb/sec (4X NDR)",
    ("nic_pkey", "mlx5_0/1"): "0xffff", ("sysctl", "vm.swappiness"): "60", ("iommu", ""): "identity, DMA-FQ",
    ("pci_devices", "gpu"): "2", ("pci_devices", "network"): "4", ("pci_devices", "nvme"): "8",
}  # fmt: skip
CAPACITIES = [
    Capacity(type="file_system", path="/", fstype="ext4", source="/dev/sda1", is_writable=True, was_writable=True,
             total_bytes=1 << 40, available_bytes=1 << 39, inodes=1 << 24, inodes_available=1 << 23, stat_ms=0.1),
    Capacity(type="file_system", path="/data", fstype="nfs4", source="nas:/data", is_network=True, is_writable=True,
             was_writable=True, total_bytes=1 << 50, available_bytes=1 << 49, requests_s=900.0, retransmits_s=0.0,
             queued_s=3.0),
    Capacity(type="file_system", path="/dev/shm", fstype="tmpfs", is_writable=True, was_writable=True,
             total_bytes=64 << 30, available_bytes=60 << 30, growth_bytes_s=1e6),
    Capacity(type="cgroup_memory", path="/job", total_bytes=64 << 30, available_bytes=30 << 30, growth_bytes_s=0.0),
]  # fmt: skip


def ranks(*environments, **fields):
    """Settings of ranks of one job, with pids from 100."""
    return [
        RankSetting(job="train", rank=number, pid=100 + number, start_ticks=1, environment=environment,
                    **({"memlock_bytes": -1, "open_files": 65536, "open_files_pct": 10.0, "cpus": "0-7"} | fields))
        for number, environment in enumerate(environments)
    ]  # fmt: skip


def facts(**fields):
    """A healthy node with two GPUs behind NVLinks, watched for a minute."""
    info = GpuInfo(index=0, uuid="a", persistence=True, ecc_mode=True, nvlinks=18, fabric_state="completed",
                   pcie_width=16, temp_slowdown_c=95.0, cpu_affinity="0-3", app_sm_clock_mhz=1980.0,
                   app_sm_clock_default_mhz=1980.0)  # fmt: skip
    gpu = Gpu(index=0, uuid="a", temp_c=60.0, mem_used_bytes=40 * GIB, util_pct=97.0, sm_clock_mhz=1980.0,
              ecc_uncorrected_volatile=0, remap_pending=False, remapped_rows_corrected=0,
              remapped_rows_uncorrected=0)  # fmt: skip
    other = (msgspec.structs.replace(info, index=1, uuid="b"), msgspec.structs.replace(gpu, index=1, uuid="b"))
    node = Node(hostname="n1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1, cpus=8,
                mem_total_bytes=64 * GIB, sample_interval_ms=1000)  # fmt: skip
    host = Host(mem_available_bytes=32 * GIB, mem_stall_pct=0.0, load_1m=8.0, uptime_s=DAY_S)
    host.t = NOW
    healthy = {
        "about": node, "host": host, "gpus": [(info, gpu), other], "nics": [Nic(device="eth0", port=0, state="up")],
        "inventory": {"gpu": Inventory(of="gpu", count=2)}, "occupied": frozenset({"a", "b"}), "watched_s": 60.0,
        "nodes": 4, "settings": SETTINGS, "usual": {key: Usual(value, 8, 8) for key, value in SETTINGS.items()},
        "capacities": CAPACITIES, "rank_settings": ranks(*[{"NCCL_ALGO": "Ring"}] * 4),
        "clock": ClockSource(daemon="chrony", synced=True), "gpu_of": {100: "a", 101: "b"},
    }  # fmt: skip
    known = healthy | fields
    return NodeFacts("n1", **{"usual_of_jobs": usual_of_jobs(known["rank_settings"])} | known)


def setting(name, value, subject=""):
    """The healthy node with another value of a setting."""
    return facts(settings=SETTINGS | {(name, subject): value})


def capacity(path, **fields):
    """The healthy node with other figures of one file system or cgroup."""
    return facts(capacities=[msgspec.structs.replace(it, **fields) if it.path == path else it for it in CAPACITIES])


def a_finding(id, text):
    return Finding(id=id, severity="warning", confidence="certain", culprits=("n1",), text=text, first_seen=1)


def a_fault(name, age_s, text="something is broken", **fields):
    """A message of the kernel log of that age."""
    return Log(source="kernel", severity="error", fault=name, text=text, at=NOW - int(age_s * SECOND), **fields)


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
    (changed(app_sm_clock_mhz=1200.0), "gpu_application_clock", "gpu1 application clock 1,200 MHz, default 1,980 MHz"),
    (changed(temp_c=93.0), "gpu_temperature", "gpu1 93 °C"),
    (changed(mem_temp_c=110.0), "gpu_temperature", "memory 110 °C"),
    (facts(occupied=frozenset({"a"})), "gpu_memory_held", "gpu1 40.0 GiB held by no process"),
    (facts(occupied=frozenset({"a"})), "gpu_busy_without_process", "gpu1 97 % busy without a process"),
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
    bare = facts(
        gpus=[],
        nics=[],
        nodes=1,
        settings={},
        capacities=[],
        rank_settings=[],
        usual={},
        inventory={of: Inventory(of=of, count=0) for of in ("gpu", "nic")},
    )
    result = states(bare)

    assert {
        result[id]
        for id in ("gpu_driver", "gpu_count", "gpu_reachable", "gpu_ecc", "nvlink_state", "nic_state", "topology")
    } == {"absent"}
    assert {result[id] for id in ("nfs_resent", "cgroup_memory", "ib_pkey", "rank_affinity", "settings_differ")} == {
        "absent"
    }
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


@pytest.mark.parametrize(("of", "id", "words"), [
    (setting("service", "enabled", "slurmd"), "service_state", "slurmd.service is enabled but does not run"),
    (facts(settings={key: value for key, value in SETTINGS.items() if key[1] != "nvidia_peermem"}), "gpudirect_rdma",
     "nvidia_peermem is not loaded"),
    (setting("acs", "redirects on 0000:20:00.0"), "pcie_acs", "0000:20:00.0"),
    (setting("governor", "powersave"), "cpu_governor", "powersave with acpi-cpufreq"),
    (setting("pci_width", "x8 of x16", "0000:18:00.0"), "pcie_width", "0000:18:00.0 x8 of x16 lanes"),
    (setting("memory_errors", "2", "mc0"), "memory_errors", "2 uncorrected errors on mc0"),
    (setting("boots_in_a_day", "5"), "boot_count", "5 boots"),
    (setting("nic_pkey", "0x7fff", "mlx5_0/1"), "ib_pkey", "0x7fff at index 0"),
    (setting("nic_rate", "200 Gb/sec (4X HDR)", "mlx5_0/1"), "nic_rate", "400 Gb/sec (4X NDR) on 8 of 8 nodes"),
    (facts(clock=ClockSource(daemon="chrony", synced=False, text="no source")), "clock_sync", "chrony is not"),
    (setting("iommu", "DMA, DMA-FQ"), "iommu", "IOMMU of type DMA, DMA-FQ"),
    (setting("pci_devices", "7", "nvme"), "pci_devices", "7 NVMe controllers, 8 on 8 of 8 nodes of its class"),
    (facts(settings={key: value for key, value in SETTINGS.items() if key[1] != "network"}), "pci_devices",
     "0 network controllers, 4 on 8 of 8"),
    (setting("pci_no_driver", "mlx5_core on 7 of its kind", "0000:18:00.0"), "pci_devices",
     "0000:18:00.0 has no driver, mlx5_core on 7 of its kind"),
    (facts(host=Host(uptime_s=90.0)), "uptime", "booted 1 min 30 s ago"),
    (setting("sysctl", "1", "vm.swappiness"), "settings_differ", "sysctl vm.swappiness: 1, 60 on 8 of 8 nodes"),
    (changed(remapped_rows_corrected=400, remapped_rows_uncorrected=60), "gpu_remap_limit", "460 of 512 rows"),
    (facts(left_over={"rank 3 of train (pid 9, a zombie)": "gpu1"}), "gpu_left_over", "a zombie) holds gpu1"),
    (capacity("/", available_bytes=1 << 30), "disk_space", "/ has 1.0 GiB of 1.0 TiB left"),
    (capacity("/", inodes_available=9), "disk_inodes", "/ can hold 9 more files"),
    (capacity("/", is_writable=False), "disk_read_only", "/ (/dev/sda1) became read-only"),
    (capacity("/data", hung_s=12.0), "disk_answer", "/data (nas:/data) has not answered for 12 s"),
    (capacity("/data", error="Stale file handle"), "disk_answer", "Stale file handle"),
    (capacity("/data", retransmits_s=30.0), "nfs_resent", "3.3 % of the requests are sent again"),
    (capacity("/data", queued_s=2700.0), "nfs_slots", "300 requests wait for a slot for each 100"),
    (capacity("/dev/shm", available_bytes=6 << 30, growth_bytes_s=float(64 << 20)), "shared_memory",
     "6.0 GiB of 64.0 GiB left in /dev/shm, at 64.0 MiB/s for another 1 min 36 s"),
    (capacity("/dev/shm", available_bytes=0), "shared_memory", "0 B of 64.0 GiB left in /dev/shm"),
    (capacity("/job", available_bytes=1 << 30), "cgroup_memory", "1.0 GiB of 64.0 GiB left below the limit of /job"),
    (facts(rank_settings=ranks({}, memlock_bytes=64 << 10)), "rank_memlock", "rank 0 may lock 64.0 KiB"),
    (facts(rank_settings=ranks({}, open_files_pct=90.0)), "rank_open_files", "90 % of 65536 open files"),
    (facts(rank_settings=ranks(*[{"NCCL_ALGO": "Ring"}] * 3, {})), "rank_environment",
     "rank 3: NCCL_ALGO not set, Ring on 3 of 4 ranks"),
    (facts(rank_settings=ranks(*[{}] * 3, {"OMP_NUM_THREADS": "1"})), "rank_environment",
     "rank 3: OMP_NUM_THREADS 1, not set on 3 of 4 ranks"),
    (facts(rank_settings=ranks({}, cpus="4-7")), "rank_affinity", "rank 0 runs on CPUs 4-7, none of them near"),
    (facts(rank_settings=ranks({}, {}, cpus="0")), "rank_affinity", "ranks 0-1 share 1 CPU (0)"),
])  # fmt: skip
def test_broken_setting_or_resource_fails_its_check_alone(of, id, words):
    assert set(failed(of)) <= {id, "settings_differ"}
    assert words in failed(of)[id]


@pytest.mark.parametrize("of", [
    facts(settings=SETTINGS | {("governor", ""): "powersave", ("cpu_driver", ""): "intel_pstate"}, usual={}),
    facts(settings=SETTINGS | {("virtual_machine", ""): "yes", ("acs", ""): "redirects on 0000:20:00.0"}, usual={}),
    facts(settings=SETTINGS | {("service", "nvidia-imex"): "enabled"}, usual={}),  # no NVLink across nodes
    facts(settings=SETTINGS | {("nic_rate", "mlx5_0/1"): "25 Gb/sec (1X EDR)", ("module", "nvidia_peermem"): "absent"},
          usual={}),  # a management port
    capacity("/", available_bytes=30 << 30),  # 3 % of 1 TiB, and still 30 GiB
    capacity("/", inodes=None, inodes_available=None),
    capacity("/", is_writable=False, was_writable=False),  # mounted read-only on purpose
    capacity("/data", retransmits_s=0.01, requests_s=0.02),  # an idle mount
    capacity("/dev/shm", growth_bytes_s=1e12),  # it is nearly empty
    capacity("/job", growth_bytes_s=-5e8),
    facts(rank_settings=ranks({}, memlock_bytes=64 << 10), privileged=frozenset({(100, 1)})),
    facts(rank_settings=ranks({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "x"}, *[{}] * 7)),
    facts(rank_settings=ranks(*[{"CUDA": "1", "UCX_NET_DEVICES": f"mlx5_{index}"} for index in range(8)])),
    facts(rank_settings=ranks(*[{}] * 16, cpus="0-7")),  # the whole node
    facts(rank_settings=ranks(*[{"OMP_NUM_THREADS": str(index)} for index in range(8)])),  # no majority
])  # fmt: skip
def test_what_is_meant_or_harmless_fails_no_check(of):
    assert failed(of) == {}


@pytest.mark.parametrize("name", [
    "xid", "sxid", "nic", "pcie_uncorrected", "machine_check", "hung_task", "oom_kill", "nfs", "disk", "thermal",
    "file_system", "ecc_uncorrected", "lockup", "gpu_driver",
])  # fmt: skip
def test_fault_since_the_boot_is_shown_after_the_hour_and_is_no_reason_to_fail(name):
    old = [a_fault(name, 3 * 3600), a_fault(name, 2 * 3600, "it is broken again"), a_fault(name, 7200, is_over=True)]
    (result,) = [result for result in run_checks(facts(faults=old)) if result.state == "fail"]

    assert (result.id, result.severity) == ("kernel_since_boot", "info")
    assert "(2 messages, the last at 2026-09-21T" in result.text
    assert result.text.endswith("Z): it is broken again") and result.remedy


@pytest.mark.parametrize("fault", [
    a_fault("machine_check", 60),  # a finding is about it
    a_fault("machine_check", DAY_S + 3600),  # of an earlier boot
    a_fault("machine_check_corrected", 7200), a_fault("segfault", 7200), a_fault("nfs", 7200, is_over=True),
    a_fault("link", 7200), a_fault(None, 7200),
])  # fmt: skip
def test_new_earlier_corrected_and_harmless_messages_are_not_shown_as_faults_since_the_boot(fault):
    assert failed(facts(faults=[fault])) == {}


def test_heat_is_shown_at_once_and_a_message_that_a_later_agent_reports_again_counts_once():
    faults = [a_fault("thermal", 60, subject="CPU3"), a_fault("thermal", 60, subject="CPU3")]

    assert "too hot (1 message," in failed(facts(faults=faults))["kernel_since_boot"]
    assert states(facts(host=None, faults=faults))["kernel_since_boot"] == "unknown"


@pytest.mark.parametrize(("of", "id"), [
    (setting("virtual_machine", "yes"), "iommu"),
    (facts(about=msgspec.structs.replace(facts().about, arch="aarch64")), "iommu"),
    (setting("nic_rate", "25 Gb/sec (1X EDR)", "mlx5_0/1"), "iommu"),
])  # fmt: skip
def test_iommu_is_judged_on_machines_where_network_ports_reach_gpus(of, id):
    assert states(of)[id] == "absent"


def test_number_of_devices_is_judged_on_nodes_with_gpus_and_unknown_without_settings():
    fewer = SETTINGS | {("pci_devices", "nvme"): "1"}

    assert (
        states(facts(settings=fewer, gpus=[], inventory={"gpu": Inventory(of="gpu", count=0)}))["pci_devices"] == "pass"
    )
    assert states(facts(settings=SETTINGS | {("pci_devices", "nvme"): "9"}))["pci_devices"] == "pass"
    assert states(facts(settings={}))["pci_devices"] == "unknown"


def test_majority_is_of_the_class_and_of_at_least_three_nodes():
    values = {"a1": "0", "a2": "0", "a3": "1", "b1": "1", "b2": "0"}
    settings = [NodeSetting(node=node, name="sysctl", subject="x", value=value) for node, value in values.items()]

    usual = usual_settings({node: node[0] for node in values}, settings)

    assert usual == {"a": {("sysctl", "x"): Usual("0", 2, 3)}}


def test_majority_of_ranks_is_of_one_attempt_of_one_job():
    old = [msgspec.structs.replace(rank, attempt=0) for rank in ranks(*[{"NCCL_ALGO": "Tree"}] * 4)]
    new = [msgspec.structs.replace(rank, attempt=1) for rank in ranks(*[{"NCCL_ALGO": "Ring"}] * 4)]

    usual = usual_of_jobs([*old, *new])

    assert usual[job_key(old[0])]["NCCL_ALGO"] == Usual("Tree", 4, 4)
    assert usual[job_key(new[0])]["NCCL_ALGO"] == Usual("Ring", 4, 4)


@pytest.mark.parametrize(("text", "cpus"), [
    ("0-2,8", {0, 1, 2, 8}), ("5", {5}), ("", set()), ("a-b", set()), ("0-99999999", set()), ("3-1", set()),
    ("²", set()),
])  # fmt: skip
def test_cpu_list_is_parsed_or_empty(text, cpus):
    assert cpus_of(text) == cpus


def test_rate_is_read_from_the_words_of_the_kernel():
    assert (gbits("400 Gb/sec (4X NDR)"), gbits("2.5 Gb/sec (1X SDR)"), gbits("fast")) == (400.0, 2.5, None)
