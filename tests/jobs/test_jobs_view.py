"""Jobs in a real terminal, on real nodes: started, copied to, fetched from and stopped; an expression in a rank."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import GCONSOLE
from rig import Rig
from run_command import PLAIN, list_jobs, processes_of, run, start_job, until
from tmux import Tmux


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml", console={"read_only": False}, agent={"allow_eval": True})


@pytest.fixture
def terminal(hosts: Path, tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    tmux = Tmux(f"cd {tmp_path} && exec {GCONSOLE} {hosts}")
    try:
        yield tmux
    finally:
        tmux.close()


def test_job_is_started_copied_to_and_fetched_from_in_the_jobs_view(
    rig: Rig, hosts: Path, terminal: Tmux, tmp_path: Path, script: Callable[[str, str], str]
) -> None:
    folder = script("plain.py", PLAIN)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/more.txt").write_text("more")
    terminal.until("4/4 nodes")
    terminal.press("0")
    terminal.press("N")
    terminal.until("Start a job")
    terminal.press(
        "-l", "--", f"--nodes 2 --procs-per-node 1 --launcher env --workdir {folder} -- python3 plain.py {folder}/end"
    )
    terminal.press("Enter")
    terminal.until("2 nodes × 1 = 2 ranks", "y start")
    terminal.press("y")
    terminal.until("started on node")
    assert processes_of(rig, "plain.py")
    terminal.press("Escape")
    terminal.until("running", without="Start a job")
    [job] = list_jobs(hosts)
    terminal.press("u")
    terminal.until("Copy a folder to plain-")
    terminal.press("code", "Enter")
    terminal.until("1 file, 4 B", "y copy")
    terminal.press("y")
    terminal.until("up to 1 file changed per node")
    terminal.press("Escape")
    terminal.until("running", without="Copy code")  # else the terminal would read Alt-F
    terminal.press("f")
    terminal.until("Fetch files of plain-")
    terminal.press("more.txt got", "Enter")
    terminal.until("2 files, 8 B copied to got")
    terminal.press("Escape")
    terminal.until("running", without="Fetch more.txt")
    names = job["ordered"]["nodes"]
    assert [(tmp_path / "got" / name / "more.txt").read_text() for name in names] == ["more", "more"]
    terminal.press("x")
    terminal.until("Stop plain-")
    terminal.press("y")
    terminal.until("nothing left")
    until(lambda: not processes_of(rig, "plain.py"))
    terminal.press("Escape")
    terminal.until("stopped", without="nothing left")
    terminal.press("q")
    terminal.until_gone()


@pytest.mark.skipif(not os.access("/usr/bin/gdb", os.X_OK), reason="no /usr/bin/gdb: apt-get install gdb")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="eval is for x86_64")
@pytest.mark.usefixtures("needs_gdb_calls")
def test_expression_is_evaluated_from_the_page_of_a_rank(
    hosts: Path, terminal: Tmux, script: Callable[[str, str], str]
) -> None:
    folder = script("plain.py", PLAIN)
    options = ["--nodes", 1, "--procs-per-node", 2, "--launcher", "env", "--workdir", folder]
    job = start_job(hosts, *options, "--", "python3", "plain.py", f"{folder}/end")
    try:
        terminal.until("2/2 ranks")
        terminal.press("2", "G", "Enter")
        terminal.until("E eval")
        terminal.press("E")
        terminal.until("Evaluate in rank 1")
        terminal.press("-l", "--", "(rank, 6 * 7)")
        terminal.press("Enter")
        terminal.until("in rank 1 of plain-", "y evaluate")
        terminal.press("y")
        terminal.until("(1, 42)", "plain.py")
    finally:
        assert run("stop", hosts, job, "--yes").status == 0
