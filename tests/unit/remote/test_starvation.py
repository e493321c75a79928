"""Threads that wait for a CPU, and machines that stand still, are not calls that hang."""

import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gconsole_remote.agent.sampler_run import SamplerRun
from gconsole_remote.agent.sampler_thread import SamplerThread
from gconsole_remote.proc.starvation import HungCalls, StarvedTime, run_delay_s
from gconsole_remote.samplers.base import Context, Sampler


class Tick:
    """A tick that began at 100 s, in a thread whose folder of /proc this is."""

    began = 100.0
    hung_limit_s = 5.0

    def __init__(self, folder):
        self.task = str(folder)
        self.wait(3.0)

    def wait(self, seconds):
        """Set for how long the thread has waited for a CPU so far."""
        Path(self.task, "schedstat").write_text(f"5000000 {int(seconds * 1e9)} 7\n")


@pytest.fixture
def thread(tmp_path):
    return Tick(tmp_path)


def checked(calls, thread, times):
    """Seconds for which the tick hangs at each of these times; None: it does not."""
    return [next((seconds for _, seconds in calls.check([thread], now, 1.0)), None) for now in times]


def test_tick_that_sleeps_in_a_call_hangs_after_its_limit(thread):
    assert checked(HungCalls(), thread, (101.0, 102.0, 103.0, 104.0, 105.0, 106.0)) == [None] * 5 + [6.0]


def test_tick_that_waits_for_a_cpu_does_not_hang(thread):
    calls = HungCalls()
    for second in range(1, 60):
        thread.wait(3.0 + 0.95 * second)
        assert checked(calls, thread, (100.0 + second,)) == [None]


def test_tick_that_hangs_after_it_waited_is_found(thread):
    calls = HungCalls()
    for second in range(1, 9):
        thread.wait(3.0 + second)
        checked(calls, thread, (100.0 + second,))

    assert checked(calls, thread, (109.0, 110.0, 114.0)) == [None, None, pytest.approx(8.0)]


def test_machine_that_stood_still_has_no_hung_tick_and_a_later_hang_is_found(thread):
    calls = HungCalls()
    thread.began = None
    checked(calls, thread, (98.0, 99.0))
    thread.began = 99.5

    assert checked(calls, thread, (130.0, 131.0, 132.0)) == [None, None, None]
    assert checked(calls, thread, (133.0, 134.0, 135.0, 136.0, 137.0))[-1] == pytest.approx(7.5)


def test_next_tick_starts_without_the_waiting_of_the_one_before(thread):
    calls = HungCalls()
    checked(calls, thread, (102.0,))
    thread.wait(60.0)
    checked(calls, thread, (103.0,))
    thread.began = 104.0

    assert checked(calls, thread, (105.0, 106.0, 107.0, 108.0, 109.0, 110.0))[-1] == 6.0


def test_kernel_without_counts_of_waiting_has_none():
    assert run_delay_s(None) == run_delay_s("/proc/nothing") == 0.0
    assert StarvedTime("/proc/nothing", 1.0).seconds(9.0, 0.0) == 0.0


def test_sampler_thread_names_its_own_task_whose_waiting_the_kernel_counts():
    ended = threading.Event()
    ended.set()
    thread = SamplerThread(SamplerRun(Sampler(Context()), SimpleNamespace(ended=ended)))
    thread.run()

    assert thread.task == f"/proc/{os.getpid()}/task/{threading.get_native_id()}"
    with subprocess.Popen(["sleep", "60"]) as process:
        assert run_delay_s(f"/proc/{process.pid}") >= 0.0
        process.kill()
