"""Children that parse input of users: one for each user, kept while his input comes, and few of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gconsole_remote.proc import limited

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as which the agent runs")


def pid_of(data: bytes, deadline: float) -> SimpleNamespace:
    time.sleep(len(data) / 1000)
    return SimpleNamespace(pid=os.getpid())


def parsed(parsers: limited.Parsers, user: str, data: bytes = b"") -> int:
    return parsers.parse(user, pid_of, SimpleNamespace, data, time.monotonic() + 60).pid  # type: ignore[no-any-return]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_child_is_kept_for_its_user_alone_and_ends_when_it_is_idle() -> None:
    parsers = limited.Parsers([pid_of], idle_s=0.5)
    first, second = parsed(parsers, "a"), parsed(parsers, "b")
    assert parsed(parsers, "a") == first != second
    until(lambda: not is_running(first) and not is_running(second))
    until(lambda: parsers._ender is None)
    again = parsed(parsers, "a")
    assert again not in (first, second)
    parsers.close()
    assert not is_running(again)


def test_busy_child_is_joined_by_another_one_only_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MOST_OF_USER", 2)
    parsers = limited.Parsers([pid_of])
    pids: list[int] = []
    threads = [threading.Thread(target=lambda: pids.append(parsed(parsers, "a", bytes(400)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 6
    assert len(set(pids)) == 2
    monkeypatch.setattr(limited, "BUSY_S", 60.0)
    for thread in (threads := [threading.Thread(target=parsed, args=(parsers, "b", bytes(50))) for _ in range(3)]):
        thread.start()
    for thread in threads:
        thread.join()
    assert parsers._counts == {"a": 2, "b": 1}
    parsers.close()


def test_thousands_of_uids_do_not_start_as_many_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MOST_CHILDREN", 3)
    parsers = limited.Parsers([pid_of])
    pids = [parsed(parsers, str(number)) for number in range(8)]
    assert [is_running(pid) for pid in pids] == [False] * 5 + [True] * 3
    parsers.close()
    assert not any(map(is_running, pids))


def test_child_that_has_lived_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MOST_AGE_S", -1.0)
    parsers = limited.Parsers([pid_of])
    first = parsed(parsers, "a")
    assert not is_running(first)
    assert parsed(parsers, "a") != first


def test_wait_for_a_busy_child_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MOST_OF_USER", 1)
    parsers = limited.Parsers([pid_of])
    thread = threading.Thread(target=parsed, args=(parsers, "a", bytes(2000)))
    thread.start()
    until(lambda: bool(parsers._counts))
    with pytest.raises(ValueError, match="took too long"):
        parsers.parse("a", pid_of, SimpleNamespace, b"", time.monotonic() + 0.1)
    thread.join()
    parsers.close()


def slow(seconds: float) -> Callable[[], list[float]]:
    def run() -> list[float]:
        time.sleep(seconds)
        return [seconds]

    return run


def test_time_in_which_a_child_waits_for_a_cpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = limited.TimeLimit(0.3)
    with pytest.raises(ValueError, match="of memory or"):
        limited.call(slow(30.0), (), limit)
    assert limit.left_s == 0.0
    began = time.monotonic()
    monkeypatch.setattr(limited, "run_delay_s", lambda task: time.monotonic() - began)
    assert limited.call(slow(0.6), (), limited.TimeLimit(0.3)) == [0.6]
    with pytest.raises(ValueError, match="of memory or"):
        limited.call(slow(60.0), (), limited.TimeLimit(0.2))


def test_child_that_waits_for_a_cpu_to_end_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ending_after(seconds: float) -> int:
        pid = os.fork()
        if pid == 0:
            time.sleep(seconds)
            os._exit(0)
        return pid

    assert limited._status_of(ending_after(60.0), 0.1) == signal.SIGKILL
    began = time.monotonic()
    monkeypatch.setattr(limited, "run_delay_s", lambda task: time.monotonic() - began)
    assert limited._status_of(ending_after(0.5), 0.1) == 0
    assert limited._status_of(ending_after(60.0), 0.1) == signal.SIGKILL


def test_standstill_of_the_machine_ends_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock goes on while a virtual machine stands still."""
    clock, ahead_s = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + ahead_s)

    def stands_still() -> None:
        nonlocal ahead_s
        time.sleep(0.2)
        ahead_s = 60.0

    thread = threading.Thread(target=stands_still)
    thread.start()
    assert limited.call(slow(0.5), (), limited.TimeLimit(5.0)) == [0.5]
    thread.join()


def trickles() -> list[float]:
    """As a child that was taken over: it answers a byte at a time, and its time limit is off."""
    signal.alarm(0)
    [pipe] = [fd for fd in range(3, 100) if is_open(fd)]
    for _ in range(3000):
        os.write(pipe, b" ")
        time.sleep(0.02)
    return []


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_answer_that_comes_byte_by_byte_ends_with_its_time() -> None:
    limit = limited.TimeLimit(0.5)
    with pytest.raises(ValueError, match="of memory or"):
        limited.call(trickles, (), limit)
    assert limit.left_s == 0.0
