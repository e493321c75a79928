"""Captures of real processes by the real py-spy: stacks, and reasons for missing ones."""

import os
import signal
import time

import pytest
from live_ranks import LOCK, READY, SLEEP, capture, main_thread

from gconsole_remote.clocks import stamps
from gconsole_remote.stacks import capture as stacks

SPIN = READY + "while True: pass\n"
UNICODE = (
    "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), name='wörk\\x1b [b]', daemon=True).start()\n"
    + READY
    + "time.sleep(600)\n"
)
THREADS = (
    "import threading, time\n"
    "for _ in range(200): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    + READY
    + "time.sleep(600)\n"
)


def test_a_rank_is_read_with_its_frames_outermost_first(ranks):
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen())
    stack = main_thread(records)
    assert [frame.function for frame in stack.frames] == ["<module>", "rest"]
    assert (stack.status, stack.engine, stack.mode, stack.proc_state) == ("ok", "py-spy", "nonblocking", "S")
    assert stack.at <= stack.looked <= stack.began <= stack.ended
    assert stack.tracer_pid == 0
    assert answer["statuses"] == {"ok": 1}
    assert answer["stopped_since"] == 0


def test_rank_waiting_on_a_lock_reports_the_futex_system_call(ranks):
    ranks.python(LOCK)
    _, records = capture(ranks.seen())
    stack = main_thread(records)
    assert stack.frames[-1].function == "take"
    assert stack.syscall == "futex"


def test_a_stopped_rank_is_read_and_stays_stopped(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    _, records = capture(ranks.seen())
    assert main_thread(records).status == "ok"
    assert main_thread(records).proc_state == "T"
    assert ranks.state(0) == "T", "a foreign SIGSTOP must not be undone"


def test_an_uninterruptible_rank_is_read_and_the_capture_ends(ranks, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    code = READY + (  # the parent of a vfork is in state D until its child has opened the pipe
        "import os\nos.posix_spawn('/bin/true', ['true'], {}, "
        f"file_actions=[(os.POSIX_SPAWN_OPEN, 0, {str(tmp_path / 'fifo')!r}, os.O_RDONLY, 0)])\n"
    )
    ranks.python(code, until="D")
    began = time.monotonic()
    _, records = capture(ranks.seen())
    assert time.monotonic() - began < 3
    assert main_thread(records).proc_state == "D"
    assert main_thread(records).status == "ok"
    with (tmp_path / "fifo").open("wb"):
        pass  # unblocks the child of the vfork


def test_nothing_is_left_stopped_by_a_capture(ranks):
    ranks.python(SPIN, until="R")
    for code in (SLEEP, LOCK):
        ranks.python(code)
    answer, _ = capture(ranks.seen(), samples=3)
    assert answer["stopped_since"] == 0
    assert all(ranks.state(number) not in "Tt" for number in range(3))


def test_ended_rank_is_captured_as_gone_with_its_signal(ranks):
    ranks.python(SLEEP)
    seen = ranks.seen()
    ranks.processes[0].kill()
    ranks.until_state(0, "Z")
    _, [stack] = capture(seen)
    assert (stack.status, stack.frames, stack.proc_state) == ("gone", None, "Z")
    assert "SIGKILL" in stack.reason


def test_reused_pid_is_captured_as_gone(ranks):
    ranks.python(SLEEP)
    seen = ranks.seen()
    seen.ranks[0].start_ticks -= 1
    _, [stack] = capture(seen)
    assert (stack.status, stack.proc_state) == ("gone", None)


def test_rank_that_is_not_python_is_captured_with_its_process_state(ranks):
    ranks.start(["/bin/sh", "-c", "echo ready; exec sleep 600"])
    _, [stack] = capture(ranks.seen())
    assert stack.status == "not_python"
    assert stack.proc_state is not None


@pytest.mark.slow
def test_cpu_time_between_samples_distinguishes_busy_and_idle_ranks(ranks):
    ranks.python(SPIN, until="R")
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(), samples=3, every_ms=200)
    spun = [stack.cpu_delta_s for stack in records if stack.rank == 0]
    slept = [stack.cpu_delta_s for stack in records if stack.rank == 1]
    assert spun[0] is None and spun[-1] > 0
    assert slept[-1] == 0
    assert answer["samples"] == 3


@pytest.mark.slow
def test_frames_of_an_identical_stack_are_sent_only_once(ranks):
    for _ in range(3):
        ranks.python(SLEEP)
    _, records = capture(ranks.seen(), samples=2)
    assert len({stack.path for stack in records}) == 1
    assert [stack.frames is not None for stack in records] == [True] + [False] * 5


def test_dataloader_worker_is_captured_under_the_number_of_its_rank(ranks):
    ranks.python(SLEEP)
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(roles=(None, "dataloader_worker")))
    assert {(stack.role, stack.rank) for stack in records} == {("rank", 0), ("dataloader_worker", 0)}
    assert (answer["ranks"], answer["processes"]) == (1, 2)


def test_process_below_a_rank_that_was_not_listed_yet_is_captured(ranks):
    """A rank may wait for a process that it started a moment ago."""
    inner = "import sys\\ndef load_shard():\\n    sys.stdin.read()\\nload_shard()"  # ends with its parent
    ranks.python("import subprocess, sys\n"
                 f"child = subprocess.Popen([sys.executable, '-c', '{inner}'], stdin=subprocess.PIPE)\n"
                 + READY + "child.wait()\n")  # fmt: skip
    seen = ranks.seen()
    deadline = time.monotonic() + 20
    while not any(stack.role == "child" and stack.status == "ok" and stack.frames
                  and stack.frames[-1].function == "load_shard" for stack in capture(seen)[1]):  # fmt: skip
        assert time.monotonic() < deadline
    assert capture(seen, jobs=["another"])[0]["processes"] == 0


def test_only_requested_jobs_are_captured(ranks):
    ranks.python(SLEEP)
    assert capture(ranks.seen(), jobs=["another"])[0]["processes"] == 0


@pytest.mark.slow
def test_capture_starts_at_the_requested_time(ranks):
    for _ in range(8):
        ranks.python(SLEEP)
    _, records = capture(ranks.seen(), ahead_s=0.3)
    assert all(0 <= stack.looked - stack.at < 200_000_000 for stack in records)


def test_capture_scheduled_far_from_the_clock_is_rejected():
    now = stamps.realtime_ns()
    with pytest.raises(stacks.BadCaptureRequest, match="clocks"):
        stacks.CaptureRequest({"id": "c", "at": now + 10**15, "deadline": now + 2 * 10**15})


@pytest.mark.slow
def test_control_characters_in_thread_names_and_200_threads_are_handled(ranks):
    ranks.python(UNICODE)
    ranks.python(THREADS)
    _, records = capture(ranks.seen())
    assert "wörk  [b]" in {stack.thread_name for stack in records}
    assert sum(stack.rank == 1 for stack in records) == 201
