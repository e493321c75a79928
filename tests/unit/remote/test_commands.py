"""Commands started by the agent end by their timeout and with the agent."""

import threading
import time

import pytest

from gconsole_remote.agent import commands


@pytest.fixture
def sleeper(monkeypatch):
    monkeypatch.setitem(commands.COMMANDS, "sleep", ["sh", "-c", "sleep 600 & sleep 600"])


def test_a_command_that_takes_too_long_is_killed(sleeper):
    began = time.monotonic()
    with pytest.raises(commands.CommandTimeout):
        commands.run_apart("sleep", 0.2)
    assert time.monotonic() - began < 5


def test_no_command_outlives_an_agent_that_ends(sleeper):
    ended = []
    running = threading.Thread(target=lambda: ended.append(commands.run_apart("sleep", 60)))
    running.start()
    deadline = time.monotonic() + 10
    while not commands._running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    commands.end_all()
    running.join(10)
    assert ended and ended[0][0] == -9


def test_run_apart_separates_stdout_and_stderr_and_run_joins_them(monkeypatch):
    monkeypatch.setitem(commands.COMMANDS, "say", ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert commands.run_apart("say", 10) == (3, b"out\n", b"err\n")
    assert commands.run("say", 10) == (3, "out\nerr")


def test_missing_command_has_no_exit_status(monkeypatch):
    monkeypatch.setitem(commands.COMMANDS, "nothing", ["/nonexistent/program"])
    status, output = commands.run("nothing", 1)
    assert status is None and "No such file" in output
