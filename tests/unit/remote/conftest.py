"""Fixtures of the agent's sampler tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes `from fake_proc import FakeProc` importable


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """An empty fake /proc, and process samplers without a delay between their first two samples."""
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
