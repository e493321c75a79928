"""Real torch jobs with the other launchers: env, and accelerate if it is installed."""

import subprocess
from pathlib import Path

import pytest
from jobs import find_torch_python
from rig import Rig
from run_command import TORCH_OPTIONS, TRAIN, processes_of, run

pytestmark = pytest.mark.usefixtures("needs_torch")


def job_options(folder: str, launcher: str, procs: int) -> list[object]:
    return ["--nodes", 2, "--procs-per-node", procs, "--launcher", launcher, "--workdir", folder, *TORCH_OPTIONS,
            "--", find_torch_python(), "train.py", 3, -1, "well"]  # fmt: skip


@pytest.fixture
def needs_accelerate() -> None:
    """Skips if the interpreter with torch has no accelerate."""
    # find_spec, not import: importing accelerate takes seconds.
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('accelerate') is None)"
    has = subprocess.run([find_torch_python(), "-c", probe], capture_output=True, check=False)
    if has.returncode != 0:
        pytest.skip("accelerate is not installed beside torch")


def check_job(rig: Rig, hosts: Path, folder: str, launcher: str, procs: int) -> None:
    result = run("start", hosts, "--yes", "--follow", *job_options(folder, launcher, procs))
    assert result.status == 0, result.stdout + result.stderr
    for step in range(3):
        assert f"step {step} sum {2 * procs}" in result.stdout
    assert "node[1-2]  completed" in result.stderr
    assert processes_of(rig, "train.py") == []


def test_torch_job_runs_with_the_env_launcher(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    check_job(rig, hosts, script("train.py", TRAIN), "env", 2)


@pytest.mark.full  # its options are tested in unit/launch; importing accelerate takes seconds in every process
@pytest.mark.usefixtures("needs_accelerate")
def test_accelerate_starts_the_ranks_of_all_nodes(rig: Rig, tmp_path: Path, script) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=["node1", "node2"])
    check_job(rig, hosts, script("train.py", TRAIN), "accelerate", 1)
