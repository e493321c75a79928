"""Captures with a missing, hanging or failing py-spy end in time, with a reason for every rank."""

import time
from pathlib import Path

import pytest
from live_ranks import PY_SPY, SLEEP, Blobs, a_slow_py_spy, capture, main_thread

from gconsole_remote.stacks import capture as stacks


def test_missing_py_spy_is_reported_with_the_reason(ranks):
    ranks.python(SLEEP)
    _, [stack] = capture(ranks.seen(), blobs=Blobs(None, "the console has no py-spy for riscv64"))
    assert (stack.status, stack.reason) == ("tool_missing", "the console has no py-spy for riscv64")
    assert "gconsole bundle" in stack.try_
    assert stack.syscall is not None, "the syscall is read from /proc"


def test_hung_reader_is_killed_with_its_process_group_and_not_retried(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PROCESS_TIMEOUT_S", 0.3)
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(), samples=2, blobs=a_slow_py_spy(tmp_path))
    assert [stack.status for stack in records] == ["timed_out", "timed_out"]
    assert answer["samples"] == 2
    [group] = (tmp_path / "pids").read_text().split()
    assert living_of(int(group)) == []


def living_of(group):
    """Pids of the live processes of a group, without zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.slow
def test_capture_ends_by_its_deadline_with_a_record_per_rank(ranks, tmp_path):
    for _ in range(4):
        ranks.python(SLEEP)
    began = time.monotonic()
    _, records = capture(ranks.seen(), deadline_s=0.5, blobs=a_slow_py_spy(tmp_path))
    assert time.monotonic() - began < 3
    assert {stack.status for stack in records} == {"timed_out"}
    assert len(records) == 4, "each rank has a record, even one not reached"


def test_unparsable_read_is_retried(ranks, tmp_path):
    ranks.python(SLEEP)
    torn = f"""[ -e {tmp_path}/torn ] && exec {PY_SPY} "$@"\ntouch {tmp_path}/torn\necho '[{{"pid"'\n"""
    _, records = capture(ranks.seen(), blobs=a_slow_py_spy(tmp_path, torn))
    assert main_thread(records).status == "ok"


def test_rank_with_permanently_invalid_reader_output_is_unreadable(ranks, tmp_path):
    ranks.python(SLEEP)
    _, [stack] = capture(ranks.seen(), blobs=a_slow_py_spy(tmp_path, "echo '[]'\n"))
    assert stack.status == "unreadable"
