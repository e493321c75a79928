"""Settings of a node and of its ranks, from trees of files written after the documentation of the kernel."""

import os
import random
import struct
from types import SimpleNamespace

import pytest
from fake_proc import check

from gconsole_remote.proc.settings import UNITS, acs_redirects, settings
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.settings import SettingSampler, limits, variables

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         67108864             67108864             bytes
Max open files            1024                 1048576              files
"""


def write(root, files):
    """Write files of a tree; an empty folder where the text is None."""
    for path, text in files.items():
        place = root / path
        (place if text is None else place.parent).mkdir(parents=True, exist_ok=True)
        if text is not None:
            place.write_text(text)


@pytest.fixture
def node(tmp_path):
    """/sys, /proc and /etc of a node with a GPU, an InfiniBand port and an NVMe disk."""
    port = "sys/class/infiniband/mlx5_0/ports/1/"
    write(tmp_path, {
        "proc/sys/vm/swappiness": "10\n",
        "proc/cpuinfo": "model name\t: Some CPU\nmicrocode\t: 0x1\nflags\t\t: fpu sse\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n",
        "proc/self/mountinfo": "", "etc/systemd/system/multi-user.target.wants/slurmd.service": "",
        "etc/systemd/system/multi-user.target.wants/munge.service": "",
        "sys/fs/cgroup/system.slice/slurmd.service": None, "sys/module/nvidia/version": "570.1\n",
        "sys/module/ib_uverbs": None, "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "powersave\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_driver": "intel_pstate\n",
        "sys/kernel/iommu_groups/0/type": "DMA-FQ\n", "sys/kernel/iommu_groups/1/type": "identity\n",
        "sys/devices/system/edac/mc/mc0/ue_count": "3\n", "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
        port + "state": "4: ACTIVE\n", port + "rate": "400 Gb/sec (4X NDR)\n", port + "pkeys/0": "0xffff\n",
        port + "link_layer": "InfiniBand\n",
        "sys/devices/pci0000:00/0000:00:01.0/max_link_width": "16\n",
        "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class": "0x010802\n",
        "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/current_link_width": "2\n",
        "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_width": "4\n", "sys/bus/pci/devices": None,
    })  # fmt: skip
    (tmp_path / "sys/bus/pci/devices/0000:01:00.0").symlink_to(
        tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    )
    return tmp_path


def read(root):
    return {
        (name, subject): value for name, subject, value in settings(*(f"{root}/{x}" for x in ("sys", "proc", "etc")))
    }


def config_space(control, port_type=6, next_capability=0):
    """Configuration space of a port of a PCIe switch with an ACS capability at 0x140."""
    data = bytearray(4096)
    data[0x34], data[0x40], data[0x42] = 0x40, 0x10, port_type << 4
    data[0x100:0x104] = struct.pack("<I", 0x0001 | 0x140 << 20)
    data[0x140:0x148] = struct.pack("<IHH", 0x000D | next_capability << 20, 0x1F, control)
    return bytes(data)


def test_settings_of_a_node_are_read_with_their_subjects(node):
    found = read(node)

    assert found["sysctl", "vm.swappiness"] == "10"
    assert (found["cpu_model", ""], found["microcode", ""], found["virtual_machine", ""]) == ("Some CPU", "0x1", "no")
    assert (found["nvidia_modules", ""], found["huge_pages", ""]) == ("open", "madvise")
    assert (found["governor", ""], found["iommu", ""]) == ("performance, powersave", "DMA-FQ, identity")
    assert (found["module", "nvidia"], found["module", "ib_uverbs"], found["module", "efa"]) == (
        "570.1", "loaded", "absent")  # fmt: skip
    assert (found["pci_devices", "nvme"], found["pci_width", "0000:01:00.0"]) == ("1", "x2 of x4")
    assert (found["nic_rate", "mlx5_0/1"], found["nic_pkey", "mlx5_0/1"]) == ("400 Gb/sec (4X NDR)", "0xffff")
    assert found["memory_errors", "mc0"] == "3"


def test_device_without_a_driver_is_reported_if_others_of_its_kind_have_one(tmp_path):
    drivers = {"17": "mlx5_core", "18": None, "19": "mlx5_core", "20": None, "21": "nvme"}
    products = {"17": "0x1021", "18": "0x1021", "19": "0x1021", "20": "0x1522", "21": "0xa80a"}
    for bus, driver in drivers.items():
        folder = f"sys/bus/pci/devices/0000:{bus}:00.0/"
        kind = "0x010802" if driver == "nvme" else "0x020000"
        write(tmp_path, {folder + "class": kind, folder + "vendor": "0x15b3", folder + "device": products[bus],
                         f"sys/bus/pci/drivers/{driver}": None})  # fmt: skip
        if driver is not None:
            (tmp_path / folder / "driver").symlink_to(tmp_path / f"sys/bus/pci/drivers/{driver}")
    found = read(tmp_path)

    assert {subject: value for (name, subject), value in found.items() if name == "pci_no_driver"} == {
        "0000:18:00.0": "mlx5_core on 2 of its kind"}  # fmt: skip
    assert (found["pci_devices", "network"], found["pci_devices", "nvme"]) == ("4", "1")


def test_unit_is_active_by_its_cgroup_and_enabled_by_its_link(node):
    found = read(node)

    assert {unit: found["service", unit] for unit in UNITS if found["service", unit] != "absent"} == {
        "slurmd": "active", "munge": "enabled"}  # fmt: skip


def test_node_without_these_files_has_no_settings_of_them(tmp_path):
    assert read(tmp_path) == {}


def test_port_that_is_down_has_neither_rate_nor_key(node):
    (node / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")

    assert not {"nic_rate", "nic_pkey"} & {name for name, _ in read(node)}


@pytest.mark.parametrize(("data", "redirects"), [
    (config_space(0x1D), True), (config_space(0x11), False), (config_space(0x1D, port_type=4), None),
    (config_space(0x1D)[:64], None), (b"", None), (bytes(4096), None), (b"\xff" * 4096, None),
    (config_space(0)[:0x100] + struct.pack("<I", 0x0001 | 0x100 << 20) + bytes(3836), None),  # a cycle
])  # fmt: skip
def test_access_control_of_a_switch_port_is_read_from_its_configuration(tmp_path, data, redirects):
    (tmp_path / "config").write_bytes(data)

    assert acs_redirects(str(tmp_path / "config")) is redirects


def test_garbage_in_every_file_raises_nothing_and_values_are_bounded(node):
    chance = random.Random(1)
    files = [path for path in node.rglob("*") if path.is_file()]
    for _ in range(200):
        for path in chance.sample(files, 5):
            path.write_bytes(
                chance.choice([b"", b"\0\xff" * 300, b"-1", b"9" * 5000, os.urandom(50), b"[", b"x\n" * 99])
            )
        found = read(node)
        assert all(len(value) <= 200 for value in found.values())


def sampler(node, *ranks):
    made = SettingSampler(Context(proc=str(node / "proc")))
    made.context.sys, made.etc, made.wtmp = str(node / "sys"), str(node / "etc"), str(node / "no-wtmp")
    made.context.shared["processes"] = SimpleNamespace(ranks=ranks)
    made.start()
    return made


def rank(pid, number):
    return SimpleNamespace(pid=pid, start_ticks=7, job="train", attempt=0, rank=number, local_rank=number, gpu=None)


def test_setting_is_sent_once_and_again_on_change_and_when_it_is_gone(node):
    made = sampler(node)
    first = [check(kind, fields) for kind, fields in made.tick(0.0)]
    (node / "proc/sys/vm/swappiness").write_text("60")
    (node / "sys/devices/system/edac/mc/mc0/ue_count").unlink()

    assert list(made.tick(5.0)) == []  # not due
    changed = [check(kind, fields) for kind, fields in made.tick(61.0)]

    assert len(first) > 20
    assert [(it.name, it.subject, it.value, it.gone) for it in changed] == [
        ("memory_errors", "mc0", "", True), ("sysctl", "vm.swappiness", "60", False)]  # fmt: skip


def test_rank_has_its_limits_cpus_and_variables_and_no_secrets(node):
    env = b"NCCL_ALGO=Ring\0PATH=/bin\0NCCL_AUTH_TOKEN=abc\0OMP_NUM_THREADS=8\0HF_TOKEN=x\0"
    status = "Name:\tpython\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-3,8\n"
    write(node, {"proc/9/limits": LIMITS, "proc/9/status": status,
                 "proc/9/fd": None})  # fmt: skip
    (node / "proc/9/environ").write_bytes(env)
    for number in range(512):
        (node / f"proc/9/fd/{number}").write_text("")

    (record,) = [check(kind, fields) for kind, fields in sampler(node, rank(9, 3)).tick(0.0) if kind == "rank_setting"]

    assert (record.memlock_bytes, record.open_files, record.open_files_pct) == (67108864, 1024, 50.0)
    assert (record.cpus, record.environment) == ("0-3,8", {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "8"})


def test_rank_that_cannot_be_read_has_nulls(node):
    (record,) = [check(kind, fields) for kind, fields in sampler(node, rank(9, 3)).tick(0.0) if kind == "rank_setting"]

    assert (record.memlock_bytes, record.open_files, record.cpus, record.environment) == (None, None, None, None)


def test_limit_without_a_bound_is_minus_one_and_a_missing_one_is_left_out():
    assert limits("Max open files            unlimited   unlimited   files\n") == {"open_files": -1}
    assert limits("Max open files            \n") == {}
    assert limits("") == {}


def test_variables_are_bounded():
    block = b"\0".join(b"NCCL_X%d=%s" % (number, b"y" * 5000) for number in range(500))

    found = variables(block + b"\0NCCL_BAD\xff=1\0NCCL_NOTHING\0=x\0")

    assert len(found) == 64
    assert {len(value) for value in found.values()} == {200}
