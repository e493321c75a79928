"""Fixtures of the security tests: the rig of tests/cluster."""

import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("cluster", "tui", "jobs", "http", "security"))

from rig import missing_for


@pytest.fixture(scope="session")
def needs_namespaces() -> None:
    """Skips where nodes cannot have a network, a process table and folders of their own."""
    missing = missing_for("namespaces")
    if missing:
        pytest.skip(f"namespaces: {missing}")
