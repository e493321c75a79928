"""When clocks are compared in the background."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from gconsole.analysis.clock.windows import UNPROBED_NS
from gconsole.config.clock_presets import PINGS_PER_WINDOW
from gconsole.config.sections import ClockConfig
from gconsole.core.bus import Hub
from gconsole.fleet.clocks.schedule import BACKGROUND_PERIOD_S, HIDDEN_PERIOD_S, ProbeSchedule
from gconsole.fleet.clocks.ssh_probe import MAX_PER_S, SshProbe


async def test_windows_of_a_cluster_that_is_not_on_the_screen_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def run_nothing(self: ProbeSchedule, *of: Any) -> None:
        pass

    async def note_pause(self: ProbeSchedule, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(ProbeSchedule, "_session", run_nothing)
    monkeypatch.setattr(ProbeSchedule, "_pause", note_pause)
    links: Any = {"n1": None, "n2": None}
    schedule = ProbeSchedule(ClockConfig(), Hub(), lambda: links)
    for is_hidden in (False, True, False):
        schedule.in_background(is_hidden)
        await schedule._run_session_or_wait()

    assert pauses == [BACKGROUND_PERIOD_S, HIDDEN_PERIOD_S, BACKGROUND_PERIOD_S]


async def test_pause_after_a_long_window_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [100.0], []

    async def run_long(self: ProbeSchedule, links: Any, pace: Any, for_s: float) -> None:
        now[0] += for_s + 20

    async def note_pause(self: ProbeSchedule, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(ProbeSchedule, "_session", run_long)
    monkeypatch.setattr(ProbeSchedule, "_pause", note_pause)
    links: Any = {"n1": None, "n2": None}
    schedule = ProbeSchedule(ClockConfig(), Hub(), lambda: links)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    await schedule._run_session_or_wait()
    monkeypatch.undo()

    assert pauses == [pytest.approx(BACKGROUND_PERIOD_S - 20)]


def test_lines_between_two_windows_in_the_background_stay_those_of_probes() -> None:
    longest_window_s = 10.0

    assert (HIDDEN_PERIOD_S + longest_window_s) * 1e9 < UNPROBED_NS


async def test_window_over_ssh_lasts_until_there_are_enough_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    links: Any = {f"n{number}": None for number in range(1024)}
    schedule = ProbeSchedule(ClockConfig(), Hub(), lambda: links)

    async def find_all_blocked(self: ProbeSchedule, seconds: float) -> None:
        pauses.append(seconds)
        probe.edges.update(ring)

    monkeypatch.setattr(ProbeSchedule, "_pause", find_all_blocked)
    probe = SshProbe(Hub(), links, 100)
    ring = list(pairwise(links))
    await schedule._probe_one_window(probe, 4.8)

    assert pauses == [4.8, pytest.approx(PINGS_PER_WINDOW * 1024 / MAX_PER_S)]


async def test_window_for_a_capture_is_released_after_enough_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [f"n{number}" for number in range(1024)]
    links: Any = dict.fromkeys(nodes)
    schedule = ProbeSchedule(ClockConfig(), Hub(), lambda: links)
    delays: list[float] = []
    monkeypatch.setattr(schedule, "_release_after", lambda seconds, who: delays.append(seconds))
    schedule.want("capture", True)
    probe = schedule._ssh_probe = SshProbe(Hub(), links, 100)
    probe.edges.update(pairwise(nodes))

    schedule._release("capture")
    assert schedule._wanted == {"capture"} and delays == [pytest.approx(PINGS_PER_WINDOW * 1024 / MAX_PER_S)]

    probe._rounds = PINGS_PER_WINDOW
    schedule._release("capture")
    assert not schedule._wanted and len(delays) == 1
