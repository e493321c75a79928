"""GPUs of AMD, Intel, Habana and Google from sysfs.

The trees are written after the documentation of the kernel's drivers; none was recorded on a node with such a GPU.
"""

import os
import random
from types import SimpleNamespace

import pytest
from fake_proc import check

from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.sysfs_gpus import SysfsGpuSampler, kfd_ids, sysfs_gpus

GIB = 1 << 30
AMD = {
    "vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "unique_id": "8c9d0e1f2a3b4c5d", "numa_node": "1",
    "product_name": "AMD Instinct MI300X OAM", "serial_number": "692251000123", "vbios_version": "113-M3000100-102",
    "mem_info_vram_total": 192 * GIB, "mem_info_vram_used": 3 * GIB, "mem_info_vis_vram_used": 2 * GIB,
    "gpu_busy_percent": 97, "mem_busy_percent": 41, "current_link_width": 16, "max_link_width": 16,
    "local_cpulist": "96-191", "ras/umc_err_count": "ue: 2\nce: 7", "hwmon/hwmon5/power1_input": 512000000,
    "hwmon/hwmon5/power1_cap": 750000000, "hwmon/hwmon5/temp1_input": 60000, "hwmon/hwmon5/temp1_label": "edge",
    "hwmon/hwmon5/temp2_input": 71000, "hwmon/hwmon5/temp2_label": "junction", "hwmon/hwmon5/temp2_crit": 100000,
    "hwmon/hwmon5/temp3_input": 55000, "hwmon/hwmon5/temp3_label": "mem", "hwmon/hwmon5/freq1_input": 2100000000,
    "hwmon/hwmon5/freq2_input": 1300000000,
}  # fmt: skip
INTEL = {
    "vendor": "0x8086", "device": "0x0bd5", "class": "0x038000", "tile0/physical_vram_size_bytes": 64 * GIB,
    "tile1/physical_vram_size_bytes": 64 * GIB, "tile0/gt0/freq0/act_freq": 1600, "tile0/gt0/freq0/max_freq": 1600,
    "tile0/gt0/gtidle/idle_residency_ms": 1000, "hwmon/hwmon2/power1_max": 600000000,
    "hwmon/hwmon2/temp2_label": "pkg", "hwmon/hwmon2/temp2_input": 48000,
}  # fmt: skip
GAUDI = {
    "vendor": "0x1da3", "device": "0x1020", "class": "0x120000", "device_type": "GAUDI2", "status": "Operational",
    "clk_cur_freq_mhz": 1600, "clk_max_freq_mhz": 1650, "hwmon/hwmon1/temp1_input": 41000,
    "hwmon/hwmon1/power1_input": 130000000,
}  # fmt: skip
TPU = {"vendor": "0x1ae0", "device": "0x0063", "class": "0x120000"}
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


def started(root):
    context = Context(proc=str(root / "proc"))
    context.sys = str(root / "sys")
    context.shared["processes"] = SimpleNamespace(
        ranks=[SimpleNamespace(pid=4242, ns_pid=None, gpu=None, job="train", attempt=0, rank=3)]
    )
    return SysfsGpuSampler(context, *sysfs_gpus(context.sys))


def records(sampler, now=1.0):
    kinds = {}
    for kind, fields in sampler.tick(now):
        kinds.setdefault(kind, []).append(check(kind, fields))
    return kinds


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
        2100.0, 1300.0, 2, 7)  # fmt: skip
    assert (inventory.count, inventory.fault, len(sent["link"])) == (1, None, 1)


def test_process_on_an_amd_gpu_has_its_memory_and_rank_and_ends(tmp_path):
    add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    kfd = tmp_path / "sys/class/kfd/kfd"
    files = {"topology/nodes/0/gpu_id": "0", "topology/nodes/1/gpu_id": "55124", "proc/4242/vram_55124": GIB,
             "topology/nodes/1/properties": "simd_count 1216\nlocation_id 34048\ndomain 0\n"}  # fmt: skip
    for path, text in files.items():
        (kfd / path).parent.mkdir(parents=True, exist_ok=True)
        (kfd / path).write_text(f"{text}\n")
    (tmp_path / "proc/4242").mkdir(parents=True)
    (tmp_path / "proc/4242/stat").write_text("4242 (python) S 1 " + "0 " * 48)
    sampler = started(tmp_path)

    (process,) = records(sampler)["gpu_process"]
    (kfd / "proc/4242/vram_55124").unlink()
    (ended,) = records(sampler, 10.0)["gpu_process"]

    assert kfd_ids(str(tmp_path / "sys")) == {"0000:85:00.0": "55124"}
    assert (process.pid, process.mem_used_bytes, process.rank, process.job, process.comm) == (
        4242, GIB, 3, "train", "python")  # fmt: skip
    assert ended.gone


def test_intel_gpu_is_busy_for_the_time_in_which_it_was_not_idle(tmp_path):
    folder = add(tmp_path, "0000:3a:00.0", INTEL, "xe")
    sampler = started(tmp_path)
    first = records(sampler, 1.0)
    (folder / "tile0/gt0/gtidle/idle_residency_ms").write_text("1250")
    second = records(sampler, 2.0)

    assert (first["gpu_info"][0].mem_total_bytes, first["gpu_info"][0].power_limit_w) == (128 * GIB, 600.0)
    assert "gpu_process.compute" in first["gpu_info"][0].unsupported  # so no check judges who uses it
    assert (first["gpu"][0].util_pct, second["gpu"][0].util_pct) == (None, 75.0)
    assert (second["gpu"][0].temp_c, second["gpu"][0].mem_used_bytes) == (48.0, None)


def test_gaudi_reports_its_state_and_tpu_its_presence(tmp_path):
    add(tmp_path, "0000:19:00.0", GAUDI, "habanalabs")
    add(tmp_path, "0000:1a:00.0", GAUDI | {"status": "Malfunction"}, "habanalabs")
    add(tmp_path, "0000:20:00.0", TPU, "vfio-pci")
    add(tmp_path, "0000:21:00.0", {"vendor": "0x1ae0", "class": "0x020000"}, "gve")  # a network port
    sent = records(started(tmp_path))

    assert [(info.name, info.unusable) for info in sent["gpu_info"]] == [
        ("GAUDI2", None), ("GAUDI2", "the driver reports: Malfunction"), ("Google TPU 0063", None)]  # fmt: skip
    assert [(gpu.temp_c, gpu.power_w, gpu.util_pct) for gpu in sent["gpu"]] == [
        (41.0, 130.0, None), (41.0, 130.0, None), (None, None, None)]  # fmt: skip


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


def test_device_that_vanishes_is_missing(tmp_path):
    folder = add(tmp_path, "0000:85:00.0", AMD, "amdgpu")
    sampler = started(tmp_path)
    records(sampler)
    folder.rename(tmp_path / "elsewhere")
    sent = records(sampler, 2.0)

    assert (sent["inventory"][0].count, sent["inventory"][0].missing) == (0, ("0000:85:00.0",))
    assert "gpu" not in sent


def test_garbage_in_every_file_raises_nothing_and_every_record_is_valid(tmp_path):
    for address, files, driver in (("0000:85:00.0", AMD, "amdgpu"), ("0000:3a:00.0", INTEL, "xe"),
                                   ("0000:19:00.0", GAUDI, "habanalabs")):  # fmt: skip
        add(tmp_path, address, files, driver)
    kfd = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    kfd.mkdir(parents=True)
    (kfd / "gpu_id").write_text("7")
    (kfd / "properties").write_text("location_id 34048\n")
    sampler, chance = started(tmp_path), random.Random(5)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("vendor", "class")]
    junk = [b"", b"\0\xff\x80" * 99, b"-1", b"9" * 3000, b"1e309", b"nan", b"ue: 9", "²".encode(), b"0x", os.urandom(9)]
    for turn in range(150):
        for path in chance.sample(files, 6):
            path.write_bytes(chance.choice(junk))
        records(sampler, 100.0 * turn)
