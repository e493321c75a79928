"""What a node recorded before the agent started: boots, core dumps, the journal, Slurm."""

import json
import os
import struct
import time
from pathlib import Path

import pytest
from fake_proc import check
from service_messages import SERVICE_MESSAGES, UNIT_MESSAGES

from gconsole_remote.agent import commands
from gconsole_remote.history import boots, core_dumps, journal, slurm
from gconsole_remote.history.service_faults import service_fault, unit_fault
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.history import HistorySampler

BOOT = "a" * 32
OLD_BOOT = "b" * 32
NOW = time.time()


class TestServiceMessages:
    @pytest.mark.parametrize(
        ("source", "unit", "text", "name", "severity", "subject"), SERVICE_MESSAGES, ids=lambda it: str(it)[:40]
    )
    def test_message_is_recognised_with_its_class_and_subject(self, source, unit, text, name, severity, subject):
        fault = service_fault(unit, text)
        if name is None:
            assert fault is None
        else:
            assert fault is not None, source
            assert (fault.name, "over" if fault.is_over else fault.severity, fault.subject) == (name, severity, subject)

    def test_message_of_one_service_is_none_of_another(self):
        for _, unit, text, name, *_ in SERVICE_MESSAGES:
            if name is not None and unit != "ssh.service":
                assert service_fault("ssh.service", text) is None or unit == "sshd.service"

    @pytest.mark.parametrize(("unit", "text", "severity"), UNIT_MESSAGES)
    def test_failure_of_an_important_unit_is_recognised(self, unit, text, severity):
        fault = unit_fault(unit, text)
        assert (fault and ("over" if fault.is_over else fault.severity)) == severity


# -- boots ------------------------------------------------------------------------------------------------------------


def record(kind, at_s, user="", kernel="", length=384):
    """One record of wtmp, as glibc writes it (struct utmp)."""
    head = struct.pack("=hxxi32s4s32s256shh", kind, 0, b"~", b"~~", user.encode(), kernel.encode(), 0, 0)
    if length == 384:
        return head + struct.pack("=iii16x20x", 0, int(at_s), 5)
    return head + struct.pack("=qqq16x20x4x", 0, int(at_s), 5)


def wtmp(tmp_path, *records, length=384):
    path = tmp_path / "wtmp"
    path.write_bytes(b"".join(record(*fields, length=length) for fields in records))
    return str(path)


@pytest.mark.parametrize("length", [384, 400])
def test_boot_after_a_shutdown_and_its_kernel_are_read_from_wtmp(tmp_path, length):
    path = wtmp(
        tmp_path, (2, 1000, "reboot", "5.15.0-100"), (7, 1500, "jo"), (1, 2000, "shutdown", "5.15.0-100"),
        (2, 2100, "reboot", "5.15.0-105"), (1, 2101, "runlevel"), length=length,
    )  # fmt: skip
    boot = boots.last_boot(boots.read_wtmp(path), booted_s=2095.0)
    assert (boot.was_orderly, boot.kernel_before) == (True, "5.15.0-100")


def test_boot_without_a_shutdown_is_a_crash_with_the_last_sign_of_life(tmp_path):
    path = wtmp(tmp_path, (2, 1000, "reboot", "5.15"), (7, 1500, "jo"), (2, 2100, "reboot", "5.15"))
    boot = boots.last_boot(boots.read_wtmp(path), booted_s=2095.0)
    assert boot.was_orderly is False
    assert int(boot.last_s) == 1500


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(7, 1500, "jo")],
        [(2, 2100, "reboot", "5.15")],  # the file was rotated
        [(7, 1500, "jo"), (2, 2100, "reboot", "5.15")],
        [(2, 1000, "reboot", "5.15"), (2, 99000, "reboot", "5.15")],  # not the present boot
    ],
)
def test_boot_of_which_wtmp_does_not_tell_is_unknown(tmp_path, records):
    assert boots.last_boot(boots.read_wtmp(wtmp(tmp_path, *records)), booted_s=2095.0).was_orderly is None


@pytest.mark.parametrize("data", [b"x" * 384, b"\xff" * 3840, b"\x00" * 383, os.urandom(400 * 7)])
def test_file_of_another_format_is_none(tmp_path, data):
    (tmp_path / "wtmp").write_bytes(data)
    with pytest.raises(ValueError, match="not the format"):
        boots.read_wtmp(str(tmp_path / "wtmp"))


def test_link_and_fifo_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("fifo", "link", "none"):
        with pytest.raises(OSError):
            boots.read_wtmp(str(tmp_path / name))


def test_only_the_end_of_a_large_wtmp_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(boots, "MAX_BYTES", 384 * 3 + 100)
    path = wtmp(tmp_path, *[(7, at, "jo") for at in range(1000, 1100)], (2, 2100, "reboot", "5.15"))
    assert len(boots.read_wtmp(path)) == 3


# -- core dumps -------------------------------------------------------------------------------------------------------


def find(folder, pattern, since_s=0.0):
    refused = []
    places = [(str(folder), expression) for place, expression in core_dumps.folders(pattern) if place == str(folder)]
    return sorted(core_dumps.find(places, since_s, lambda *why: refused.append(why)), key=lambda it: it.at_s), refused


def test_core_dump_of_systemd_is_described_by_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "var/lib/systemd/coredump"
    folder.mkdir(parents=True)
    name = f"core.pt_main\\x2ethread.1000.{BOOT}.4711.1700000000000000.zst"
    (folder / name).write_bytes(b"x" * 2048)
    places = core_dumps.folders("|/usr/lib/systemd/systemd-coredump %P %u", root=str(tmp_path))
    [dump] = core_dumps.find(places, 0.0, lambda *why: None)
    assert (dump.comm, dump.pid, dump.at_s, dump.size) == ("pt_main.thread", 4711, 1700000000, 2048)
    assert list(core_dumps.find(places, 1700000001.0, lambda *why: None)) == []


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("core.%e.%p.%h.%t", "core.python3.4711.node7.1700000000", ("python3", 4711, "")),
        ("core-%e-%s-%u-%g-%p-%t", "core-python3-11-1000-1000-4711-1700000000", ("python3", 4711, "11")),
        ("core", "core.4711", ("", 4711, "")),
        ("%p.core", "4711.core", ("", 4711, "")),
        ("core.%p.%p", "core.12.12", ("", 12, "")),
    ],
)
def test_core_dump_is_found_by_the_pattern_of_the_kernel(tmp_path, pattern, name, expected):
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "another file").write_bytes(b"x")
    [dump], _ = find(tmp_path, f"{tmp_path}/{pattern}")
    assert (dump.comm, dump.pid, dump.signal) == expected


def test_links_fifos_and_invalid_names_are_no_core_dumps(tmp_path):
    (tmp_path / "core.1").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "core.2")
    for name in ("core.²", "core.99999999999", "core.-1", "core.1.2"):
        (tmp_path / name).write_bytes(b"x")
    assert find(tmp_path, f"{tmp_path}/core.%p") == ([], [])


@pytest.mark.parametrize(
    "pattern", ["", "core", "|/bin/x %p", "/tmp/%p/core", "relative/core.%p", "/" + "x" * 5000, "/a/%("]
)
def test_pattern_without_a_folder_of_its_own_adds_none(pattern):
    assert all("systemd" in place or "abrt" in place or "crash" in place or place == "/a"
               for place, _ in core_dumps.folders(pattern))  # fmt: skip


# -- the journal ------------------------------------------------------------------------------------------------------


def entry(text, *, boot=BOOT, age_s=600.0, mono_s=None, **fields):
    at_us = int((NOW - age_s) * 1e6)
    line = {"MESSAGE": text, "__REALTIME_TIMESTAMP": str(at_us), "__CURSOR": f"s={at_us}", "_BOOT_ID": boot, **fields}
    if mono_s is not None:
        line["_SOURCE_MONOTONIC_TIMESTAMP"] = str(int(mono_s * 1e6))
    return line


def kernel(text, **fields):
    return entry(text, **{"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "mono_s": 50.0, **fields})


def of_service(unit, text, **fields):
    return entry(text, **{"_TRANSPORT": "stdout", "_UID": "0", "_SYSTEMD_UNIT": unit, "_PID": "99", **fields})


JOURNALCTL = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["FAKE_JOURNAL"]) as file:
    entries = json.load(file)
with open(os.environ["FAKE_JOURNAL"] + ".calls", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
after = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--after-cursor=")]
if after:
    cursors = [e["__CURSOR"] for e in entries]
    if after[0] not in cursors:
        sys.exit("Failed to seek to cursor: Invalid argument")
    place = cursors.index(after[0])
    entries = entries[:place] if "--reverse" in sys.argv else entries[place + 1:]  # as systemd 252
since = [float(a.split("@", 1)[1]) for a in sys.argv if a.startswith("--since=@")]
entries = [e for e in entries if not since or int(e["__REALTIME_TIMESTAMP"]) / 1e6 >= since[0]]
is_kernel = "_TRANSPORT=kernel" in sys.argv
for entry in reversed(entries) if "--reverse" in sys.argv else entries:
    if (entry.get("_TRANSPORT") == "kernel") == is_kernel and "--boot=-1" not in sys.argv:
        print(json.dumps(entry))
"""


class Agent:
    """Keeps the missing capabilities that a sampler reports."""

    def __init__(self):
        self.missing = []

    def miss(self, name, text, try_=""):
        self.missing.append((name, text))


class Node:
    """A history sampler with a journalctl of its own, first in PATH, and a kernel log stand-in."""

    def __init__(self, folder: Path, monkeypatch, script=JOURNALCTL, obstacle=None):
        self.folder = folder
        (folder / "bin").mkdir()
        if script is not None:
            (folder / "bin/journalctl").write_text(script)
            (folder / "bin/journalctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH'] if script is not None else ''}")
        monkeypatch.setenv("FAKE_JOURNAL", str(folder / "journal"))
        monkeypatch.setattr(journal, "obstacle", lambda: obstacle)
        monkeypatch.setattr(boots, "read_wtmp", lambda: [])
        monkeypatch.setattr(core_dumps, "core_pattern", lambda: "")
        monkeypatch.setattr(core_dumps, "folders", lambda pattern: [])
        monkeypatch.setattr(slurm, "is_present", lambda: False)
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("6,1,100000000,-;the oldest message of the kernel log\n")
        context = Context(boot_id=BOOT)
        context.kmsg = str(self.kmsg)
        self.agent = Agent()
        self.journal = []
        self.sampler = HistorySampler(context, self.agent)

    def add(self, *entries):
        self.journal += entries
        (self.folder / "journal").write_text(json.dumps(self.journal))

    def start(self):
        """The records of all steps, without that of the boot."""
        if not self.journal:
            self.add()
        self.sampler.start()
        logs = []
        while self.sampler.interval_s < 1.0:
            logs += self.tick()
        return [log for log in logs if log.source != "boot"]

    def tick(self, now=0.0):
        return [check(kind, fields) for kind, fields in self.sampler.tick(now)]


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
OOM = "error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."


def test_kernel_messages_older_than_the_kernel_log_are_read_from_the_journal_once(node):
    node.add(kernel(XID, mono_s=50.0), kernel("nfs: server a not responding, still trying", mono_s=100.0))
    [log] = node.start()
    assert (log.source, log.fault, log.text, log.is_over, log.is_earlier) == ("kernel", "xid", XID, False, True)
    assert abs(log.at / 1e9 - (NOW - 600)) < 2, "the message of the kernel log itself is not repeated"


def test_fault_of_an_earlier_boot_is_an_event_that_is_over(node):
    node.add(kernel(XID, boot=OLD_BOOT, mono_s=5000.0))
    [log] = node.start()
    assert log.is_over and log.severity == "error" and log.text == XID + " (before the last boot)"


def test_message_of_a_service_is_read_and_later_ones_follow(node):
    node.add(of_service("slurmd.service", OOM))
    [log] = node.start()
    assert (log.source, log.fault, log.subject, log.text) == ("journal", "slurm_oom", "7.0", f"slurmd.service: {OOM}")
    node.add(of_service("chronyd.service", "Forward time jump detected!", age_s=-1, _UID="998"))
    assert [log.fault for log in node.tick(time.monotonic() + 1000)] == ["clock_step"]
    assert node.tick(time.monotonic() + 5000) == []


def test_entries_follow_once_and_in_order_also_after_the_journal_was_rotated(node):
    node.add(of_service("slurmd.service", OOM, age_s=300))
    assert len(node.start()) == 1
    node.add(*(of_service("slurmd.service", OOM.replace("7.0", f"{n}.0"), age_s=-n) for n in (10, 11, 12)))
    assert [log.subject for log in node.tick(time.monotonic() + 1000)] == ["10.0", "11.0", "12.0"]
    node.journal = node.journal[:1]
    written_s = time.time() - NOW + 20  # after the last read, however long the tests before this one took
    node.add(of_service("slurmd.service", OOM.replace("7.0", "13.0"), age_s=-written_s))
    assert node.tick(time.monotonic() + 2000) == []
    assert [log.subject for log in node.tick(time.monotonic() + 3000)] == ["13.0"]


def test_kernel_messages_follow_where_the_kernel_log_may_not_be_read(node):
    node.sampler.context.kmsg = str(node.folder / "none")
    node.add(kernel(XID, mono_s=50.0), kernel("nfs: server a not responding, still trying", mono_s=5000.0, age_s=100))
    assert [log.fault for log in node.start()] == ["xid", "nfs"]
    node.add(kernel("nfs: server a OK", mono_s=6000.0, age_s=-5))
    assert [(log.fault, log.is_over) for log in node.tick(time.monotonic() + 1000)] == [("nfs", True)]
    assert node.tick(time.monotonic() + 2000) == []


def test_journal_is_read_seldom(node):
    node.start()
    calls = len((node.folder / "journal.calls").read_text().splitlines())
    for second in range(25):
        node.tick(time.monotonic() + second)
    assert len((node.folder / "journal.calls").read_text().splitlines()) == calls


@pytest.mark.parametrize(
    "forged",
    [
        entry(XID, _TRANSPORT="syslog", _UID="1000", SYSLOG_IDENTIFIER="kernel", SYSLOG_FACILITY="0"),
        kernel(XID, _TRANSPORT="syslog", _UID="0"),
        kernel(XID, SYSLOG_FACILITY="1"),
        entry(OOM, _TRANSPORT="syslog", _UID="1000", SYSLOG_IDENTIFIER="slurmd", _SYSTEMD_UNIT="session-3.scope"),
        of_service("slurmd.service", OOM, _UID="1000"),
        of_service("slurmd.service", OOM, _UID=None),
        of_service("slurmd.service", OOM, _UID="-1"),
        of_service("user@1000.service", OOM, UNIT="slurmd.service"),
        of_service("init.scope", "slurmd.service: Failed with result 'x'.", UNIT="slurmd.service", _PID="77"),
        entry("core dump", _TRANSPORT="journal", _UID="1000", MESSAGE_ID=journal.CORE_DUMP, COREDUMP_PID="1"),
        of_service("session-3.scope", "core dump", MESSAGE_ID=journal.CORE_DUMP, COREDUMP_PID="1"),
    ],
    ids=str,
)
def test_entry_that_a_user_may_have_written_is_not_believed(node, forged):
    node.add(forged)
    assert node.start() == []


def test_failed_unit_and_its_next_start_are_read(node):
    unit = {"UNIT": "slurmd.service", "_PID": "1", "_SYSTEMD_UNIT": "init.scope", "_TRANSPORT": "journal"}
    node.add(
        of_service("", "slurmd.service: Failed with result 'exit-code'.", **unit),
        of_service("", "Started slurmd.service - Slurm node daemon.", age_s=60, **unit),
    )
    logs = node.start()
    assert [(log.fault, log.subject, log.is_over, log.severity) for log in logs] == [
        ("service_failed", "slurmd.service", False, "error"),
        ("service_failed", "slurmd.service", True, "info"),
    ]


def test_core_dump_of_the_journal_has_its_program_process_and_signal(node):
    node.add(of_service(
        "systemd-coredump@1-1-0.service", "Process 4711 (python3) of user 1 dumped core.\n\nStack trace of thread 1:",
        _UID="0", MESSAGE_ID=journal.CORE_DUMP, COREDUMP_PID="4711", COREDUMP_COMM="python3", COREDUMP_SIGNAL="11",
        COREDUMP_TIMESTAMP=str(int((NOW - 90) * 1e6)), COREDUMP_FILENAME="/var/lib/systemd/coredump/core.python3.x",
    ))  # fmt: skip
    [log] = node.start()
    assert (log.source, log.fault, log.subject, log.pid) == ("core", "core_dump", "python3", 4711)
    assert "SIGSEGV" in log.text and "Stack trace" not in log.text
    assert 85 < NOW - log.at / 1e9 < 95


@pytest.mark.parametrize(
    "message", [None, [1, 2, 3], [list("a")], {"a": 1}, "x" * 60000, "a\nb\x1b[2J\x00", [*XID.encode(), 256]]
)
def test_message_of_any_form_does_no_harm(node, message):
    node.add(kernel(message), of_service("slurmd.service", message), of_service("slurmd.service", OOM))
    assert [log.fault for log in node.start()] == ["slurm_oom"]


def test_message_of_bytes_and_of_several_lines_is_read_as_one_line(node):
    node.add(kernel(list(b"a\nb[7]: segfault at 0 ip 0 sp 0 error 4 in x[1+2]")), kernel("x\n" + XID))
    [log] = node.start()
    assert (log.fault, log.subject, log.pid) == ("segfault", "a\\x0ab", 7)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "journalctl: "),
        ("#!/bin/sh\necho 'Hint: x' >&2; exit 1\n", "Hint: x"),
        ("#!/bin/sh\nexit 3\n", "exit status 3"),
        ("#!/bin/sh\necho 'May 01 12:00:00 node7 kernel: x'\n", "another format"),
        ("#!/bin/sh\nexec sleep 600\n", "timed out"),
        ("#!/bin/sh\nexec yes '[1, 2]'\n", "another format"),
        ("#!/bin/sh\nexec tr '\\0' 'x' < /dev/zero\n", "MiB"),
    ],
    ids=["absent", "refused", "status", "text", "hangs", "endless", "one endless line"],
)
def test_journal_that_cannot_be_read_is_a_missing_capability_and_nothing_else(tmp_path, monkeypatch, script, words):
    monkeypatch.setattr(journal, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(journal, "MAX_BYTES", 1 << 20)
    node = Node(tmp_path, monkeypatch, script)
    assert node.start() == []
    [(name, text)] = node.agent.missing
    assert name == "journal" and (
        words in text or ((script or "").startswith("#!/bin/sh\nexec") and "timed out" in text)
    )
    assert not commands._running


def test_journal_without_permission_is_a_missing_capability(tmp_path, monkeypatch):
    node = Node(tmp_path, monkeypatch, obstacle="the journal of the system may not be read")
    assert node.start() == []
    assert [name for name, _ in node.agent.missing] == ["journal"]


def test_obstacle_is_the_permission_of_the_files_of_the_system(tmp_path, monkeypatch):
    assert journal.obstacle((str(tmp_path),)) == ""
    (tmp_path / BOOT).mkdir()
    (tmp_path / BOOT / "user-1000.journal").touch()
    assert journal.obstacle((str(tmp_path),)) == ""
    (tmp_path / BOOT / "system.journal").touch()
    assert journal.obstacle((str(tmp_path),)) is None
    assert "may not be read" in journal.obstacle((str(tmp_path),), can_read=lambda path, mode: False)


@pytest.mark.parametrize("options", [{"simulate_gpus": 8}, {"process_filter": ("NODE", "1")}], ids=["GPUs", "filter"])
def test_history_of_the_machine_is_not_that_of_a_part_of_it(node, options):
    node.add(kernel(XID))
    sampler = HistorySampler(Context(**options), node.agent)
    sampler.start()
    assert list(sampler.tick(0.0)) == [] and node.agent.missing == []


# -- the last boot ----------------------------------------------------------------------------------------------------


class TestBoot:
    def boot(self, node, monkeypatch, *records, since_boot_s=720.0, last_fault=None):
        monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot_s)
        booted_s = time.time() - since_boot_s
        monkeypatch.setattr(boots, "read_wtmp", lambda: [
            boots.Record(booted_s + at_s, kind == "boot", kind == "shutdown", kernel) for kind, at_s, kernel in records
        ])  # fmt: skip
        node.sampler._last_fault = last_fault and (booted_s + last_fault[0], last_fault[1])
        return [check(kind, fields) for kind, fields in node.sampler._boot()]

    def test_orderly_reboot_is_an_event_with_the_kernels(self, node, monkeypatch):
        [log] = self.boot(node, monkeypatch, ("boot", -9000, "5.15.0"), ("shutdown", -60, ""), ("boot", 2, "6"))
        assert (log.source, log.fault, log.severity, log.is_earlier) == ("boot", "reboot", "info", True)
        assert log.text == f"the node was shut down and booted; kernel {os.uname().release} instead of 5.15.0"
        assert 700 < time.time() - log.at / 1e9 < 740

    def test_crash_is_a_warning_with_the_last_sign_of_life_and_the_last_fault(self, node, monkeypatch):
        release = os.uname().release
        records = ("boot", -9000, release), ("", -200, ""), ("boot", 2, release)
        [log] = self.boot(node, monkeypatch, *records, last_fault=(-210, XID))
        assert (log.severity, bool(log.try_)) == ("warning", True)
        assert "without a shutdown before" in log.text
        assert log.text.endswith(f"last sign of life 200 s before; last fault: {XID}")

    def test_unknown_past_is_not_called_a_crash(self, node, monkeypatch):
        [log] = self.boot(node, monkeypatch)
        assert (log.severity, log.text) == ("info", "the node booted")

    def test_boot_of_days_ago_is_no_event(self, node, monkeypatch):
        assert self.boot(node, monkeypatch, since_boot_s=90_000.0) == []

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            (["Journal stopped", "Reached target System Reboot."], True),
            (["Reached target shutdown.target - System Shutdown.", "x"], True),
            (["Started Session 3 of user jo.", "x"], False),
            ([], None),
        ],
    )
    def test_end_of_the_journal_before_shows_whether_it_was_shut_down(self, texts, expected):
        entries = [journal.Entry(of_service("init.scope", text)) for text in texts]
        assert boots.boot_of_journal(entries).was_orderly is expected


# -- Slurm ------------------------------------------------------------------------------------------------------------

NODE = (
    "NodeName=node7 Arch=x86_64 CoresPerSocket=96 CPUAlloc=0 State={state} ThreadsPerCore=1 Partitions=all "
    "BootTime=2024-05-01T10:00:00 CurrentWatts=0 ExtSensorsJoules=n/s{reason}"
)
JOB = """JobId=77 JobName=my job JobState=FAILED
   UserId=jo(1000) GroupId=jo(1000) MCS_label=N/A
   Priority=1 Nice=0 Account=x QOS=normal
   JobState={state} Reason={reason} Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode={code}
   RunTime=00:10:00 TimeLimit=01:00:00 TimeMin=N/A
"""


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    def answers(text):
        path = tmp_path / "bin" / "scontrol"
        path.parent.mkdir(exist_ok=True)
        (tmp_path / "answer").write_text(text)
        path.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    return answers


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("IDLE", "", None),
        ("MIXED+CLOUD", "", None),
        ("ALLOCATED", " Comment=DOWN", None),
        (
            "DOWN*",
            " Reason=Not responding [slurm@2024-05-01T12:00:00]",
            ("error", "DOWN+NOT_RESPONDING: Not responding"),
        ),
        ("IDLE+DRAIN", " Reason=gpu 3 lost [root@2024-05-01T12:00:00]", ("warning", "IDLE+DRAIN: gpu 3 lost")),
        ("DOWN+DRAIN", " Reason=bad disk", ("error", "DOWN+DRAIN: bad disk")),
        ("FAILING", "", ("error", "FAILING")),
    ],
)
def test_state_of_the_node_in_slurm(scontrol, state, reason, expected):
    scontrol(NODE.format(state=state, reason=reason))
    fields = slurm.node_state("node7")
    assert (fields and (fields["severity"], expected[1] in fields["text"])) == (expected and (expected[0], True))


def test_state_of_the_job_in_slurm_is_not_taken_from_its_name(scontrol):
    scontrol(JOB.format(state="RUNNING", reason="None", restarts=0, code="0:0"))
    assert slurm.job_state("77")[1]["text"] == "Slurm job 77: RUNNING"
    scontrol(JOB.format(state="TIMEOUT", reason="TimeLimit", restarts=2, code="0:15"))
    fields = slurm.job_state("77")[1]
    assert fields["text"] == "Slurm job 77: TIMEOUT, TimeLimit, restarted 2 times by Slurm, signal 15"
    assert (fields["severity"], fields["fault"]) == ("warning", "slurm_job")


@pytest.mark.parametrize("text", ["", "slurm_load_node error: Unable to contact slurm controller\n", "\x00" * 1000])
def test_answer_without_a_state_is_an_error(scontrol, text):
    scontrol(text)
    for ask in (lambda: slurm.node_state("node7"), lambda: slurm.job_state("77")):
        with pytest.raises(ValueError, match="no state"):
            ask()


@pytest.mark.parametrize("name", ["-all", "a b", "", "x" * 100, "a;b"])
def test_name_that_is_none_of_a_node_is_not_asked_for(scontrol, name):
    scontrol("State=DOWN")
    with pytest.raises(ValueError, match="no state"):
        slurm.node_state(name)
