"""What the tests of the labelled jobs share, and the table of scores at the end of the run."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

# So that `from rig import Rig` and `from jobs import Job` work, as in the tests of the cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from fixtures import needs_torch, rig

__all__ = ["needs_torch", "rig"]  # fixtures

LINES: list[str] = []


@pytest.fixture(scope="session")
def say_at_the_end() -> Callable[[Iterable[str]], None]:
    """Takes lines for the end of the run's report."""
    return LINES.extend


@pytest.fixture(scope="session")
def live_outcomes() -> list[object]:
    """What was made of the jobs that ran in this session."""
    return []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("who holds the job: recorded jobs, against their labels")
        for line in LINES:
            terminalreporter.write_line(line)
