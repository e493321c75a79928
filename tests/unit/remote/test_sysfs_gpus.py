"""GPUs of AMD, Intel, Habana and Google from sysfs, from the device files that ranks have open, and their topology.

The trees are written after the documentation of the kernel's drivers; none was recorded on a node with such a GPU.
"""

import os
import random
from types import SimpleNamespace

import pytest
from accelerator_trees import AMD, FDINFO, GAUDI, GIB, I915, TPU, XE, kfd_files
from fake_proc import check

from gconsole_remote.accelerators.devices import kfd_nodes, sysfs_gpus
from gconsole_remote.accelerators.users import parse_fdinfo
from gconsole_remote.agent import doctor
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.sysfs_gpus import SysfsGpuSampler
from gconsole_remote.samplers.topology import TopologySampler
from gconsole_remote.samplers.vendor_tools import ToolReports

IGPU = {"vendor": "0x8086", "device": "0x4680", "class": "0x030000"}
APU = {"vendor": "0x1002", "device": "0x164e", "class": "0x030000", "mem_info_vram_total": GIB >> 1}
NVIDIA = {"vendor": "0x10de", "class": "0x030200"}


def add(root, address, files, driver=None):
    """Write the files of a PCI device."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    if driver is not None:
        home = root / "sys/bus/pci/drivers" / driver
        home.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(home)
    return folder


def add_kfd(root, files):
    """Write files below /sys/class/kfd/kfd."""
    for path, text in files.items():
        (root / "sys/class/kfd/kfd" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys/class/kfd/kfd" / path).write_text(f"{text}\n")


def context_of(root):
    context = Context(proc=str(root / "proc"))
    context.sys = str(root / "sys")
    rank = SimpleNamespace(pid=4242, ns_pid=None, gpu=None, job="train", attempt=0, rank=3)
    context.shared["processes"] = SimpleNamespace(ranks=[rank], children=[])
    return context


def started(root):
    context = context_of(root)
    return SysfsGpuSampler(context, *sysfs_gpus(context.sys))


def records(sampler, now=1.0):
    kinds = {}
    for kind, fields in sampler.tick(now):
        kinds.setdefault(kind, []).append(check(kind, fields))
    return kinds


def add_rank(root, *files, fdinfo=""):
    """Process 4242, with these device files open."""
    process = root / "proc/4242"
    (process / "fdinfo").mkdir(parents=True)
    (process / "fd").mkdir()
    (process / "stat").write_text("4242 (python) S 1 " + "0 " * 48)
    for number, name in enumerate(files, 3):
        (process / f"fd/{number}").symlink_to(name)
        (process / f"fdinfo/{number}").write_text(fdinfo)


def test_amd_gpu_has_its_identity_figures_errors_and_place(tmp_path):
    add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    sent = records(started(tmp_path))
    (info,), (gpu,), (inventory,) = sent["gpu_info"], sent["gpu"], sent["inventory"]

    assert (info.uuid, info.name, info.driver, info.numa_node, info.cpu_affinity) == (
        "amd-8c9d0e1f2a3b4c5d", "AMD Instinct MI300X OAM", "amdgpu", 1, "96-191")  # fmt: skip
    assert (info.mem_total_bytes, info.power_limit_w, info.pcie_width) == (192 * GIB, 750.0, 16)
    assert (info.temp_slowdown_c, info.serial, info.vbios) == (100.0, "692251000123", "113-M3000100-102")
    assert (gpu.util_pct, gpu.mem_used_bytes, gpu.power_w, gpu.temp_c, gpu.mem_temp_c) == (97, 3 * GIB, 512.0, 71, 55)
    assert (gpu.sm_clock_mhz, gpu.mem_clock_mhz, gpu.ecc_uncorrected_volatile, gpu.ecc_corrected_volatile) == (
        2100.0, 1300.0, 3, 7)  # fmt: skip
    assert (gpu.pcie_replays, gpu.retired_pages_uncorrected, gpu.retire_pending) == (5, 1, True)
    assert (inventory.count, inventory.fault) == (1, None)


def test_process_on_an_amd_gpu_has_its_memory_and_rank_and_ends(tmp_path):
    add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    kfd = tmp_path / "sys/class/kfd/kfd"
    add_kfd(tmp_path, {**kfd_files([34048]), "proc/4242/vram_50001": GIB})
    add_rank(tmp_path)
    sampler = started(tmp_path)

    (process,) = records(sampler)["gpu_process"]
    (kfd / "proc/4242/vram_50001").unlink()
    (ended,) = records(sampler, 10.0)["gpu_process"]

    assert [(node.address, node.gpu_id) for node in kfd_nodes(str(tmp_path / "sys"))] == [("0000:85:00.0", "50001")]
    assert (process.pid, process.mem_used_bytes, process.rank, process.job, process.comm) == (
        4242, GIB, 3, "train", "python")  # fmt: skip
    assert ended.gone


def test_counters_of_errors_report_what_they_gained(tmp_path):
    folder = add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    sampler = started(tmp_path)
    records(sampler)
    (folder / "ras/gfx_err_count").write_text("ue: 3\nce: 0")
    (gpu,) = records(sampler, 2.0)["gpu"]

    assert (gpu.ecc_uncorrected_volatile, gpu.grown) == (5, {"ecc_uncorrected_volatile": 2})


def test_xe_gpu_has_power_from_its_energy_and_is_busy_while_its_busiest_tile_is(tmp_path):
    folder = add(tmp_path, "0000:3a:00.0", XE, "xe")
    sampler = started(tmp_path)
    sent = records(sampler, 1.0)
    (info,), (first,) = sent["gpu_info"], sent["gpu"]
    (folder / "tile0/gt0/gtidle/idle_residency_ms").write_text("1250")
    (folder / "tile1/gt0/gtidle/idle_residency_ms").write_text("1900")
    (folder / "hwmon/hwmon2/energy1_input").write_text("5400000000")
    (second,) = records(sampler, 2.0)["gpu"]

    assert (info.mem_total_bytes, info.max_sm_clock_mhz) == (128 * GIB, 1600)
    assert info.power_limit_w == 600.0  # of the package: that of the card is off, and power1_cap is for bursts
    assert "gpu_process.compute" in info.unsupported  # so no check judges who uses it
    assert "clocks_event_reasons" in info.unsupported  # so no finding misses a reason
    assert (first.util_pct, first.power_w, second.util_pct, second.power_w) == (None, None, 75.0, 400.0)
    assert (second.temp_c, second.mem_temp_c, second.mem_used_bytes, second.pcie_replays) == (48.0, 52.0, None, 3)


def test_i915_gpu_has_its_memory_clock_power_and_utilisation(tmp_path):
    folder = add(tmp_path, "0000:3a:00.0", I915, "i915")
    sampler = started(tmp_path)
    (info,) = records(sampler, 1.0)["gpu_info"]
    (folder / "gt/gt0/rc6_residency_ms").write_text("4100")
    (folder / "hwmon/hwmon3/energy1_input").write_text("101000000")
    (gpu,) = records(sampler, 2.0)["gpu"]

    assert (info.mem_total_bytes, info.max_sm_clock_mhz, info.power_limit_w) == (16 * GIB, 2050, 150.0)
    assert (gpu.util_pct, gpu.power_w, gpu.temp_c, gpu.sm_clock_mhz) == (90.0, 100.0, 51.0, 1950)


def test_rank_that_has_a_gpu_open_is_its_process_with_the_memory_of_the_device(tmp_path):
    add(tmp_path, "0000:3a:00.0", XE | {"drm/renderD128/dev": "226:128"}, "xe")
    add_rank(tmp_path, "/dev/dri/renderD128", "/dev/dri/renderD128", "/dev/dri/renderD129", fdinfo=FDINFO)
    (process,) = records(started(tmp_path))["gpu_process"]

    assert (process.pid, process.rank, process.mem_used_bytes) == (4242, 3, 5 << 20)  # the client is counted once


@pytest.mark.parametrize(("files", "driver", "path"), [
    (GAUDI, "habanalabs", "/dev/accel/accel0"), (TPU | {"accel/accel2/dev": "1:2"}, "gasket", "/dev/accel2"),
    ({**GAUDI, "accel/accel0/status": ""} | {"habanalabs/hl3/status": "Operational"}, "habanalabs", "/dev/hl3"),
])  # fmt: skip
def test_rank_on_an_accelerator_is_its_process_with_unknown_memory(tmp_path, files, driver, path):
    add(tmp_path, "0000:19:00.0", files, driver)
    add_rank(tmp_path, path)
    (process,) = records(started(tmp_path))["gpu_process"]

    assert (process.rank, process.mem_used_bytes) == (3, None)


def test_rank_on_a_tpu_under_vfio_is_its_process(tmp_path):
    folder = add(tmp_path, "0000:20:00.0", TPU, "vfio-pci")
    group = tmp_path / "sys/kernel/iommu_groups/7"
    group.mkdir(parents=True)
    (folder / "iommu_group").symlink_to(group)
    add_rank(tmp_path, "/dev/vfio/7")

    assert [process.rank for process in records(started(tmp_path))["gpu_process"]] == [3]


def test_gaudi_reports_its_state_and_tpu_its_presence(tmp_path):
    add(tmp_path, "0000:19:00.0", GAUDI, "habanalabs")
    add(tmp_path, "0000:1a:00.0", GAUDI | {"accel/accel0/status": "Malfunction"}, "habanalabs")
    add(tmp_path, "0000:20:00.0", TPU, "vfio-pci")
    add(tmp_path, "0000:21:00.0", {"vendor": "0x1ae0", "class": "0x020000"}, "gve")  # a network port
    sent = records(started(tmp_path))

    assert [(info.name, info.unusable) for info in sent["gpu_info"]] == [
        ("GAUDI2", None), ("GAUDI2", "the driver reports: Malfunction"), ("Google TPU v5e", None)]  # fmt: skip
    assert [(gpu.temp_c, gpu.power_w, gpu.util_pct) for gpu in sent["gpu"]] == [
        (41.0, 130.0, None), (41.0, 130.0, None), (None, None, None)]  # fmt: skip
    assert all("util_pct" in info.unsupported for info in sent["gpu_info"])  # unknown, with the reason


def test_figures_of_the_vendors_tool_complete_those_of_sysfs_until_they_are_stale(tmp_path):
    add(tmp_path, "0000:19:00.0", GAUDI, "habanalabs")
    sampler = started(tmp_path)
    (before,) = records(sampler)["gpu_info"]
    reported = {"name": "HL-225", "driver": "1.17.1", "mem_total_bytes": 96 * GIB}
    figures = {"util_pct": 63.0, "mem_used_bytes": 24 * GIB, "temp_c": 99.0}
    sampler.context.shared["gpu_tool"] = ToolReports({"0000:19:00.0": (reported, figures)}, until=30.0)
    sent = records(sampler, 2.0)
    (info,), (gpu,) = sent["gpu_info"], sent["gpu"]
    (stale,) = records(sampler, 31.0)["gpu"]

    assert "util_pct" in before.unsupported
    assert "util_pct" not in info.unsupported
    assert (info.name, info.driver, info.mem_total_bytes) == ("GAUDI2", "habanalabs 1.17.1", 96 * GIB)
    assert (gpu.util_pct, gpu.mem_used_bytes, gpu.temp_c) == (63.0, 24 * GIB, 41.0)  # sysfs is newer
    assert (stale.util_pct, stale.mem_used_bytes, stale.temp_c) == (None, None, 41.0)


def test_topology_of_amd_gpus_has_their_places_and_each_pair_that_xgmi_connects(tmp_path):
    for address in ("0000:05:00.0", "0000:26:00.0", "0000:46:00.0"):
        add(tmp_path, address, AMD | {"unique_id": address[5:7] * 8}, "amdgpu")
    add_kfd(tmp_path, kfd_files([0x0500, 0x2600, 0x4600]))
    context = context_of(tmp_path)
    sampler = TopologySampler(context, of=("nic",), accelerators=sysfs_gpus(context.sys)[0])
    sampler.start()
    sent = [check(kind, fields) for kind, fields in sampler.tick(1.0) if kind == "link"]
    (count,) = [fields["count"] for kind, fields in sampler.tick(100.0) or [("inventory", {"count": 6})]]

    xgmi = [link for link in sent if link.type == "xgmi"]
    assert [(link.a.id[4:6], link.b.id[4:6]) for link in xgmi] == [("05", "26"), ("05", "46"), ("26", "46")]
    assert {(link.distance, link.speed_bytes_s) for link in xgmi} == {(15, 64e9)}
    assert [link.a.id[4:6] for link in sent if link.type == "pcie"] == ["05", "26", "46"]
    assert count == 6


@pytest.mark.parametrize(("files", "driver"), [
    (IGPU, "i915"), (APU, "amdgpu"), (AMD, "vfio-pci"), (AMD | {"class": "0x040300"}, "snd_hda_intel"),
    (IGPU, None),
])  # fmt: skip
def test_graphics_of_a_processor_and_devices_of_virtual_machines_are_no_gpus(tmp_path, files, driver):
    add(tmp_path, "0000:00:02.0", files, driver)

    assert sysfs_gpus(str(tmp_path / "sys")) == ([], [])


def test_node_with_nvidia_gpus_is_left_to_nvml(tmp_path):
    add(tmp_path, "0000:17:00.0", NVIDIA)
    add(tmp_path, "0000:85:00.0", AMD, "amdgpu")

    assert sysfs_gpus(str(tmp_path / "sys")) == ([], [])


def test_gpu_without_a_driver_is_missing_or_a_fault_that_names_its_own_driver(tmp_path):
    folder = add(tmp_path, "0000:85:00.0", AMD)
    sampler = started(tmp_path)
    (inventory,) = records(sampler)["inventory"]

    assert (inventory.fault, inventory.count) == ("gpu_driver_not_loaded", None)
    assert "amdgpu" in inventory.try_ and "nvidia" not in (inventory.text + inventory.try_).lower()
    (tmp_path / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    assert sampler.context.shared["gpu_inventory"]["fault"] == "gpu_driver_not_loaded"  # what doctor reports
    (folder / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/amdgpu")
    (repaired,) = records(sampler, 2.0)["inventory"]
    assert repaired.fault is None
    add(tmp_path, "0000:95:00.0", AMD)
    (inventory,) = records(started(tmp_path))["inventory"]
    assert (inventory.count, inventory.missing) == (1, ("0000:95:00.0",))


def test_doctor_names_the_driver_of_the_gpus_and_what_it_lacks(tmp_path):
    for address, driver in (("0000:85:00.0", "amdgpu"), ("0000:86:00.0", "amdgpu"), ("0000:87:00.0", None)):
        add(tmp_path, address, AMD | {"unique_id": ""}, driver)
    sampler = started(tmp_path)
    agent, check_gpus = SimpleNamespace(context=sampler.context, missing=[]), dict(doctor.CHECKS)["gpus"]

    records(sampler)
    assert check_gpus(agent) == ("fail", "2 of 3 GPUs; missing: 0000:87:00.0", "dmesg | grep amdgpu shows more")
    (tmp_path / "sys/bus/pci/devices/0000:87:00.0/driver").symlink_to(tmp_path / "sys/bus/pci/drivers/amdgpu")
    sampler = started(tmp_path)
    records(sampler)
    assert check_gpus(SimpleNamespace(context=sampler.context, missing=[])) == (
        "ok", "3 GPUs (amdgpu, from sysfs)", "")  # fmt: skip


def test_doctor_names_a_device_that_its_driver_reports_as_not_operational(tmp_path):
    add(tmp_path, "0000:19:00.0", GAUDI | {"accel/accel0/status": "Malfunction"}, "habanalabs")
    sampler = started(tmp_path)
    records(sampler)

    assert dict(doctor.CHECKS)["gpus"](SimpleNamespace(context=sampler.context, missing=[])) == (
        "fail", "1 of 1 GPUs cannot be used; GPU 0: the driver reports: Malfunction",
        "reset the GPU or reboot the node; dmesg | grep habanalabs shows more")  # fmt: skip


def test_device_that_vanishes_is_missing(tmp_path):
    folder = add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    sampler = started(tmp_path)
    records(sampler)
    folder.rename(tmp_path / "elsewhere")
    sent = records(sampler, 2.0)

    assert (sent["inventory"][0].count, sent["inventory"][0].missing) == (0, ("0000:85:00.0",))
    assert "gpu" not in sent


def test_garbage_in_every_file_raises_nothing_and_every_record_is_valid(tmp_path):
    for address, files, driver in (("0000:85:00.0", AMD, "amdgpu"), ("0000:3a:00.0", XE, "xe"),
                                   ("0000:19:00.0", GAUDI, "habanalabs")):  # fmt: skip
        add(tmp_path, address, files, driver)
    add_kfd(tmp_path, {**kfd_files([34048, 0x3A00]), "proc/4242/vram_50001": GIB})
    add_rank(tmp_path, "/dev/accel/accel0", fdinfo=FDINFO)
    sampler, chance = started(tmp_path), random.Random(5)
    gpus = sysfs_gpus(sampler.context.sys)[0]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("vendor", "class", "stat")]
    junk = [b"", b"\0\xff\x80" * 99, b"-1", b"9" * 3000, b"1e309", b"nan", b"ue: 9", "²".encode(), b"0x", os.urandom(9)]
    for turn in range(150):
        for path in chance.sample(files, 6):
            path.write_bytes(chance.choice(junk))
        records(sampler, 100.0 * turn)
        for kind, fields in TopologySampler(sampler.context, of=("nic",), accelerators=gpus).tick(1.0):
            check(kind, fields)


def test_impossible_memory_of_an_open_file_is_unknown():
    assert parse_fdinfo("drm-client-id:\t3\ndrm-total-vram0:\t999999999999999 MiB\n") == ("3", None)
    assert parse_fdinfo("drm-total-vram0:\t4 KiB\ndrm-memory-vram0:\t9 KiB\n") == ("", 4096)
