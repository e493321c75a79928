"""Linear mode: 24 tasks on nodes with a hung job, and 11 on a recording, on terminals without cursor movement."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import FakeCluster
from processes import processes_of, until_none_is_left
from recorded_night import write_night

from gconsole.cli.linear.changes import LATEST_S, STEADY_S, ChangeStatements, FindingNumbers
from gconsole.cli.linear.lists import Listing
from gconsole.demo import demo_cluster
from gconsole.tui.derived import JobFold
from gconsole.tui.snapshot import ScreenSnapshot, SnapshotBuilder

DEADLINE_S = 120.0


class LineTerminal:
    """`gconsole TARGET` on a terminal with TERM=dumb: lines typed and lines read."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.master, worker = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gconsole", *args], stdin=worker, stdout=worker, stderr=worker, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(worker)
        self.text, self.read = "", 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65_536):
                self.text += data.decode(errors="replace").replace("\r\n", "\n")

    def type(self, line: str) -> None:
        self.read = len(self.text)
        os.write(self.master, f"{line}\n".encode())

    def until(self, *patterns: str, since: int | None = None) -> str:
        """What was printed since the last line was typed, once it has all of these."""
        start = self.read if since is None else since
        end = time.monotonic() + DEADLINE_S
        while not all(re.search(pattern, self.text[start:], re.MULTILINE) for pattern in patterns):
            assert time.monotonic() < end and self.process.poll() is None, f"{patterns} not in:\n{self.text[start:]}"
            time.sleep(0.02)
        return self.text[start:]

    def ask(self, line: str, *patterns: str) -> str:
        self.type(line)
        return self.until(*patterns)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineTerminal]:
    folder = tmp_path_factory.mktemp("linear")
    with demo_cluster(2, 4, 2, "dataloader") as demo:
        terminal = LineTerminal(folder, str(demo.hosts), "--set", "watch.stall_s=3")
        try:
            terminal.until(
                r"gconsole .* 2 nodes\. help lists", "2 of 2 nodes connected", r"job .*4/4 ranks: 4 ", since=0
            )
            demo.trigger_hang()
            terminal.until(_HANG.pattern, r"verdict: job .*: hung", since=0)
            yield terminal
        finally:
            terminal.close()


#: Of the hang; a machine that stands still for seconds has findings of its own before it.
_HANG = re.compile(r"finding (\d+) opened: error: .*rank")
#: What a person wants, what they type, and what the answer has; N is the number of the finding about the hang.
TASKS = {
    "which rank hangs": ("verdict", [r"^hung ", r"rank \d+ · demo[12] · pid \d+"]),
    "why it hangs": ("finding N", [r"^finding N: error", r"^culprits: rank \d", r"^evidence: "]),
    "how bad is it": ("findings", [r"^findings: [1-9]\d* open", r"^finding N: error: "]),
    "what is there": ("status", [r"^cluster demo: 2 of 2 nodes connected", r"GPUs 4/4, ranks 4/4"]),
    "which nodes": ("nodes", [r"^nodes: 2$", r"^demo1, ok, .*GPUs 2, ranks 2", r"^demo2, "]),
    "one node": ("node demo2", [r"^hostname: ", r"^agent: pid \d+"]),
    "host name": ("/node:demo2", [r"^nodes: 1 of 2 match node:demo2", r"^demo2, "]),
    "all nodes again": ("filter", [r"^nodes: 2$"]),
    "which ranks": ("ranks", [r"^ranks: 4$", r"^rank 0, .*node demo1, gpu 0, pid \d+"]),
    "one rank": ("rank 2", [r"^rank 2  ", r"^process: pid \d+"]),
    "ranks of one node": ("ranks node:demo2", [r"^ranks: 2 of 4 match", r"^rank 3, "]),
    "hottest GPU": ("gpus", [r"^gpus: 4$", r"°C \d+"]),
    "hottest GPU, sorted": ("sort temp", [r"^gpus: 4, sorted by temp"]),
    "one GPU": ("gpu demo1:0", [r"^temperature: \d+ °C"]),
    "the job": ("jobs", [r"^jobs: 1$", r"^demo@.*ranks 4/4"]),
    "stacks to share": ("stacks 2", [r"^STACKS  4 ranks", r"ring\.py:\d+"]),
    "judge it now": ("diagnose", [r"^hung ", r"^next "]),
    "what happened": ("events node:demo1", [r"^events: \d+ of \d+ match", r"demo1, node, connected"]),
    "note an instant": ("mark pulled the cable", [r"^marker added"]),
    "record": ("record night", [r"^recording night; record stop ends it"]),
    "stop recording": ("record stop", [r"^recorded night: [\d,]+ records"]),
    "mistyped": ("rnaks", [r"^no command rnaks; did you mean ranks\?"]),
    "mistyped filter": ("ranks stat:(", [r"^filter: .*; "]),
    "no such thing": ("node demo9", [r"^no node demo9; nodes: demo1, demo2"]),
    "what can I type": ("help stacks", [r"^stacks \[N\]: capture"]),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_task_is_done_with_one_line(task: str, terminal: LineTerminal):
    line, patterns = TASKS[task]
    hang = _HANG.search(terminal.text)
    assert hang is not None
    answer = terminal.ask(*(text.replace("finding N", f"finding {hang[1]}") for text in (line, *patterns)))
    assert "\x1b" not in answer and "Traceback" not in answer


def test_paused_statements_are_printed_when_they_resume(terminal: LineTerminal):
    terminal.ask("pause", "^statements are held back")
    terminal.ask("resume", r"^(nothing changed|node|job|finding|verdict)")


def test_quit_asks_during_a_recording_then_leaves_nothing(tmp_path: Path):
    with demo_cluster(1, 2, 0) as demo:
        terminal = LineTerminal(tmp_path, str(demo.hosts))
        try:
            terminal.until("node demo1 connected", since=0)
            started = processes_of(terminal.process.pid)
            terminal.ask("record r1", "^recording r1")
            terminal.ask("quit", "^recording r1; type quit again")
            terminal.type("quit")
            assert terminal.process.wait(DEADLINE_S) == 0
            until_none_is_left(started)
            [session] = tmp_path.glob("**/r1/session.json")
            assert '"ended"' in session.read_text()
        finally:
            terminal.close()


def test_closed_terminal_ends_it(tmp_path: Path):
    node = '[[nodes]]\nhosts = "a"\naddress = "127.0.0.1"\nport = 9\n'
    (tmp_path / "hosts.toml").write_text(f'[cluster]\nname = "c"\n{node}')
    terminal = LineTerminal(tmp_path, str(tmp_path / "hosts.toml"))
    try:
        terminal.until("help lists", since=0)
        state = termios.tcgetattr(terminal.master)
        assert state[3] & termios.ECHO
        os.write(terminal.master, b"\x04")  # end of input
        assert terminal.process.wait(DEADLINE_S) == 0
    finally:
        terminal.close()


def test_commands_of_a_pipe_follow_one_another(tmp_path: Path):
    with demo_cluster(1, 2, 0) as demo:
        done = subprocess.run(
            [sys.executable, "-m", "gconsole", "--linear", str(demo.hosts)], input="wait\nranks\nquit\n", text=True,
            capture_output=True, timeout=DEADLINE_S, check=False, env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 0 and done.stdout.index("connected") < done.stdout.index("ranks: 2")


def lines_of(folder: Path, lines: str, *args: str) -> str:
    """What `gconsole --linear` prints for commands that come from a pipe."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    argv = [sys.executable, "-m", "gconsole", *args]
    done = subprocess.run(
        argv, input=lines, text=True, capture_output=True, timeout=DEADLINE_S, check=False, env=environment, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# -- several clusters, and recordings ----------------------------------------------------------------------------------


def test_statements_of_several_clusters_are_told_apart_and_commands_are_for_the_chosen_one(tmp_path: Path):
    for name in ("prod", "dev"):
        text = f'[cluster]\nname = "{name}"\n[[nodes]]\nhosts = "{name}1"\ntransport = "local"\n'
        (tmp_path / f"{name}.toml").write_text(text)
    commands = "wait\nnodes\nclusters\ncluster dev\nwait\nnodes\ncluster nosuch\nquit\n"
    printed = lines_of(tmp_path, commands, "--linear", "prod.toml", "dev.toml")
    for pattern in (
        r"^gconsole .*: cluster prod, 1 node\. help lists", r"^gconsole .*: cluster dev, 1 node\. help lists",
        r"^commands are for prod; cluster NAME changes that$",
        r"^[\d:]{8} prod: node prod1 connected\. 1 of 1 node connected\.$",
        r"^[\d:]{8} dev: node dev1 connected\. 1 of 1 node connected\.$",
        r"^prod: cluster prod, 1 node; commands are for this cluster$",
        r"^no cluster nosuch; clusters: prod, dev$",
    ):  # fmt: skip
        assert re.search(pattern, printed, re.MULTILINE), (pattern, printed)
    before, after = printed.split("\ncommands are for dev\n")
    assert "\nprod1, ok" in before and "\ndev1, ok" in after and "\nprod1, ok" not in after


#: What a person wants of a recording, the instant at which they are, what they type, and what the answer has.
REPLAY_TASKS = {
    "where am I": ("12:01:00", "where", [r"^12:01:00, stopped; ends 12:10:00$"]),
    "what was open": ("12:01:00", "go 12:04:00", [r"^12:04:00, stopped", r"^12:04:00 finding 1 opened: warning: "]),
    "the next event": ("12:04:00", "next", [r"^12:05:00, stopped", r"^mark"]),
    "the event before": ("12:04:00", "previous", [r"^12:03:00, stopped", r"^finding$"]),
    "which node was lost": ("12:07:00", "go 12:09:00", [r"12:09:00 node node2 lost: "]),
    "the nodes then": ("12:09:00", "nodes", [r"^nodes: 2$", r"^node2, lost"]),
    "the ranks then": ("12:02:00", "ranks node:node1", [r"^ranks: 4 of 8 match"]),
    "play quickly": ("12:02:00", "play 100", [r"^12:02:0\d, playing at 100 times the speed"]),
    "what needs nodes": ("12:02:00", "stacks", [r"^no command stacks; "]),
    "no such time": ("12:02:00", "go yesterday", [r"yesterday"]),
    "no such speed": ("12:02:00", "play 3", [r"^no speed 3; speeds: 0\.25, "]),
}  # fmt: skip


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineTerminal]:
    folder = tmp_path_factory.mktemp("replay")
    session = write_night(folder)
    terminal = LineTerminal(folder, "replay", str(session.path), "--paused")
    try:
        terminal.until(r"^gconsole .*: replay of night, cluster h100-pod, 12:00:00 to 12:10:00\. help lists", since=0)
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize("task", REPLAY_TASKS)
def test_task_on_a_recording_is_done_with_one_line(task: str, replayed: LineTerminal):
    instant, line, patterns = REPLAY_TASKS[task]
    replayed.ask("stop", r"^[\d:]{8}, stopped")
    replayed.ask(f"go {instant}", rf"^{instant}, stopped")
    answer = replayed.ask(line, *patterns)
    assert "\x1b" not in answer and "Traceback" not in answer and ": gone" not in replayed.text


def test_replay_of_a_pipe_ends_by_quit(tmp_path: Path):
    session = write_night(tmp_path)
    printed = lines_of(tmp_path, "go +2m\nstatus\nquit\n", "replay", str(session.path), "--linear", "--paused")
    assert "cluster h100-pod: 2 of 2 nodes connected" in printed


# -- what changed ------------------------------------------------------------------------------------------------------


class Watched:
    """A cluster without nodes, and the statements on its changes; time passes by `step`."""

    def __init__(self, *names: str) -> None:
        self.cluster = FakeCluster(*names)
        self.builder = SnapshotBuilder(
            self.cluster.store, "c", list(names), live=True, now=self.cluster.now, staging=None
        )
        self.jobs = JobFold(self.cluster.store)
        self.changes = ChangeStatements(FindingNumbers())
        self.now_s = 0.0

    def _frame(self) -> ScreenSnapshot:
        self.builder._nodes_due = 0.0
        frame = self.builder.build()
        self.jobs._jobs._throttle._due_s = 0.0
        self.jobs.refresh(frame, lambda work: work.close())
        self.builder.jobs = self.jobs.value
        return self.builder.build()

    def step(self, seconds: float = 0.25) -> list[str]:
        self.now_s += seconds
        return self.changes.statements(self._frame(), self.now_s)


def test_nodes_that_change_alike_are_one_statement():
    watched = Watched(*(f"node{number:03}" for number in range(1, 65)))
    assert watched.step() == []
    watched.cluster.up()
    assert watched.step() == ["node node[001-064] connected. 64 of 64 nodes connected."]
    watched.cluster.lose("node007")
    [lost] = watched.step()
    assert lost.startswith("node node007 lost: no word for 3 s; try: ") and lost.endswith("63 of 64 nodes connected.")
    assert watched.step() == []
    watched.cluster.up("node007")
    assert watched.step() == ["node node007 back. 64 of 64 nodes connected."]


def test_severity_of_a_finding_on_a_node_is_a_word_in_the_list_of_nodes():
    watched = Watched("node1", "node2")
    watched.cluster.up()
    watched.step()
    watched.cluster.finding("gpu_hot", "warning", "gpu4 has 91 °C", ("node1:gpu4",))
    watched.cluster.finding("gpu_xid", "error", "XID 79", ("node2:gpu5",))
    assert not [text for text in watched.step() if text.startswith("node ")]  # the findings are statements themselves
    lines = Listing().lines("nodes", watched.builder.build())
    assert [line.rpartition(", ")[2] for line in lines[1:]] == [
        "reason finding: gpu_hot", "reason error: gpu_xid",
    ]  # fmt: skip


def test_finding_keeps_its_number_from_opening_to_clearing():
    watched = Watched("node1")
    watched.cluster.up()
    watched.step()
    watched.cluster.finding("gpu_hot", "warning", "gpu4 has 91 °C", ("node1:gpu4",))
    watched.cluster.finding("xid", "error", "XID 79", ("node1:gpu5",))
    opened = watched.step()
    assert sorted(text.partition(" opened: ")[2] for text in opened if text.startswith("finding")) == [
        "error: xid: XID 79", "warning: gpu_hot: gpu4 has 91 °C",
    ]  # fmt: skip
    number = next(text.split()[1] for text in opened if "gpu_hot" in text)
    watched.cluster.finding("gpu_hot", "warning", "gpu4 has 92 °C", ("node1:gpu4",))
    assert not [text for text in watched.step() if text.startswith("finding")]
    watched.cluster.finding("gpu_hot", "warning", "gpu4 has 92 °C", ("node1:gpu4",), cleared_at=watched.cluster.now_ns)
    assert [text for text in watched.step() if text.startswith("finding")] == [
        f"finding {number} cleared: gpu_hot: gpu4 has 92 °C"
    ]


def test_rank_states_are_stated_once_they_are_steady_and_at_the_latest_after_a_limit():
    watched = Watched("node1")
    watched.cluster.up()
    watched.cluster.job("train", 4)
    watched.step()
    assert any("job train: 4/4 ranks: " in text for text in watched.step(STEADY_S))
    watched.cluster.sample_rank("train", 2, "node1", "stuck")
    assert watched.step(STEADY_S / 2) == []
    watched.cluster.sample_rank("train", 2, "node1", "moving")
    assert watched.step(STEADY_S) == [] and watched.step(STEADY_S) == [], "a single sample is no statement"
    elapsed, told = 0.0, list[str]()
    while not told and elapsed <= LATEST_S + 1.0:
        watched.cluster.sample_rank("train", 2, "node1", ("stuck", "idle", "stopped")[int(elapsed) % 3])
        told = watched.step(1.0)
        elapsed += 1.0
    assert elapsed >= LATEST_S and told[0].startswith("job train: 4/4 ranks: 3 ")
