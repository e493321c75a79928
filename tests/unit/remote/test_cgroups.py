"""Frozen and throttled cgroups: files as kernels with v1, v2 or both write them, and the real freezer, if any."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from live_ranks import SLEEP, capture, main_thread

from gconsole_remote.proc.cgroups import Cgroups
from gconsole_remote.proc.procfs import ProcFs

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def tree(tmp_path):
    """`tree(lines, mounts, files)`: the fields for process 7 whose /proc/7/cgroup has these lines."""

    def fields(lines, mounts, files):
        for folder in ("proc/7", "proc/self"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/7/cgroup").write_text("\n".join(lines) + "\n")
        (tmp_path / "proc/self/mounts").write_text(
            "".join(f"cgroup {tmp_path / at} {kind} 0 0\n" for at, kind in mounts)
        )
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        fields = Cgroups(ProcFs(str(tmp_path / "proc"))).fields(7)
        return {name: value for name, value in fields.items() if value is not None}

    return fields


V2 = ([("cg", "cgroup2 rw")], "cg/job")
V1 = [("cg/freezer", "cgroup rw,freezer"), ("cg/cpu", "cgroup rw,cpu,cpuacct")]


@pytest.mark.parametrize("frozen", [0, 1])
def test_version_2_tells_by_its_events(tree, frozen):
    files = {
        "cg/job/cgroup.events": f"populated 1\nfrozen {frozen}\n",
        "cg/job/cpu.stat": "usage_usec 10\nnr_throttled 3\nthrottled_usec 2500000\n",
    }
    assert tree(["0::/job"], V2[0], files) == {"frozen": bool(frozen), "throttled_s": 2.5}


@pytest.mark.parametrize(("state", "frozen"), [("THAWED", False), ("FREEZING", True), ("FROZEN", True)])
def test_version_1_tells_by_the_state_of_its_freezer(tree, state, frozen):
    files = {
        "cg/freezer/job/freezer.state": f"{state}\n",
        "cg/cpu/job/cpu.stat": "nr_periods 9\nthrottled_time 1250000000\n",
    }
    assert tree(["6:freezer:/job", "2:cpu,cpuacct:/job"], V1, files) == {"frozen": frozen, "throttled_s": 1.25}


def test_version_2_tells_of_pressure_and_limits_of_memory(tree):
    files = {
        "cg/job/memory.pressure": "some avg10=9.10 avg60=2.00 avg300=0.50 total=4100000\n"
        "full avg10=8.00 avg60=1.90 avg300=0.40 total=3900000\n",
        "cg/job/memory.events": "low 0\nhigh 812\nmax 3\noom 0\noom_kill 0\n",
    }
    assert tree(["0::/job"], V2[0], files) == {"memory_stalled_s": 3.9, "memory_limit_hits": 815}


def test_version_1_counts_how_often_the_limit_was_reached(tree):
    files = {"cg/memory/job/memory.failcnt": "77\n"}
    assert tree(["8:memory:/job"], [("cg/memory", "cgroup rw,memory")], files) == {"memory_limit_hits": 77}


@pytest.mark.parametrize("text", ["", "full", "full avg10=0.00 total=²", "nonsense total=3"])
def test_pressure_in_another_form_is_unknown(tree, text):
    files = {"cg/job/memory.pressure": text, "cg/job/memory.events": "high\n" if not text else "high x\n"}
    assert tree(["0::/job"], V2[0], files) == {}


def test_both_versions_at_once_are_read(tree):
    files = {"cg/freezer/job/freezer.state": "THAWED\n", "cg2/job/cgroup.events": "frozen 1\n"}
    assert tree(["6:freezer:/job", "0::/job"], [*V1, ("cg2", "cgroup2 rw")], files)["frozen"] is True


@pytest.mark.parametrize("lines", [[], ["nonsense"], ["0::/job"]], ids=["empty", "nonsense", "not mounted"])
def test_what_cannot_be_read_is_unknown(tree, lines):
    assert tree(lines, [], {}) == {}


def test_process_that_has_ended_has_no_fields():
    process = subprocess.Popen(["true"])
    process.wait()
    assert Cgroups(ProcFs()).fields(process.pid) == {}


def test_rank_in_a_frozen_cgroup_is_captured_as_frozen(ranks):
    if not os.access(FREEZER, os.W_OK):
        pytest.skip("no freezer of cgroup v1 that may be written here")
    group = FREEZER / f"gconsole-test-{os.getpid()}"
    group.mkdir()
    try:
        process = ranks.python(SLEEP)
        (group / "cgroup.procs").write_text(str(process.pid))
        _, records = capture(ranks.seen())
        assert main_thread(records).frozen is False
        (group / "freezer.state").write_text("FROZEN")
        deadline = time.monotonic() + 30
        while (group / "freezer.state").read_text().strip() != "FROZEN":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        _, records = capture(ranks.seen())
        stack = main_thread(records)
        assert (stack.status, stack.frozen, stack.frames[-1].function) == ("ok", True, "rest")
    finally:
        (group / "freezer.state").write_text("THAWED")
        ranks.end()
        deadline = time.monotonic() + 30
        while True:
            try:
                group.rmdir()
                break
            except OSError:  # its last process has not been reaped yet
                assert time.monotonic() < deadline
                time.sleep(0.01)
