"""Builders for the tests of the agent's samplers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that `from fakeproc import FakeProc` works here


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """An empty /proc of the test's own, and samplers that do not wait between their first two looks."""
    from fake_proc import FakeProc

    monkeypatch.setattr("gconsole_remote.samplers.processes.FIRST_SAMPLE_S", 0.0)
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)


@pytest.fixture
def ranks():
    """Processes of this machine that end with the test."""
    from live_ranks import Ranks

    ranks = Ranks()
    yield ranks
    ranks.end()
