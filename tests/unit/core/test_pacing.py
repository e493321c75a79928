"""Work in the background pauses by the CPU that it used, and not before."""

from __future__ import annotations

import time

import pytest

from gconsole.core.pacing import SHARE, SLICE_S, Pacer


@pytest.fixture
def cpu(monkeypatch):
    """[CPU seconds of the thread, seconds slept]."""
    used = [5.0, 0.0]
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: used.__setitem__(1, used[1] + seconds))
    return used


def test_thread_that_computes_takes_its_share_of_a_core(cpu):
    pace = Pacer()
    for _ in range(1000):
        pace()
        cpu[0] += 0.005
    pace()
    assert cpu[0] - 5.0 == pytest.approx(SHARE * (cpu[0] - 5.0 + cpu[1]))


def test_little_work_does_not_pause(cpu):
    pace = Pacer()
    for _ in range(10):
        pace()
        cpu[0] += SLICE_S / 20
    assert cpu[1] == 0.0


def test_work_that_must_end_soon_does_not_pause(cpu):
    pace = Pacer()
    pace()
    pace.is_off = True
    cpu[0] += 1.0
    pace()
    assert cpu[1] == 0.0
