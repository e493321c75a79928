"""Fixtures of the labelled jobs, and the table of scores at the end of the run."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

# Makes `from rig import Rig` and `from jobs import Job` work, as in tests/cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from fixtures import needs_torch, rig

__all__ = ["needs_torch", "rig"]  # fixtures

LINES: list[str] = []


@pytest.fixture(scope="session")
def report_at_end() -> Callable[[Iterable[str]], None]:
    """Adds lines to the end of the run's report."""
    return LINES.extend


@pytest.fixture(scope="session")
def live_outcomes() -> list[object]:
    """Outcomes of the jobs that ran in this session."""
    return []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("verdicts on recorded jobs, compared with their labels")
        for line in LINES:
            terminalreporter.write_line(line)
