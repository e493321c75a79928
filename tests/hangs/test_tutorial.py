"""The commands of the tutorial: record a hang, kill the console, and diagnose from what is on the disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig
from tmux import DEADLINE_S, Tmux

from gconsole.session.format.layout import Session
from gconsole.session.manage.catalog import entry_of

from .labels import JOBS
from .live_jobs import running

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
(LABELLED,) = [job for job in JOBS if job.id == "dataloader_worker"]
(RANK,) = LABELLED.label.culprits


def shown() -> dict[str, str]:
    """The commands of the tutorial's second part, without comments, by purpose."""
    text = (ROOT / "docs/first-hang.md").read_text()
    story = text.partition("## Record, crash and recover")[2].partition("\n## ")[0]
    assert "kill -9" in story
    blocks = re.findall(r"```sh\n(.*?)```", story, re.DOTALL)
    lines = [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.strip().splitlines()]
    names = ("folder", "watch", "recover", "replay", "diagnose", "query", "perfetto", "html", "compact", "duckdb")
    assert len(lines) == len(names), lines
    return dict(zip(names, lines, strict=True))


class Workspace:
    """A user's working directory with a hosts.toml, a shell and a terminal."""

    def __init__(self, folder: Path, commands: dict[str, str]) -> None:
        self.folder, self._commands = folder, commands
        self._env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self._terminals: list[Tmux] = []

    def line(self, name: str) -> str:
        return f"{self._commands['folder']}; {self._commands[name]}"

    def run(self, name: str, more: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", self.line(name) + more], cwd=self.folder, env=self._env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False)  # fmt: skip

    def terminal(self, name: str) -> Tmux:
        """The command on a terminal in place of the shell: its pid is the program's."""
        command = f"cd {self.folder}; {self._commands['folder']}; PATH={BIN}:$PATH; exec {self._commands[name]}"
        self._terminals.append(Tmux(f"bash -c '{command}'", columns=140))
        return self._terminals[-1]

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Workspace(tmp_path, shown())
    yield made
    made.close()


@pytest.mark.timeout(400)  # 30 s on an idle machine, 2 min on a busy one
def test_tutorial_commands_recover_replay_diagnose_query_and_export_a_killed_recording(
    rig: Rig, needs_torch: None, workspace: Workspace
) -> None:
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="no perfetto wheel")
    rig.write_hosts_toml(workspace.folder / "hosts.toml", only=[node.name for node in rig.nodes[: LABELLED.nodes]])
    with running(rig, LABELLED) as (job,):
        pids = {rank.rank: rank.pid for rank in job.ranks}
        record_and_kill(workspace)

    recovered = workspace.run("recover")
    assert recovered.returncode == 0, recovered.stderr
    assert "night: " in recovered.stdout

    replayed = workspace.terminal("replay")
    replayed.until("REPLAY")
    replayed.press("3")
    replayed.until("REPLAY", f"rank {RANK}", "dataloader_worker.py", "confidence")
    replayed.press("q")
    replayed.until_gone()

    diagnosis = workspace.run("diagnose", " --quiet -o verdict.json")
    assert diagnosis.returncode == 1, diagnosis.stdout + diagnosis.stderr
    (verdict,) = json.loads((workspace.folder / "verdict.json").read_text())["verdicts"]
    assert [culprit["rank"] for culprit in verdict["culprits"]] == [RANK]

    query = workspace.run("query", " --format json")
    assert query.returncode == 0, query.stderr
    assert [RANK] in [group["ranks"] for group in json.loads(query.stdout)]

    assert workspace.run("perfetto").returncode == 0
    trace = perfetto.Trace()
    trace.ParseFromString((workspace.folder / "night.perfetto-trace").read_bytes())
    tracks = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    processes = {track.process.process_name for track in tracks if track.HasField("process")}
    assert any(name.startswith(f"rank {RANK} of ") for name in processes), processes

    assert workspace.run("html").returncode == 0
    assert f"rank {RANK}" in (workspace.folder / "night.html").read_text()

    assert workspace.run("compact").returncode == 0
    opened = workspace.run("duckdb")
    assert opened.returncode == 0, opened.stderr
    assert all(str(pid) in opened.stdout for pid in pids.values()), opened.stdout


def record_and_kill(workspace: Workspace) -> None:
    """`r` and a name, `d`, the verdict; then the console is killed while the job still runs."""
    console = workspace.terminal("watch")
    console.until(f"{LABELLED.nodes}/{LABELLED.nodes} nodes", f"{LABELLED.nodes * LABELLED.per_node} ranks")
    console.press("r")
    console.until("Record")
    console.press("night", "Enter")
    console.until("REC night")
    console.press("d")
    console.until("REC night", f"rank {RANK}", "dataloader_worker.py", "confidence")
    wait_until_written(workspace)
    os.kill(console.pid, signal.SIGKILL)
    console.until_gone()


def wait_until_written(workspace: Workspace) -> None:
    """The finding follows the captures it is made of; data younger than 1 s may be lost."""
    deadline = time.monotonic() + DEADLINE_S
    night = Session(workspace.folder / "sessions" / "night")
    while (meta := entry_of(night).meta) is None or not meta.counts.get("finding"):
        assert time.monotonic() < deadline, meta
        time.sleep(0.05)
