"""Fixtures of the labelled crashes, and the table of scores at the end of the run."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

# Makes `from rig import Rig` and `from jobs import …` work, as in tests/cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from fixtures import needs_torch, rig

__all__ = ["needs_torch", "rig"]  # fixtures

LINES: list[str] = []


@pytest.fixture(scope="session")
def report_at_end() -> Callable[[Iterable[str]], None]:
    """Adds lines to the end of the run's report."""
    return LINES.extend


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("verdicts on recorded crashes, compared with their labels")
        for line in LINES:
            terminalreporter.write_line(line)
