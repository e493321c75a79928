"""When clocks are compared in the background."""

from __future__ import annotations

from typing import Any

import pytest

from gconsole.analysis.clock.windows import UNPROBED_NS
from gconsole.config.sections import ClockConfig
from gconsole.core.bus import Hub
from gconsole.fleet.clocks.schedule import BACKGROUND_PERIOD_S, HIDDEN_PERIOD_S, ProbeSchedule


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


def test_lines_between_two_windows_in_the_background_stay_those_of_probes() -> None:
    longest_window_s = 10.0

    assert (HIDDEN_PERIOD_S + longest_window_s) * 1e9 < UNPROBED_NS
