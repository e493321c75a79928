"""Real torch jobs by the other launchers: every rank by itself (env), and accelerate where it is installed."""

import subprocess
from pathlib import Path

import pytest
from jobs import find_torch_python
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, processes_of, run

pytestmark = pytest.mark.usefixtures("needs_torch")


def wanted(folder: str, launcher: str) -> list[object]:
    return ["--nodes", 2, "--procs-per-node", 2, "--launcher", launcher, "--workdir", folder, *TORCH_OPTIONS,
            "--", find_torch_python(), "train.py", 3, -1, "well"]  # fmt: skip


@pytest.fixture
def needs_accelerate() -> None:
    """Skips where the interpreter with torch has no accelerate."""
    has = subprocess.run([find_torch_python(), "-c", "import accelerate"], capture_output=True, check=False)
    if has.returncode != 0:
        pytest.skip("accelerate is not installed beside torch")


def the_job_does_what_torchruns_does(rig: Rig, hosts: Path, folder: str, launcher: str) -> None:
    done = run("start", hosts, "--yes", "--follow", *wanted(folder, launcher))
    assert done.status == 0, done.stdout + done.stderr
    for step in range(3):
        assert f"step {step} sum 4" in done.stdout
    assert "node[1-2]  completed" in done.stderr
    assert processes_of(rig, "train.py") == []


def test_a_torch_job_needs_no_launcher_but_gconsole(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    the_job_does_what_torchruns_does(rig, hosts, script("train.py", TRAIN), "env")


@pytest.mark.usefixtures("needs_accelerate")
def test_accelerate_starts_the_ranks_of_all_nodes(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    the_job_does_what_torchruns_does(rig, hosts, script("train.py", TRAIN), "accelerate")
