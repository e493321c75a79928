"""GPU topology, through pynvml and the fake NVML, with a fake sysfs."""

import pynvml
import pytest
from fake_proc import check
from nvml import scenarios
from nvml.library import Scenario, load

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.topology import TopologySampler


class StartedTopologySampler:
    def __init__(self, scenario, sys):
        self.scenario = scenario
        context = Context()
        context.sys = str(sys)
        context.import_nvml = lambda: pynvml
        self.sampler = TopologySampler(context)
        self.now = 1000.0
        self.sampler.start()

    def tick(self, seconds=61.0):
        """The `link` records of one sample, by default a minute after the last one."""
        self.now += seconds
        return [check(kind, fields) for kind, fields in self.sampler.tick(self.now) if kind == "link"]

    def uuid(self, index):
        return f"GPU-0000000{index}-aaaa-bbbb-cccc-000000000000"


@pytest.fixture
def watch(tmp_path, monkeypatch):
    load()
    started = []

    def start(lines):
        scenario = Scenario(tmp_path / "scenario", lines)
        monkeypatch.setenv("NVML_SCENARIO", str(scenario.path))
        started.append(StartedTopologySampler(scenario, tmp_path / "sys"))
        return started[-1]

    yield start
    for started_sampler in started:
        started_sampler.sampler.stop()


def of_type(links, kind):
    return [link for link in links if link.type == kind]


def pci_device(sys, chain, numa=0, speed="32.0 GT/s PCIe", width=16, **files):
    """A device below these bridges (addresses from the root port down, the device's own last)."""
    device = sys / "devices/pci0000:00"
    for address in chain:
        device = device / address
        device.mkdir(parents=True, exist_ok=True)
        for name in ("current_link_speed", "max_link_speed"):
            (device / name).write_text(f"{speed}\n")
        for name in ("current_link_width", "max_link_width"):
            (device / name).write_text(f"{width}\n")
        (device / "numa_node").write_text(f"{numa}\n")
    (device / "local_cpulist").write_text("0-51\n")
    for name, text in files.items():
        (device / name).write_text(f"{text}\n")
    devices = sys / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / chain[-1]).symlink_to(device)
    return device


def rdma(sys, name, device):
    port = sys / "class/infiniband" / name / "ports/1"
    port.mkdir(parents=True)
    (port.parent.parent / "device").symlink_to(device)


def test_nvswitches_without_an_address_are_one_edge_without_an_id(watch):
    """The driver of some GPUs has a placeholder as the address of each switch."""
    lines = scenarios.hgx_h100() | {f"gpu.remote_pci.{link}": "FFFFFFFF:FF:FF.0" for link in range(18)}

    links = of_type(watch(lines).tick(), "nvlink")

    assert {(link.b.kind, link.b.id, len(link.links)) for link in links} == {("switch", "", 18)}
    assert "does not report the address" in links[0].unsupported["b.id"]


def test_nvlinks_to_four_switches_are_four_edges_per_gpu(watch):
    sampler = watch(scenarios.hgx_h100())

    links = of_type(sampler.tick(), "nvlink")

    links_of_gpu = [link for link in links if link.a.id == sampler.uuid(3)]
    assert len(links) == 32
    assert [(link.b.kind, link.b.id, len(link.links)) for link in links_of_gpu] == [
        ("switch", "0000:05:00.0", 5), ("switch", "0000:06:00.0", 5),
        ("switch", "0000:07:00.0", 4), ("switch", "0000:08:00.0", 4)]  # fmt: skip
    assert all((link.up, link.version, link.speed_bytes_s) == (link.links, 4, 26562e6) for link in links_of_gpu)
    assert all(link.unsupported == {} for link in links_of_gpu)


def test_every_gpu_pair_has_its_ancestor_and_p2p_status(watch):
    sampler = watch(scenarios.pcie_only())

    peers = of_type(sampler.tick(), "peer")

    assert [link.ancestor for link in peers] == ["NODE", "SYS", "SYS", "SYS", "SYS", "NODE"]
    assert {(link.read, link.write, link.atomics) for link in peers} == {("chipset_not_supported",) * 3}


def test_bridged_gpus_have_nvlinks_only_to_their_partner(watch):
    sampler = watch(scenarios.bridged())

    links = sampler.tick()

    assert {(link.a.id, link.b.id, len(link.up)) for link in of_type(links, "nvlink")} == {
        (sampler.uuid(index), sampler.uuid(index ^ 1), 12) for index in range(4)}  # fmt: skip
    assert [link.nvlink for link in of_type(links, "peer")] == ["ok", *["not_supported"] * 4, "ok"]


def test_unchanged_topology_is_sent_once_and_a_downed_link_again(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    assert sampler.tick() == []
    sampler.scenario.change({"gpu2.field.165@5": "u32:0", "gpu2.field.164@5": "u32:0", "gpu2.remote_type.5": 255})

    assert sampler.tick(10.0) == []
    (link,) = sampler.tick()

    assert (link.a.id, link.b.id) == (sampler.uuid(2), "0000:06:00.0")
    assert (link.links, link.up, link.speed_bytes_s) == ((1, 5, 9, 13, 17), (1, 9, 13, 17), 26562e6)


def test_a_gpu_that_is_lost_keeps_the_edges_it_had(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"gpu3.lost": 15})

    assert sampler.tick() == []

    sampler.scenario.change(drop=("gpu3.lost",))
    assert sampler.tick() == []


def test_removed_links_are_reported_as_gone(watch):
    sampler = watch(scenarios.bridged())
    sampler.tick()
    sampler.scenario.change({"gpu.field.91": "u32:0"})

    gone = sampler.tick()

    assert {(link.type, link.gone) for link in gone} == {("nvlink", True)}
    assert len(gone) == 4


def test_pcie_path_of_gpus_and_nics_is_read_from_sysfs(watch, tmp_path):
    sys = tmp_path / "sys"
    pci_device(sys, ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:10:00.0"], numa=1)
    port = pci_device(sys, ["0000:01:00.0", "0000:02:00.0", "0000:03:01.0", "0000:19:00.0"], numa=1, width=8)
    rdma(sys, "mlx5_0", port)

    gpu, *others = of_type(watch(scenarios.hgx_h100()).tick(), "pcie")

    assert (gpu.b.kind, gpu.b.id, gpu.cpus) == ("numa", "1", "0-51")
    assert gpu.via == ("0000:03:00.0", "0000:02:00.0", "0000:01:00.0", "pci0000:00")
    assert (gpu.gen, gpu.width, gpu.gen_max, gpu.width_max) == (5, 16, 5, 16)
    assert (gpu.uplink_gen, gpu.uplink_width) == (5, 8)  # the second device rewrote the shared bridges
    nic = others[-1]
    assert (nic.a.kind, nic.a.id, nic.width, nic.via[1:]) == ("nic", "mlx5_0", 8, gpu.via[1:])
    unknown_gpu = others[0]
    assert (unknown_gpu.via, unknown_gpu.b.id, unknown_gpu.unsupported["via"]) == ((), "", "device not found in sysfs")


def test_numa_distances_are_read_from_sysfs(watch, tmp_path):
    for node, distances in enumerate(("10 21", "21 10")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "distance").write_text(distances)

    (link,) = of_type(watch(scenarios.nothing_supported()).tick(), "numa")

    assert (link.a.id, link.b.id, link.distance) == ("0", "1", 21)


def test_pcie_width_change_is_reported_but_speed_change_is_not(watch, tmp_path):
    device = pci_device(tmp_path / "sys", ["0000:01:00.0", "0000:10:00.0"])
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    (device / "current_link_speed").write_text("2.5 GT/s PCIe\n")
    assert sampler.tick() == []
    (device / "current_link_width").write_text("8\n")

    (link,) = sampler.tick()

    assert (link.width, link.width_max, link.gen, link.gen_max) == (8, 16, 1, 5)


def test_unsupported_peer_queries_are_listed_with_a_reason(watch):
    links = watch(scenarios.nothing_supported()).tick()

    (peer,) = of_type(links, "peer")
    assert set(peer.unsupported) == {"ancestor", "read", "write", "nvlink", "atomics"}
    assert set(peer.unsupported.values()) == {"Not Supported"}


def test_gpu_with_mig_devices_is_one_gpu_in_the_topology(watch):
    links = watch(scenarios.mig()).tick()

    assert [(link.type, link.a.kind) for link in links] == [("pcie", "gpu")]


def test_nic_topology_is_reported_without_a_gpu_driver(watch, tmp_path):
    rdma(tmp_path / "sys", "mlx5_0", pci_device(tmp_path / "sys", ["0000:01:00.0", "0000:19:00.0"]))

    (link,) = watch(scenarios.hgx_h100() | {"fail.nvmlInitWithFlags": 9}).tick()

    assert (link.type, link.a.id) == ("pcie", "mlx5_0")


TOPOLOGY_CALLS = {
    "nvmlDeviceGetTopologyCommonAncestor": ("peer", "ancestor"),
    "nvmlDeviceGetP2PStatus": ("peer", "read"),
    "nvmlDeviceGetNvLinkRemoteDeviceType": ("nvlink", "b"),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": ("nvlink", "b.id"),
    "nvmlDeviceGetPciInfo_v3": ("pcie", "via"),
}


@pytest.mark.parametrize("code", [3, 4, 999])
@pytest.mark.parametrize("function", TOPOLOGY_CALLS)
def test_failing_topology_call_keeps_the_other_links_with_a_reason(watch, function, code):
    kind, field = TOPOLOGY_CALLS[function]

    links = watch(scenarios.hgx_h100() | {f"fail.{function}": code}).tick()

    assert all(link.unsupported[field] for link in of_type(links, kind))
    assert all(link.unsupported == {} for link in links if link.type not in (kind, "pcie"))
    assert len(of_type(links, "peer")) == 28
    assert sum(len(link.up) for link in of_type(links, "nvlink")) == 8 * 18


@pytest.mark.parametrize("code", [3, 999])
def test_nvlinks_are_read_through_older_calls_without_field_values(watch, code):
    lines = scenarios.hgx_h100() | {"gpu.link_version": 4, "fail.nvmlDeviceGetFieldValues": code}
    lines |= {f"gpu.link_state.{link}": 1 for link in range(18)}

    links = of_type(watch(lines).tick(), "nvlink")

    assert {link.version for link in links} == {4}
    assert sum(len(link.up) for link in links) == 8 * 18
    assert all(link.speed_bytes_s is None and link.unsupported["speed_bytes_s"] for link in links)


@pytest.mark.parametrize("function", ["nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkVersion"])
def test_failing_fallback_call_leaves_only_its_figure_unknown(watch, function):
    lines = scenarios.hgx_h100() | {"gpu.link_version": 4, f"fail.{function}": 999}
    lines |= {"gpu.field.165": "code:3", "gpu.field.166": "code:3", **{f"gpu.link_state.{n}": 1 for n in range(18)}}
    answer = "up" if function.endswith("State") else "version"

    links = of_type(watch(lines).tick(), "nvlink")

    assert all(link.unsupported[answer] for link in links)


@pytest.mark.parametrize("function", [*TOPOLOGY_CALLS, "nvmlDeviceGetFieldValues", "nvmlDeviceGetUUID",
                                      "nvmlDeviceGetHandleByIndex_v2"])  # fmt: skip
def test_gpu_lost_at_start_loses_only_its_own_links(watch, function):
    sampler = watch(scenarios.hgx_h100() | {f"gpu3.fail.{function}": 15})

    links = sampler.tick()

    unaffected = [link for link in of_type(links, "peer") if sampler.uuid(3) not in (link.a.id, link.b.id)]
    assert len(unaffected) == 21
    assert all(link.unsupported == {} for link in unaffected)
