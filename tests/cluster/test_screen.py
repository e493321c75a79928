"""The program in a real terminal, with real nodes and a real job; a node is lost and reconnects."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import start_ring
from program import GCONSOLE
from rig import Rig
from tmux import Tmux


@pytest.fixture
def terminal(rig: Rig, tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"simulate_gpus": 8})
    tmux = Tmux(f"{GCONSOLE} {hosts}")
    try:
        yield tmux
    finally:
        tmux.close()


def test_the_screen_shows_the_job_live_and_a_lost_node_within_seconds(rig: Rig, terminal: Tmux) -> None:
    with start_ring(rig, rig.nodes, nproc_per_node=2) as job:
        job.wait_ready()
        terminal.until("SIM", "4/4 nodes", "32/32 GPUs", "8/8 ranks", "8 running")
        terminal.press("2")
        terminal.until("rank", "wchan", "running", "node4")
        terminal.press("1")
        terminal.until("4/4 nodes")
        if rig.mode == "namespaces":
            rig.nodes[2].down()
            try:
                shown_s = terminal.until("3/4 nodes", "no data for")
            finally:
                rig.nodes[2].up()
            print(f"\nthe screen showed the loss after {shown_s:.2f} s (goal 3 s)")
            terminal.until("4/4 nodes", "8/8 ranks")
        terminal.press("q")
        terminal.until_gone()
    for node in rig.nodes:
        assert "gconsole-agent" not in node.ps()


def test_help_and_palette_open_and_close(terminal: Tmux) -> None:
    terminal.until("4/4 nodes")
    terminal.press("?")
    terminal.until("reconnect")
    terminal.press("Escape")
    terminal.press("C-p")
    terminal.until("quit")
    terminal.press("Escape")
    terminal.press("C-c")
    terminal.press("C-c")
    terminal.until_gone()
