"""The kernel's own log of this machine: a crash that the kernel reports there, and a line that a program writes there.

Alone: these tests write to what all agents on this machine without a process filter may read. They remove nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import gconsole

TRACE = Path("/proc/sys/debug/exception-trace")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/kmsg", os.W_OK), reason="only root writes /dev/kmsg"),
]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with Path("/tmp/gconsole-kmsg.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def faults_here(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[ssh]\ntransport = "local"\n[[nodes]]\nhosts = "here"\n')
    records = tmp_path / "records.ndjson"
    run = gconsole("batch", hosts, "--for", "5s", "--records", records)
    assert records.exists(), run.stderr  # its status depends on what else runs on this machine
    logs = [record for line in records.open() if (record := json.loads(line))["kind"] == "log"]
    return [log for log in logs if name in (log["subject"] or "")]


@pytest.mark.skipif(
    not shutil.which("cc") or not TRACE.exists() or TRACE.read_text().strip() == "0", reason="crashes are not logged"
)
def test_crash_that_the_kernel_reports_is_found_with_its_process(tmp_path: Path) -> None:
    name = f"gct-{secrets.token_hex(4)}"
    (tmp_path / "crash.c").write_text("int main(void) { *(volatile int *)8 = 1; return 0; }\n")
    subprocess.run(["cc", "-o", tmp_path / name, tmp_path / "crash.c"], check=True)
    process = subprocess.Popen([tmp_path / name], cwd=tmp_path)
    process.wait()
    [log] = faults_here(tmp_path, name)
    assert (log["source"], log["fault"], log["is_earlier"]) == ("kernel", "segfault", True)
    assert Path("/proc/self/ns/pid").readlink() != Path("pid:[4026531836]") or log["pid"] == process.pid


def test_line_that_a_program_writes_there_is_an_event_without_weight(tmp_path: Path) -> None:
    name = f"gct-{secrets.token_hex(4)}"
    with Path("/dev/kmsg").open("w") as log:
        log.write(f"<3>nfs: server {name} not responding, still trying\n")
    [found] = faults_here(tmp_path, name)
    assert (found["source"], found["fault"], found["severity"]) == ("kmsg", "nfs", "info")
