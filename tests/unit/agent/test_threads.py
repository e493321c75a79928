"""Threads of the agent that fail, for example for lack of memory: noticed, and started again."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gconsole_remote.agent import agent as agent_module
from gconsole_remote.agent import commands
from gconsole_remote.agent.agent import Agent
from gconsole_remote.agent.sampler_thread import SharedThread
from gconsole_remote.nvml.call import PcieThread
from gconsole_remote.proc import exits, file_systems, threads
from gconsole_remote.proc.exits import ExitWatch
from gconsole_remote.proc.procfs import ProcFs

DEADLINE_S = 60.0


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_start_of_a_thread_that_ends_before_its_first_statement_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "START_S", 0.01)
    monkeypatch.setattr(threads.Thread, "_bootstrap", lambda self: None)
    with pytest.raises(RuntimeError, match="has not started"):
        threads.Thread(target=print).start()


class _Watched(Agent):
    """An agent with only what its self-check reads."""

    def __init__(self, *started: Any) -> None:
        self.ended, self.last_received = threading.Event(), time.monotonic()
        self.config: dict[str, Any] = {"orphan_s": 15}
        self.linger_s = 600
        self.logged = list[str]()
        self._started, self._sink = list(started), None
        self._lock = threading.Lock()
        self._shared = SharedThread(self)

    def log(self, severity: str, text: str, try_: str = "") -> None:
        self.logged.append(text)

    def end(self) -> Any:
        self.ended.set()


def test_agent_whose_sampler_thread_has_died_reports_it_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "CHECK_S", 0.01)
    dead = SimpleNamespace(is_dead=lambda: True, sampler=SimpleNamespace(name="host"))
    agent = _Watched(dead)
    agent.watch(600.0)
    assert agent.ended.is_set() and "the thread of sampler host has died" in agent.logged[0]


def test_connection_on_which_the_console_is_not_heard_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "CHECK_S", 0.01)
    agent = _Watched()
    agent.last_received -= 20.0
    agent._sink = sink = SimpleNamespace(close=agent.ended.set)
    agent.watch(600.0)
    assert agent._sink is not sink


def test_job_can_be_started_after_one_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([MemoryError(), None])

    def detach(name: str, words: dict[str, str], log: str) -> None:
        failure = next(failures)
        if failure is not None:
            raise failure

    monkeypatch.setattr(commands, "detach", detach)
    starter = commands.DetachedStarter()
    with pytest.raises(MemoryError):
        starter.start("supervise", {}, "/dev/null")
    starter.start("supervise", {}, "/dev/null")


def test_pcie_figures_do_not_freeze_after_a_failure() -> None:
    class Nvml:
        NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_TX_BYTES, NVMLError = 0, 1, OSError
        answers: queue.Queue[int] = queue.Queue()

        def nvmlDeviceGetPcieThroughput(self, handle: object, counter: int) -> int:
            value = self.answers.get(timeout=DEADLINE_S)
            if value < 0:
                raise MemoryError
            return value

    nvml = Nvml()
    thread = PcieThread(nvml, every_s=0.001)
    thread.latest("GPU-1", None)
    for value in (1, 1, -1):
        nvml.answers.put(value)
    until(lambda: thread.latest("GPU-1", None) == (None, None) and nvml.answers.empty())
    for value in (2, 2):
        nvml.answers.put(value)
    until(lambda: thread.latest("GPU-1", None) == ((2048.0, 2048.0), None))
    thread.stop()
    for value in (3, 3):
        nvml.answers.put(value)


def test_end_of_a_process_is_seen_after_a_failure_to_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "PAUSE_S", 0.001)
    watch, failures = ExitWatch(ProcFs()), [MemoryError()]
    if watch._open is None:
        pytest.skip("no pidfd_open")
    read = watch._exit_code

    def fail_once(*args: Any) -> int | None:
        if failures:
            raise failures.pop()
        return read(*args)

    monkeypatch.setattr(watch, "_exit_code", fail_once)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        key = (process.pid, ProcFs().stat(process.pid).start_ticks)
        watch.add(key, True)
        process.communicate()
        until(lambda: key in watch.ends)
    assert not failures


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_file_system_is_not_hung_because_a_thread_of_the_agent_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise MemoryError

    systems = file_systems.FileSystems("/proc")
    monkeypatch.setattr(file_systems.os, "statvfs", fail)
    with pytest.raises(MemoryError):
        systems._ask(["/"])
    monkeypatch.undo()
    assert "/" in systems._ask(["/"]) and not systems._hung
