"""What the kernel of a node reported before the console came, from a stand-in mounted over /dev/kmsg."""

import time
from pathlib import Path

from program import batch
from rig import Rig

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
