"""The agent's GPU sampler with the real binding, over a fake NVML library."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit" / "remote")]  # for `nvml`, `watching` and `fakeproc`


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """`watch(lines)` is a started sampler over a scenario of these lines; stopped at the end of the test."""
    from nvml.library import Scenario, load
    from started_sampler import StartedSampler

    load()
    started = []

    def start(lines, **parts):
        scenario = Scenario(tmp_path / "scenario", lines)
        monkeypatch.setenv("NVML_SCENARIO", str(scenario.path))
        started.append(StartedSampler(scenario, tmp_path, **parts))
        return started[-1]

    yield start
    for sampler in started:
        sampler.stop()
