"""A rank killed by the kernel's OOM killer: the kernel's message is in the job status."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig
from run_command import processes_of, run, start_job

LIMIT_BYTES = 192 << 20
MEMORY = Path("/sys/fs/cgroup/memory")

GREEDY = """
import os, time
if os.environ["RANK"] == "1":
    print("loading the model", flush=True)
    held = [bytearray(16 << 20) for _ in range(64)]
time.sleep(600)
"""


@contextlib.contextmanager
def small_cgroup(name: str) -> Iterator[Path]:
    """A memory cgroup for the test; skips if it cannot be created."""
    path = MEMORY / name
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            path.rmdir()
        pytest.skip(f"no memory cgroup can be made: {error.strerror}")
    try:
        yield path
    finally:
        for pid in (path / "cgroup.procs").read_text().split():
            (MEMORY / "cgroup.procs").write_text(pid)
        path.rmdir()


def test_status_reports_a_rank_killed_by_the_oom_killer(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    folder = script("greedy.py", GREEDY)
    node = rig.nodes[1]
    with small_cgroup(f"gconsole-test-{os.getpid()}") as cgroup:
        [sshd] = [line.split()[0] for line in node.ps().splitlines() if "[listener]" in line]
        (cgroup / "cgroup.procs").write_text(str(node.outer_pid(int(sshd))))
        job = start_job(hosts, "--select", "node[1-2]", "--procs-per-node", 1, "--launcher", "env",
                        "--workdir", folder, "--", "python3", "greedy.py")  # fmt: skip
        try:
            status = ""
            for _ in range(30):
                status = run("status", hosts, job).stdout
                if "failed" in status:
                    break
            assert "node2  failed by SIGKILL" in status, status
            assert "its last line: loading the model" in status
            assert "the OOM killer ended 1 process(es) of the job's cgroup" in status
            assert f"{job}  partial" in status, "the other rank waits for it"
        finally:
            assert run("stop", hosts, job, "--yes").status == 0
    assert processes_of(rig, "greedy.py") == []
