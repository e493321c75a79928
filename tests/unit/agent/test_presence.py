"""Files in the cache folder that register its users are written atomically."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from gconsole_remote.agent import cache_users
from gconsole_remote.agent.cache import Cache


def an_agent(name: str = "a1") -> SimpleNamespace:
    return SimpleNamespace(id=name, console="c0ffee", linger_s=0)


def a_place(tmp_path: Path) -> Cache:
    return Cache(str(tmp_path / "cache"))


def a_process() -> subprocess.Popen:
    """A running process that waits for input until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    return process


def a_registration(place: Cache, pid: int, **changes) -> dict:
    """Write the registration file of another agent in the cache."""
    fact = {
        "agent": f"of-{pid}",
        "pid": pid,
        "start_ticks": cache_users.start_ticks(pid),
        "boot_id": cache_users.boot_id(),
    }
    fact.update(changes)
    Path(place.folder("run"), f"{pid}.who").write_text(json.dumps(fact))
    return fact


def test_registered_agent_is_a_cache_user_until_it_withdraws(tmp_path):
    place = a_place(tmp_path)

    path = cache_users.register(place, an_agent(), "uid 0 at laptop")
    [me], leftovers = cache_users.users(place.root)
    cache_users.withdraw(path)

    assert (me["agent"], me["label"], me["pid"], me["here"]) == ("a1", "uid 0 at laptop", os.getpid(), True)
    assert leftovers == [] and cache_users.users(place.root) == ([], [])
    assert list(Path(place.folder("run")).iterdir()) == []


def test_withdrawing_a_missing_registration_raises_no_error(tmp_path):
    cache_users.withdraw(str(tmp_path / "gone"))
    cache_users.withdraw(None)


def test_registering_without_a_cache_writes_no_file():
    assert cache_users.register(Cache(ephemeral=True), an_agent(), "") is None


def test_draft_registration_is_not_a_leftover(tmp_path):
    place = a_place(tmp_path)
    Path(place.folder("run"), "a1.who.draft").write_text('{"agent": "a')

    assert cache_users.users(place.root) == ([], [])


def test_registration_of_a_dead_process_is_a_leftover(tmp_path):
    place = a_place(tmp_path)
    process = a_process()
    a_registration(place, process.pid)
    assert len(cache_users.users(place.root)[0]) == 1

    process.kill()
    process.wait()

    assert cache_users.users(place.root) == ([], [str(Path(place.folder("run"), f"{process.pid}.who"))])


def test_reused_pid_is_not_counted_as_the_agent(tmp_path):
    place = a_place(tmp_path)
    a_registration(place, os.getpid(), start_ticks=1)

    assert cache_users.users(place.root)[0] == []


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"pid_ns": "pid:[1]"}], ids=["boot", "container"])
def test_agent_of_another_boot_or_container_is_not_a_leftover(tmp_path, elsewhere):
    place = a_place(tmp_path)
    a_registration(place, 4711, start_ticks=1, **elsewhere)

    [other], leftovers = cache_users.users(place.root)

    assert other["here"] is False and leftovers == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "5", "\x00\x01"])
def test_corrupt_registration_is_a_leftover(tmp_path, text):
    place = a_place(tmp_path)
    Path(place.folder("run"), "torn.who").write_text(text)

    assert cache_users.users(place.root) == ([], [str(Path(place.folder("run"), "torn.who"))])


@pytest.mark.parametrize("ticks", [7, None], ids=["with a start", "without a start"])
@pytest.mark.parametrize("pid", ["1", None, -1, 0, 1.5, [1]])
def test_invalid_pid_is_never_signalled(tmp_path, monkeypatch, pid, ticks):
    """kill(-1) would end every process of the user, and as root every process."""
    place = a_place(tmp_path)
    fact = {"pid": pid, "start_ticks": ticks, "boot_id": cache_users.boot_id()}
    Path(place.folder("run"), "odd.who").write_text(json.dumps(fact))
    monkeypatch.setattr(cache_users.os, "kill", lambda *_: pytest.fail("a signal was sent"))

    assert cache_users.users(place.root)[0] == []
    assert cache_users.end(fact) is True


def test_empty_folder_has_no_cache_users(tmp_path):
    assert cache_users.users(str(tmp_path)) == ([], [])


def test_ending_an_agent_waits_until_it_is_gone(tmp_path):
    process = a_process()
    fact = a_registration(a_place(tmp_path), process.pid)
    threading.Thread(target=process.wait, daemon=True).start()

    assert cache_users.end(fact, timeout_s=10.0) is True


def test_ending_an_agent_that_already_exited_succeeds(tmp_path):
    process = a_process()
    fact = a_registration(a_place(tmp_path), process.pid)
    process.kill()
    process.wait()

    assert cache_users.end(fact) is True


def test_start_time_of_a_missing_process_is_unknown():
    assert cache_users.start_ticks(2**22 + 1) is None
    assert cache_users.start_ticks(os.getpid()) > 0


def test_only_the_unresponsive_agent_of_the_given_console_is_killed(tmp_path: Path) -> None:
    place = a_place(tmp_path)
    deaf, other = a_process(), a_process()
    try:
        a_registration(place, deaf.pid, console="c0ffee")
        a_registration(place, other.pid, console="another")
        os.kill(deaf.pid, signal.SIGSTOP)

        cache_users.end_own(place.root, "c0ffee")

        assert deaf.wait(10) in (-signal.SIGKILL, -signal.SIGTERM)
        assert other.poll() is None
        cache_users.end_own(None, "c0ffee")  # without a cache no user is known
    finally:
        for process in (deaf, other):
            process.kill()
            process.communicate()
