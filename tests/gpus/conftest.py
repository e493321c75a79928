"""The agent's GPU sampler on the real binding, over a library that the tests compile."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit" / "remote")]  # for `nvml`, `watching` and `fakeproc`


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """`watch(lines)` is a started sampler over these lines, with its `Scenario`; stopped when the test ends."""
    from nvml.library import Scenario, load
    from started_sampler import Watching

    load()
    monkeypatch.setattr("gconsole_remote.nvml.events.WAIT_MS", 20)
    started = []

    def start(lines, **parts):
        scenario = Scenario(tmp_path / "scenario", lines)
        monkeypatch.setenv("NVML_SCENARIO", str(scenario.path))
        started.append(Watching(scenario, tmp_path, **parts))
        return started[-1]

    yield start
    for one in started:
        one.stop()
