"""What the kernel of a node reported before the console came, from a stand-in mounted over /dev/kmsg."""

import itertools
import json
import time
from pathlib import Path

import pytest
from program import batch
from rig import Rig

MESSAGES = Path(__file__).parent.parent / "unit" / "remote"

OOM = "Out of memory: Killed process 4711 (python3) total-vm:1kB"


def test_fault_from_before_is_a_finding_of_its_node_and_an_event_with_its_age(rig: Rig, tmp_path: Path) -> None:
    node, other = rig.nodes[:2]
    at_us = int((time.clock_gettime(time.CLOCK_MONOTONIC) - 120) * 1e6)
    for each, text in ((node, f"3,1,{at_us},-;{OOM}\n"), (other, "")):
        (each.folder / "kmsg").write_text(text)
        each.output(["mount", "--bind", f"{each.inside}/kmsg", "/dev/kmsg"])
    try:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name, other.name])
        run = batch(hosts, "--for", "3s", "--records", tmp_path / "records.ndjson", deadline_s=60.0)
    finally:
        for each in (node, other):
            each.output(["umount", "/dev/kmsg"])
    findings = [line for line in run.report["findings"] if line["id"] == "kernel_fault"]
    assert [(line["severity"], line["culprits"]) for line in findings] == [
        ("warning", [node.name, "oom_kill python3"])
    ], run.stdout
    assert OOM in findings[0]["text"]
    assert OOM not in run.stderr, "it is data, not a warning of the console"
    assert run.status == 0


def test_every_class_of_fault_is_found_among_many_messages_as_soon_as_a_node_is_opened(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(MESSAGES)
    from kernel_messages import KERNEL_MESSAGES

    node = rig.nodes[0]
    texts = {text: expected for _, text, expected in KERNEL_MESSAGES if expected[1] != "over"}
    harmless = itertools.cycle((MESSAGES / "boot_messages.txt").read_text().splitlines())
    lines = [line for text in texts for line in (*itertools.islice(harmless, 50_000 // len(texts)), text)]
    at_us = int((time.clock_gettime(time.CLOCK_MONOTONIC) - 600) * 1e6)
    (node.folder / "kmsg").write_text("".join(f"4,1,{max(200_000_000, at_us)},-;{line}\n" for line in lines))
    node.output(["mount", "--bind", f"{node.inside}/kmsg", "/dev/kmsg"])
    records = tmp_path / "records.ndjson"
    try:
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
        run = batch(hosts, "--for", "5s", "--records", records, deadline_s=60.0)
    finally:
        node.output(["umount", "/dev/kmsg"])
    logs = [record for line in records.open() if (record := json.loads(line))["kind"] == "log"]
    faults = [log for log in logs if log["source"] == "kernel" and not log["is_over"]]
    assert {(log["fault"], log["subject"] or "") for log in faults} >= {
        (name, subject) for name, _, subject, _ in texts.values() if name != "link"
    }, run.stderr
    assert {log["text"].partition(" (")[0].partition(" in /slurm/")[0] for log in faults} <= {
        text[:500].partition(" (")[0] for text in texts
    }
