"""Captures of jobs that change meanwhile: ending ranks, and names and numbers that are hostile input."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import start_ring
from program import GCONSOLE
from rig import Rig

from gconsole.records import Rank, StackFrame
from gconsole_remote.stacks import py_spy

from .labels import JOBS
from .recording import stored, unpacked, verdicts

DEADLINE_S = 60.0


class Capturing:
    """A running `gconsole batch --capture` of ten samples, whose records can be waited for."""

    def __init__(self, hosts: Path, folder: Path) -> None:
        self.records, self.report = folder / "records.ndjson", folder / "report.json"
        argv = [GCONSOLE, "batch", hosts, "--capture", "--samples", "10", "--every", "300ms", "-o", self.report,
                "--records", self.records]  # fmt: skip
        self.process = fork_server.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def until(self, condition: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Wait until a condition on the stacks written so far holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self.stacks()):
            assert self.process.poll() is None, "it ended before"
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.05)

    def stacks(self) -> list[dict[str, Any]]:
        lines = self.records.read_bytes().split(b"\n")[:-1] if self.records.exists() else []
        return [json.loads(line) for line in lines if b'"kind":"stack"' in line]

    def end(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the report."""
        try:
            self.process.communicate(timeout=DEADLINE_S)
        finally:
            self.process.kill()
        return self.process.returncode, json.loads(self.report.read_text())


def test_rank_killed_during_a_capture_is_gone_in_later_samples(rig: Rig, tmp_path: Path) -> None:
    with start_ring(rig, rig.nodes[:2], nproc_per_node=2, script="blocked_ranks.py") as job:
        victim = job.wait_ready()[2]
        capturing = Capturing(hosts_of(rig, tmp_path), tmp_path)
        capturing.until(lambda stacks: any(stack["rank"] == 2 and stack["sample"] == 1 for stack in stacks))
        rig.node(victim.node).kill(victim.pid)
        status, report = capturing.end()
    stacks = [stack for stack in capturing.stacks() if stack["role"] == "rank"]
    statuses = {rank: {stack["status"] for stack in stacks if stack["rank"] == rank} for rank in range(4)}
    assert statuses == {0: {"ok"}, 1: {"ok"}, 2: {"ok", "gone"}, 3: {"ok"}}
    assert {stack["sample"] for stack in stacks if stack["rank"] == 3} == set(range(10)), "the other ranks are captured"
    assert status in (1, 3)
    [line] = report["captures"]
    assert line["ranks"] == [0, 1, 2, 3]


def test_node_unplugged_during_a_capture_does_not_block_it(tmp_path: Path, rig: Rig) -> None:
    leaving = rig.nodes[1]
    with start_ring(rig, rig.nodes[:2], nproc_per_node=1, script="blocked_ranks.py") as job:
        job.wait_ready()
        capturing = Capturing(hosts_of(rig, tmp_path), tmp_path)
        capturing.until(lambda stacks: any(stack["node"] == leaving.name and stack["sample"] == 1 for stack in stacks))
        leaving.down()
        try:
            status, report = capturing.end()
        finally:
            leaving.up()
    assert status in (1, 3)
    samples = {stack["sample"] for stack in capturing.stacks() if stack["node"] == rig.nodes[0].name}
    assert samples == set(range(10)), "the remaining node is captured"
    assert report["captures"]


def hosts_of(rig: Rig, folder: Path) -> Path:
    return rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[:2]])


def recorded(name: str, folder: Path) -> Path:
    return unpacked(next(job for job in JOBS if job.id == name), folder)


def test_rank_with_200_threads_is_captured_and_classified_by_its_main_thread(tmp_path: Path) -> None:
    path = recorded("many_threads", tmp_path)
    capture = stored(path).captures.values()[0]
    threads = [stack for stack in capture.stacks if stack.rank == 1 and stack.sample == 0]
    assert len({thread.thread_id for thread in threads}) >= 201
    assert {thread.status for thread in threads} == {"ok"}
    [verdict] = verdicts(path)
    assert [culprit["class"] for culprit in verdict["culprits"]] == ["sleep"]


def test_control_characters_are_not_printed_and_markup_is_literal(tmp_path: Path) -> None:
    path = recorded("odd_names", tmp_path)
    run = fork_server.run([GCONSOLE, "batch", "--from", path, "-o", tmp_path / "report.json"], timeout=DEADLINE_S)
    text = run.stdout.decode()  # strictly UTF-8
    assert "\x1b" not in text and "\x00" not in text
    assert "[red]bold" in text, "markup is shown as text"
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["captures"]


def test_reused_pid_is_a_different_process(tmp_path: Path) -> None:
    """Synthetic: rank 1 of a recorded job has ended, and its pid now belongs to a process of another job."""
    path = recorded("sleeps_in_step", tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    before = next(line for line in lines if line["kind"] == "rank" and line["rank"] == 1)
    number = max(line["seq"] for line in lines if line["agent"] == before["agent"])
    later = {key: lines[-1][key] for key in ("t", "mono", "rx")}
    gone = {**before, **later, "seq": number + 1, "status": "exited", "reason": "killed by signal 9 (SIGKILL)"}
    reused = {**before, **later, "seq": number + 2, "start_ticks": before["start_ticks"] + 500, "job": "another",
              "rank": 0, "world_size": 1}  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, gone, reused)))
    store = stored(path)
    place = before["node"], before["pid"]
    ranks: list[Rank] = [now.rank for now in store.ranks.values() if (now.rank.node, now.rank.pid) == place]
    statuses = {(rank.job, rank.rank, rank.status) for rank in ranks}
    assert statuses == {(before["job"], 1, "exited"), ("another", 0, "present")}
    for verdict in verdicts(path):
        assert not (verdict["job"] == "another" and verdict["culprits"]), "the new process has another stack"


_NAMES = st.text(max_size=40) | st.sampled_from(["[red]x[/]", "\x1b[2J", "\udcff", "a" * 5000, "", "torch/\u202e.py"])
_FRAMES = st.fixed_dictionaries(
    {"name": _NAMES, "filename": _NAMES, "line": st.integers(-(2**70), 2**70) | st.none() | st.floats()},
    optional={
        "locals": st.none() | st.lists(st.dictionaries(_NAMES, _NAMES, max_size=3), max_size=3),
        "module": _NAMES,
    },
)
_THREADS = st.fixed_dictionaries({
    "pid": st.integers(), "thread_id": st.integers(-(2**70), 2**70) | st.none() | st.text(max_size=3),
    "thread_name": st.none() | _NAMES | st.integers(), "os_thread_id": st.none() | st.integers(-(2**70), 2**70),
    "active": st.booleans() | st.none(), "owns_gil": st.booleans() | st.integers(),
    "frames": st.lists(_FRAMES, max_size=6),
})  # fmt: skip
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_THREADS | _ANYTHING, max_size=4) | _ANYTHING)
def test_any_py_spy_json_parses_to_threads_or_raises_value_error(document: Any) -> None:
    try:
        threads = py_spy.parse(json.dumps(document).encode("utf-8", "surrogatepass"))
    except ValueError:
        return
    for thread in threads:
        for function, file, line in (frame[:3] for frame in thread.frames):
            frame = msgspec.convert({"function": function, "file": file, "line": line}, StackFrame)
            assert msgspec.json.decode(msgspec.json.encode(frame), type=StackFrame) == frame


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_py_spy_output_of_arbitrary_bytes_parses_or_raises_value_error(data: bytes) -> None:
    try:
        py_spy.parse(data)
    except ValueError:
        pass
