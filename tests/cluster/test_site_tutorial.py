"""The commands of the tutorial for a site, as it is written: nodes behind two login nodes, and a real Slurm job."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from gateways import Site, site
from jobs import find_torch_python, gloo_environment, start_plain
from rig import Node, Rig
from slurm import Slurm, missing
from tmux import Tmux

PAGE = Path(__file__).parents[2] / "docs" / "first-site.md"
BIN = Path(sys.executable).parent
SCRIPT = Path(__file__).parents[1] / "hangs" / "jobs" / "dataloader_worker.py"
#: The rank whose loader hangs.
CULPRIT = 1
#: As the labelled jobs are started.
LIGHT = {"LIGHT_TORCH": "launchers"}

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("needs_namespaces", "needs_torch"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.timeout(600),
]


def blocks(section: str, language: str) -> list[str]:
    """The blocks of code of a section of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Reader:
    """A user who follows the page, with a shell, a terminal and a working folder."""

    def __init__(self, folder: Path, section: str, env: Mapping[str, str]) -> None:
        self.folder = folder
        self._commands = iter(blocks(section, "sh"))
        self._env = {**env, "PATH": f"{BIN}:{env['PATH']}", "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions")}
        self._exported = ""

    def next(self, contains: str) -> str:
        """The next block, which is to contain this."""
        block = next(self._commands)
        assert contains in block, block
        self._exported += "".join(f"{line}\n" for line in block.splitlines() if line.startswith("export "))
        return block

    def run(self, contains: str, status: int = 0) -> str:
        """Run the next block; what its lines printed."""
        before, block = self._exported, self.next(contains)
        done = subprocess.run(["bash", "-c", before + block], cwd=self.folder, env=self._env, text=True, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=180)  # fmt: skip
        assert done.returncode == status, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def open(self, contains: str) -> Tmux:
        """Run the next block in a terminal."""
        script = self.folder / "open.sh"
        names = ("PATH", "HOME", "GCONSOLE_SESSIONS_FOLDER")
        variables = "".join(f"export {name}={shlex.quote(self._env[name])}\n" for name in names)
        script.write_text(f"cd {self.folder}\n{variables}{self._exported}{self.next(contains)}")
        return Tmux(f"bash {script}", columns=140)

    def has_followed_all(self) -> bool:
        """Whether no block is left."""
        return next(self._commands, None) is None


@pytest.fixture
def bastions() -> Iterator[Site]:
    with site() as cluster:
        for gateway in cluster.gateways:
            know_by_name(gateway, cluster.nodes)
        yield cluster


def know_by_name(gateway: Node, nodes: list[Node]) -> None:
    """The user of a login node has been on each node before."""
    keys = "".join(f"{node.name} {node.host_key()}\n" for node in nodes)
    (gateway.folder / "names").write_text(keys)
    gateway.output(["sh", "-c", f"cat {gateway.inside}/names >> ~/.ssh/known_hosts"])


def test_site_behind_two_login_nodes(bastions: Site, tmp_path: Path) -> None:
    home = bastions.rig.ssh_config()
    reader = Reader(tmp_path, "Nodes behind a login node", home.env())
    (hosts,) = blocks("Nodes behind a login node", "toml")
    (tmp_path / "hosts.toml").write_text(hosts)
    variables = {**gloo_environment(bastions.rig), **LIGHT}
    with start_plain(bastions.rig, SCRIPT, bastions.nodes, 1, variables, python=str(find_torch_python())) as job:
        job.wait_ready()
        reader.run("ssh login1 ssh node1 true")
        assert "node[1-4]" in reader.run("gconsole doctor")
        with_console(reader, "gconsole hosts.toml", "4/4 nodes")
        assert f"rank {CULPRIT} " in reader.run("--diagnose", status=1)
        reached = reader.run("--capture")
        assert all(f"'{node.name}': 'login" in reached for node in bastions.nodes), reached
        assert f"rank {CULPRIT} " in reader.run("gconsole record", status=1)
        reader.run("gconsole clean")
    assert reader.has_followed_all()
    for node in (*bastions.gateways, *bastions.nodes):
        assert node.output(["sh", "-c", "ls -d /var/tmp/gconsole-* 2>/dev/null || true"]) == ""


def with_console(reader: Reader, command: str, *shown: str) -> None:
    """Open the console, see this, and quit."""
    console = reader.open(command)
    try:
        console.until(*shown)
        console.press("q")
        console.until_gone()
    finally:
        console.close()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_slurm_site(tmp_path: Path) -> None:
    section = "A Slurm job"
    with Rig(nodes=2) as rig, Slurm(rig.nodes, tmp_path / "slurm") as slurm:
        variables = {**gloo_environment(rig), **LIGHT, "MASTER_ADDR": rig.nodes[0].address,
                     "MASTER_PORT": "29511", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}  # fmt: skip
        exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
        rank = f"RANK=$SLURM_PROCID exec {find_torch_python()} {SCRIPT}"
        job = slurm.submit(f"#!/bin/sh\n{exports}srun --ntasks=2 sh -c '{rank}'\n", nodes=2)
        reader = Reader(tmp_path, section, slurm.environment)
        assert job in reader.run("squeue --me")
        console = reader.open("gconsole slurm:$JOBID")
        try:
            console.until("2/2 nodes", "2 ranks")
            steps = reader.run("squeue --steps").split()
            assert {f"{job}.0", f"{job}.1", f"{job}.batch"} <= set(steps), steps
            console.press("q")
            console.until_gone()
        finally:
            console.close()
        reader.run("gconsole check")
        assert f"rank {CULPRIT} " in reader.run("--diagnose", status=1)
        assert f"rank {CULPRIT} " in reader.run("gconsole record", status=1)
        assert reader.has_followed_all()
        deadline = time.monotonic() + 30
        while set(slurm.ask("squeue", "--steps", "--noheader", "--format=%i").split()) != {f"{job}.0", f"{job}.batch"}:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert job in slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%A")
