"""A gateway that opens many nodes serves the others meanwhile, and a command ended before its start does not run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gconsole_remote.gateway import frames, gateway
from gconsole_remote.gateway.stream import Stream


class Clock:
    """Time that passes only while a command starts."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of streams whose commands were started; each start takes 15 ms."""
    clock, numbers = Clock(), list[int]()

    def start(self: Stream) -> None:
        numbers.append(self.number)
        clock.now += 0.015
        if self.argv[0] == "absent":
            raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(gateway, "time", clock)
    monkeypatch.setattr(Stream, "start", start)
    return numbers


def a_gateway() -> gateway.Gateway:
    place: Any = None
    return gateway.Gateway({"console": "c" * 16, "bundle": "b", "config": {}}, place)


def open_stream(served: gateway.Gateway, number: int, program: str = "ssh") -> None:
    served._act(frames.OPEN, number, json.dumps({"argv": [program, f"node{number}"]}).encode())


def test_some_commands_are_started_in_each_turn(started: list[int]) -> None:
    served = a_gateway()
    for number in range(1, 6):
        open_stream(served, number)
    assert started == [] and served._timeout_s() == 0.0
    served._start_commands()
    assert started == [1, 2]
    served._start_commands()
    served._start_commands()
    assert started == [1, 2, 3, 4, 5] and served._timeout_s() > 0.0


def test_command_that_is_ended_before_its_start_is_not_started(started: list[int]) -> None:
    served = a_gateway()
    for number in (1, 2):
        open_stream(served, number)
    served._act(frames.END, 1, b"")
    served._start_commands()
    assert started == [2]
    assert all(stream.reap() for stream in served._ending)


def test_command_that_cannot_be_started_is_reported_and_disturbs_no_other(started: list[int]) -> None:
    served = a_gateway()
    open_stream(served, 1, "absent")
    open_stream(served, 2)
    served._start_commands()
    assert list(served._streams) == [2]
    [(kind, number, payload)] = frames.FrameReader().feed(bytes(served._gathered))
    assert (kind, number) == (frames.END, 1)
    assert json.loads(payload)["error"] == "cannot start absent: No such file or directory"


def test_bytes_that_come_before_the_start_are_written_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    served = a_gateway()
    served._act(frames.OPEN, 1, json.dumps({"argv": ["cat"]}).encode())
    served._act(frames.DATA, 1, b"hello\n")
    served._start_commands()
    stream = served._streams[1]
    try:
        assert stream.wants_write
        stream.write()
        stream.close_input()
        assert stream._process is not None and stream._process.wait(30) == 0
        assert stream.read(stream.output, 100) == b"hello\n"
    finally:
        stream.end()
