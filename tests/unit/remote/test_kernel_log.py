"""Faults in the kernel log: which messages are faults, and the log before and after the agent started."""

import os
import time

import pytest
from fake_proc import check

from gconsole_remote.kernel.faults import fault_of
from gconsole_remote.kernel.log import parse_message
from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.kernel_log import MOST_EARLIER, MOST_SIMILAR, KernelLogSampler

#: Messages as the kernel and drivers print them, and (class, severity, subject, pid, whether it is over).
MESSAGES = {
    "Out of memory: Killed process 4711 (python3) total-vm:1032kB": ("oom_kill", "error", "python3", 4711, 0),
    "Memory cgroup out of memory: Killed process 12 (python)": ("oom_kill_in_cgroup", "warning", "python", 12, 0),
    "python3[99]: segfault at 0 ip 00007f sp 00007f error 4 in x.so[7f+1]": ("segfault", "warning", "python3", 99, 0),
    "traps: python[4] general protection fault ip:7f sp:1 error:0": ("segfault", "warning", "python", 4, 0),
    "INFO: task python:4242 blocked for more than 120 seconds.": ("hung_task", "warning", "python", 4242, 0),
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:12]": ("lockup", "error", "3", None, 0),
    "rcu: INFO: rcu_sched self-detected stall on CPU": ("lockup", "error", "", None, 0),
    "BUG: unable to handle page fault for address: ffff": ("kernel_bug", "error", "", None, 0),
    "nfs: server filer01 not responding, still trying": ("nfs", "warning", "filer01", None, 0),
    "nfs: server filer01 OK": ("nfs", "info", "filer01", None, 1),
    "Lustre: lfs-OST0001-osc-ffff88: Connection to lfs-OST0001 (at 10.0.0.9@o2ib) was lost; in progress operations": (
        "lustre", "warning", "lfs-OST0001-osc-ffff88", None, 0,
    ),
    "Lustre: lfs-OST0001-osc-ffff88: Connection restored to 10.0.0.9@o2ib (at 10.0.0.9@o2ib)": (
        "lustre", "info", "lfs-OST0001-osc-ffff88", None, 1,
    ),
    "CPU3: Core temperature/speed normal": ("thermal", "info", "CPU3", None, 1),
    "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2": ("file_system", "error", "nvme0n1p2", None, 0),
    "EXT4-fs (sda1): Remounting filesystem read-only": ("file_system", "error", "sda1", None, 0),
    "XFS (dm-0): Corruption detected. Unmount and run xfs_repair": ("file_system", "error", "dm-0", None, 0),
    "blk_update_request: I/O error, dev sda, sector 1 op 0x0": ("disk", "error", "sda", None, 0),
    "nvme nvme0: I/O 25 QID 3 timeout, aborting": ("disk", "error", "nvme0", None, 0),
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff": ("disk", "error", "nvme0", None, 0),
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0": ("ecc_uncorrected", "error", "MC0", None, 0),
    "EDAC MC0: 1 CE memory scrubbing error": ("ecc_corrected", "info", "MC0", None, 0),
    "mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 3": ("machine_check", "error", "4", None, 0),
    "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received": (
        "pcie_uncorrected", "error", "0000:40:01.1", None, 0,
    ),
    "pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data": (
        "pcie_corrected", "info", "0000:40:01.1", None, 0,
    ),
    "mlx5_core 0000:3b:00.0: poll_health:739:(pid 0): device's health compromised": (
        "nic", "error", "0000:3b:00.0", None, 0,
    ),
    "mlx5_core 0000:3b:00.0 ens3f0: Link down": ("link", "warning", "ens3f0", None, 0),
    "ens3f0: NIC Link is Up 100Gbps": ("link", "info", "ens3f0", None, 1),
    "CPU3: Core temperature above threshold, cpu clock throttled": ("thermal", "warning", "CPU3", None, 0),
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal": ("sxid", "error", "3", None, 0),
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.": ("xid", "error", "0000:3b:00", None, 0),
}  # fmt: skip
OTHERS = [
    "docker0: port 1(veth12) entered blocking state", "systemd[1]: Started Session 4 of user root.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15", "nvme nvme0: 8/0/0 default/read/poll queues",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode", "mlx5_core 0000:3b:00.0: firmware version: 22.31",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready", "audit: type=1400 apparmor",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MESSAGES.items(), ids=[text[:30] for text in MESSAGES])
def test_message_is_recognised_with_its_class_and_subject(text, expected):
    fault = fault_of(text)
    assert (fault.name, fault.severity, fault.subject, fault.pid, int(fault.is_over)) == expected


@pytest.mark.parametrize("text", OTHERS)
def test_other_messages_are_no_faults(text):
    assert fault_of(text) is None


def test_command_of_a_crashed_program_does_not_pass_for_another_fault():
    fault = fault_of("Kernel panic[77]: segfault at 0 ip 0 sp 0 error 4 in a[1+2]")
    assert (fault.name, fault.subject, fault.pid) == ("segfault", "Kernel panic", 77)


@pytest.mark.parametrize("digits", ["²", "9" * 30, "-1", "1e3"])
def test_pid_that_is_no_number_of_a_process_is_unknown(digits):
    fault = fault_of(f"Out of memory: Killed process {digits} (python3)")
    assert fault is None or fault.pid is None


@pytest.mark.parametrize(
    "line",
    [b"", b";", b"6,1;text", b"6,1,x,-;text", b"6,1,\xb2,-;text", b" SUBSYSTEM=pci", b"6,1," + b"9" * 40 + b";x"],
)
def test_line_without_a_valid_head_is_left_out(line):
    assert parse_message(line) is None


class Node:
    """A sampler on a stand-in of the kernel log."""

    def __init__(self, folder, text=""):
        self.log = folder / "kmsg"
        self.log.write_text(text)
        context = Context()
        context.kmsg = str(self.log)
        self.sampler = KernelLogSampler(context)
        self.context = context
        self.sampler.start()

    def append(self, *texts, age_s=0.0):
        with self.log.open("a") as file:
            file.writelines(message(text, age_s) for text in texts)

    def tick(self, now=1000.0):
        return [check(kind, fields) for kind, fields in self.sampler.tick(now)]


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.sampler.stop()


def message(text, age_s=0.0):
    micros = int((time.clock_gettime(time.CLOCK_MONOTONIC) - age_s) * 1e6)
    return f"4,77,{max(0, micros)},-;{text}\n SUBSYSTEM=pci\n"


OOM = "Out of memory: Killed process 4711 (python3) total-vm:1kB"


def test_what_happened_before_the_agent_came_has_its_time(node):
    node.append("usb 1-1: new device", OOM, age_s=300.0)
    [log] = node.tick()
    assert (log.source, log.fault, log.subject, log.pid, log.severity) == (
        "kernel",
        "oom_kill",
        "python3",
        4711,
        "error",
    )
    assert log.text == OOM and log.try_
    assert 290 < (time.time_ns() - log.at) / 1e9 < 310


def test_every_class_of_fault_is_read_from_the_past_and_the_newest_of_each(node):
    node.append(*(text for text in MESSAGES for _ in range(MOST_EARLIER + 5)), age_s=60.0)
    logs = node.tick()
    classes = {expected[0] for expected in MESSAGES.values()}
    assert {log.fault for log in logs} == classes
    assert all(sum(log.fault == name for log in logs) <= MOST_EARLIER for name in classes)


def test_new_messages_are_reported_once(node):
    assert node.tick() == []
    node.append(OOM)
    assert [log.fault for log in node.tick()] == ["oom_kill"]
    assert node.tick() == []


def test_message_written_in_two_parts_is_read_whole(node):
    node.tick()
    text = message(OOM)
    for part in (text[:30], text[30:]):
        with node.log.open("a") as file:
            file.write(part)
        logs = node.tick()
    assert [log.fault for log in logs] == ["oom_kill"]


def test_flood_of_one_fault_is_cut_and_counted(node):
    node.tick()
    node.append(*["nfs: server filer01 not responding, still trying"] * 100, OOM)
    logs = node.tick(1000.0)
    assert [log.fault for log in logs] == ["nfs"] * MOST_SIMILAR + ["oom_kill"]
    node.append("nfs: server filer01 OK")
    [log] = node.tick(1070.0)
    assert log.is_over and log.text.endswith(f"(and {100 - MOST_SIMILAR} similar before it)")


def test_xids_are_left_to_the_gpu_sampler_except_those_from_before(node):
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    node.append(xid, age_s=60.0)
    node.context.shared["xids"] = True
    assert [log.fault for log in node.tick()] == ["xid"]
    node.append(xid)
    assert node.tick() == []
    node.context.shared["xids"] = False
    node.append(xid)
    assert [log.fault for log in node.tick()] == ["xid"]


def test_binary_data_and_escape_sequences_do_no_harm(node):
    with node.log.open("ab") as file:
        file.write(b"\xff\xfe\x00" * 5000 + b"\n" + message("\x1b[2Jnfs: server \x1b]0;x\x07 not responding").encode())
    [log] = node.tick()
    assert "\x1b" not in log.text and "\x1b" not in log.subject


def test_log_that_may_not_be_read_is_a_missing_capability(tmp_path):
    context = Context()
    context.kmsg = str(tmp_path / "none")
    with pytest.raises(Unavailable, match="none"):
        KernelLogSampler(context).start()


@pytest.mark.parametrize("options", [{"simulate_gpus": 8}, {"process_filter": ("NODE", "1")}], ids=["GPUs", "filter"])
def test_log_of_the_machine_is_not_that_of_a_part_of_it(tmp_path, options):
    context = Context(**options)
    context.kmsg = str(tmp_path / "kmsg")
    (tmp_path / "kmsg").write_text(message(OOM))
    sampler = KernelLogSampler(context)
    sampler.start()
    assert list(sampler.tick(0.0)) == []


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel log is not readable")
def test_the_real_log_is_read_to_its_end():
    sampler = KernelLogSampler(Context())
    sampler.start()
    try:
        list(sampler.tick(0.0))
        assert len(list(sampler.tick(1.0))) < 50
    finally:
        sampler.stop()


def test_log_that_can_no_longer_be_read_is_reported_once(node, monkeypatch):
    node.tick()

    def fail(fd, size):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    [log] = node.tick()
    assert (log.source, log.severity) == ("agent", "warning")
    assert log.text.endswith("Input/output error")
    assert node.tick() == []
