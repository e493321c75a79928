"""Faults in the kernel log: which messages are faults, and the log before and after the agent started."""

import itertools
import os
import time
from pathlib import Path

import pytest
from fake_proc import check
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_messages import KERNEL_MESSAGES

from gconsole_remote.kernel import faults
from gconsole_remote.kernel.faults import fault_of, oom_cgroup
from gconsole_remote.kernel.fold import MOST_EARLIER, SETTLED_S
from gconsole_remote.kernel.log import KernelLog, parse_message
from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.kernel_log import MOST_SIMILAR, KernelLogSampler

BOOT_MESSAGES = (Path(__file__).parent / "boot_messages.txt").read_text().splitlines()
TEXTS = [text for _, text, _ in KERNEL_MESSAGES]


@pytest.mark.parametrize(("source", "text", "expected"), KERNEL_MESSAGES, ids=TEXTS)
def test_message_is_recognised_with_its_class_and_subject(source, text, expected):
    fault = fault_of(text)
    assert fault is not None, source
    assert (fault.name, "over" if fault.is_over else fault.severity, fault.subject, fault.pid) == expected, source


@pytest.mark.parametrize("rule", [*faults._RULES, faults._XID, faults._OOM_CGROUP], ids=lambda rule: rule.name)
@settings(max_examples=60)
@given(data=st.data())
def test_every_message_that_a_pattern_matches_has_one_of_its_words(rule, data):
    text = data.draw(st.from_regex(rf"\A(?:{rule.text})"))
    assert any(word in text for word in rule.words)


@pytest.mark.parametrize("text", BOOT_MESSAGES)
def test_messages_of_a_healthy_boot_are_no_faults(text):
    fault = fault_of(text)
    assert fault is None or fault.is_over


def test_cgroup_of_a_process_to_be_killed_is_read():
    line = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_7,mems_allowed=0-1,oom_memcg=/slurm/job_7,"
        "task_memcg=/slurm/job_7/step_0,task=a,pid=1,uid,pid=4711,uid=1000"
    )
    assert oom_cgroup(line) == (4711, "/slurm/job_7/step_0")
    assert oom_cgroup("oom-kill:constraint=" + "," * 100_000) is None


#: Names of at most 15 bytes that a user may give a process.
HOSTILE_NAMES = [
    "Kernel panic", "NVRM: Xid (PCI:", "kernel BUG at ", "Oops: ", "x] general prot", "a[1]: segfault ",
    "EXT4-fs error (",
    "nfs: server a O", "EDAC MC0: 1 UE ", "nvme nvme0: I/O", "INFO: task x:1 ", "traps: a[1] trap", "\\x0aNVRM: Xid",
    "a) total-vm:", "\\xff" * 15, "eth0: Link down",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%s[77]: segfault at 0 ip 0 sp 0 error 4 in a[1+2]", ("segfault", 77)),
        ("traps: %s[77] general protection fault ip:7f sp:7f error:0", ("segfault", 77)),
        ("Out of memory: Killed process 77 (%s) total-vm:1kB, anon-rss:1kB", ("oom_kill", 77)),
        ("INFO: task %s:77 blocked for more than 120 seconds.", ("hung_task", 77)),
        ("%s: page allocation failure: order:4, mode:0x0", ("allocation_failure", None)),
        ("%s invoked oom-killer: gfp_mask=0x0, order=0", None),
        ("%s (77): drop_caches: 3", None),
    ],
)
def test_name_of_a_process_does_not_pass_for_another_fault(name, line, expected):
    fault = fault_of(line % name)
    assert (fault and (fault.name, fault.pid)) == expected


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

    def append_at(self, since_boot_s, text):
        with self.log.open("a") as file:
            file.write(f"6,1,{since_boot_s * 1_000_000},-;{text}\n")

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
    node.append(*(text for text in TEXTS for _ in range(MOST_EARLIER + 5)), age_s=60.0)
    logs = node.tick()
    assert {log.fault for log in logs} == {expected[0] for _, _, expected in KERNEL_MESSAGES}
    assert all(sum(log.fault == name for log in logs) <= MOST_EARLIER for name in {log.fault for log in logs})


def test_all_faults_are_found_among_many_harmless_messages_and_nothing_else(node):
    harmless = itertools.cycle(BOOT_MESSAGES)
    texts = [text for _, text, expected in KERNEL_MESSAGES if expected[1] != "over" and expected[0] != "link"]
    spread = 50_000 // len(texts)
    node.append(*(line for text in texts for line in (*itertools.islice(harmless, spread), text)), age_s=60.0)
    logs = node.tick()
    found = {log.text.partition(" in /slurm/")[0] for log in logs if not log.is_over}
    assert found == {text[:500] for text in texts}


def test_message_that_a_program_wrote_is_an_event_of_no_weight(node):
    """As of `echo '<3>NVRM: Xid …' > /dev/kmsg`, or of journald with ForwardToKMsg for any user's logger."""
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    for priority in (11, 14, 27, 187):
        with node.log.open("a") as file:
            file.write(message(xid).replace("4,", f"{priority},", 1))
    logs = node.tick()
    assert {(log.source, log.severity, log.try_) for log in logs} == {("kmsg", "info", "")}
    assert all(log.text == xid + " (written to the kernel log by a program)" for log in logs)
    assert [text for _, text in KernelLog(str(node.log), is_whole=True).messages()] == []


def test_killed_process_has_its_memory_cgroup(node):
    node.append("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/job_7,task=python3,pid=4711,uid=1000", OOM)
    [log] = node.tick()
    assert log.text == OOM + " in /slurm/job_7"


def test_end_of_a_fault_that_was_not_reported_is_no_event(node):
    node.append(
        "nfs: server filer01 OK", "CPU3: Core temperature/speed normal", "mlx5_core 0000:3b:00.0 ens3f0: Link up"
    )
    assert node.tick() == []
    node.append("nfs: server filer01 not responding, still trying", "nfs: server filer01 OK", "nfs: server filer01 OK")
    assert [log.is_over for log in node.tick()] == [False, True]


DOWN, UP = "mlx5_core 0000:3b:00.0 ens3f0: Link down", "mlx5_core 0000:3b:00.0 ens3f0: Link up"


def test_link_that_flaps_is_one_event_with_its_count(node):
    node.append(UP, age_s=400)
    for number in range(5):
        node.append(DOWN, age_s=300 - 20 * number)
        node.append(UP, age_s=297 - 20 * number)
    [log] = node.tick()
    assert (log.fault, log.severity, log.subject, log.is_over) == ("link_flap", "warning", "ens3f0", False)
    assert log.text == f"{DOWN} (link down 5 times within 83 s, now up again)"


def test_link_that_goes_down_while_watched_is_reported_at_once_and_then_its_flaps_together(node):
    node.tick()
    node.append(DOWN)
    [log] = node.tick()
    assert (log.fault, log.text, log.is_over) == ("link", DOWN, False)
    node.append(UP)
    [log] = node.tick()
    assert log.is_over and log.text.startswith(f"{DOWN} (up again after 0 s)")
    node.append(*[DOWN, UP] * 20)
    assert node.tick() == []
    node.append("a later message", age_s=-60.0)
    until_settled = [log for runs in range(3) for log in settle(node)]
    assert [log.fault for log in until_settled] == ["link_flap"] and "link down 21 times" in until_settled[0].text


def settle(node):
    """A tick in which enough time has passed since the last change of a link."""
    with pytest.MonkeyPatch.context() as patch:
        since_boot = time.clock_gettime
        patch.setattr(time, "clock_gettime", lambda clock: since_boot(clock) + SETTLED_S)
        return node.tick()


def test_two_links_down_at_different_times_are_two_events(node):
    node.append_at(2000, DOWN)
    node.append_at(3000, UP)
    node.append_at(4000, DOWN)
    logs = node.tick()
    assert [(log.text, log.is_over) for log in logs] == [(DOWN + " (up again after 1000 s)", True), (DOWN, False)]


def test_link_that_is_configured_at_boot_is_no_fault(node):
    node.append_at(3, "r8169 0000:03:00.0 enp3s0: Link is Down")
    node.append_at(6, "r8169 0000:03:00.0 enp3s0: Link is Up - 1Gbps/Full - flow control rx/tx")
    node.append_at(7, "mlx5_core 0000:3b:00.1 ens3f1: Link down")
    assert [(log.subject, log.severity) for log in node.tick()] == [("ens3f1", "info")]


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
        file.write(b"\xff\xfe\x00" * 5000 + b"\n" + message("nfs: server \x1b[2J\x1b]0;x\x07 not responding").encode())
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


def _may_write_to_the_kernel_log():
    policy = Path("/proc/sys/kernel/printk_devkmsg")
    return os.access("/dev/kmsg", os.R_OK | os.W_OK) and policy.exists() and policy.read_text().strip() != "off"


@pytest.mark.skipif(not _may_write_to_the_kernel_log(), reason="the kernel log is not writable")
def test_line_that_is_written_to_the_real_log_is_an_event_of_no_weight():
    sampler = KernelLogSampler(Context())
    sampler.start()
    text = f"nfs: server test-{os.getpid()} not responding, still trying"
    try:
        list(sampler.tick(0.0))
        Path("/dev/kmsg").write_text(f"<3>{text}\n")
        logs = [check(kind, fields) for kind, fields in sampler.tick(1.0)]
    finally:
        sampler.stop()
    [log] = [log for log in logs if text in log.text]
    assert (log.source, log.severity) == ("kmsg", "info")


def test_log_that_can_no_longer_be_read_is_reported_once(node, monkeypatch):
    node.tick()

    def fail(fd, size):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    [log] = node.tick()
    assert (log.source, log.severity) == ("agent", "warning")
    assert log.text.endswith("Input/output error")
    assert node.tick() == []
