"""What a node recorded before the console came: a real journald and journalctl, wtmp and core dumps on a node."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import batch, gconsole
from rig import Node, Rig

JOURNALD = "/usr/lib/systemd/systemd-journald"
SOCKET = "/run/systemd/journal/dev-log"
needs_journald = pytest.mark.skipif(
    not (Path(JOURNALD).exists() and shutil.which("journalctl") and shutil.which("logger")), reason="no journald"
)
pytestmark = pytest.mark.usefixtures("needs_namespaces")
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


@pytest.fixture
def journal(rig: Rig) -> Iterator[Node]:
    """A node whose journald runs."""
    node = rig.nodes[0]
    node.output(["mkdir", "-p", "/run/systemd/journal", "/run/log/journal"])
    log = (node.folder / "journald.out").open("wb")
    daemon = node.run([JOURNALD], stdout=log, stderr=log)
    try:
        node.output(["sh", "-c", f"for i in $(seq 100); do [ -S {SOCKET} ] && exit; sleep 0.1; done; exit 1"])
        yield node
    finally:
        daemon.terminate()
        daemon.wait(20)
        node.output(["rm", "-rf", "/run/systemd", "/run/log"])


def logs_of(node: Node, rig: Rig, tmp_path: Path, *args: object) -> tuple[Any, list[dict[str, Any]]]:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    records = tmp_path / "records.ndjson"
    run = batch(hosts, "--for", "6s", "--records", records, *args, deadline_s=60.0)
    lines = [json.loads(line) for line in records.open()]
    return run, [line for line in lines if line["kind"] == "log"]


@needs_journald
def test_what_a_user_writes_to_the_journal_is_not_believed(journal: Node, rig: Rig, tmp_path: Path) -> None:
    attacks = [
        ["-p", "kern.err", XID],
        ["-p", "kern.emerg", "-t", "kernel", "Out of memory: Killed process 1 (python3) total-vm:1kB"],
        [
            "-t",
            "slurmd",
            "error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        ],
        ["-t", "systemd", "slurmd.service: Failed with result 'exit-code'."],
        ["-t", "x\n_TRANSPORT=kernel", XID],
    ]
    for options in attacks:
        journal.output(["logger", "--socket", SOCKET, *options], user=65534)
    journal.output(
        ["sh", "-c", "for i in $(seq 100); do journalctl -q | grep -q 'fallen off' && exit; sleep 0.1; done; exit 1"]
    )

    run, logs = logs_of(journal, rig, tmp_path)

    assert [log for log in logs if log["source"] in ("kernel", "journal", "kmsg", "core")] == []
    assert run.report["findings"] == [], run.stdout


@needs_journald
def test_journal_of_the_node_is_readable_in_doctor(journal: Node, rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[journal.name])
    run = gconsole("doctor", hosts, "--json")
    assert '"history"' in run.stdout and "journal" in run.stdout, run.stdout[-2000:]


def utmp(kind: int, at_s: float, user: str, kernel: str = "") -> bytes:
    """A record of x86_64 (struct utmp of glibc)."""
    head = struct.pack("=hxxi32s4s32s256shh", kind, 0, b"~", b"~~", user.encode(), kernel.encode(), 0, 0)
    return head + struct.pack("=iii16x20x", 0, int(at_s), 5)


def test_crash_and_core_dump_before_the_console_came_are_events_with_their_time(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[1]
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    (node.folder / "wtmp").write_bytes(
        utmp(2, booted_s - 9000, "reboot", "5.15.0-100") + utmp(7, booted_s - 300, "jo") + utmp(2, booted_s, "reboot")
    )
    core = f"/run/coredump/core.python3.1000.{'a' * 32}.4711.{int((time.time() - 2220) * 1e6)}.zst"
    for line in (
        ["mkdir", "-p", "/run/coredump", "/var/lib/systemd/coredump"], ["touch", core],
        ["mount", "--bind", "/run/coredump", "/var/lib/systemd/coredump"],
        ["mount", "--bind", f"{node.inside}/wtmp", "/var/log/wtmp"],
    ):  # fmt: skip
        node.output(line)
    try:
        run, logs = logs_of(node, rig, tmp_path)
    finally:
        for path in ("/var/log/wtmp", "/var/lib/systemd/coredump"):
            node.output(["umount", path])
    [dump] = [log for log in logs if log["source"] == "core"]
    assert (dump["fault"], dump["subject"], dump["pid"], dump["is_earlier"]) == ("core_dump", "python3", 4711, True)
    assert abs((dump["t"] - dump["at"]) / 1e9 - 2220) < 60
    boots = [log for log in logs if log["source"] == "boot"]
    if time.clock_gettime(time.CLOCK_BOOTTIME) < 23 * 3600:
        [boot] = boots
        assert boot["severity"] == "warning"
        assert "without a shutdown before" in boot["text"] and "instead of 5.15.0-100" in boot["text"]
    assert run.status == 0, "no job was concerned"
