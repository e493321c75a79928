"""Fixtures of tests with real nodes and jobs: four nodes of a rig, and an interpreter with torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from jobs import no_torch
from rig import Rig, missing_for

#: [clock] of tests: half a window at a quarter of the rate, a third of the CPU. It has ten times the samples an
#: estimate needs.
FEW_PROBES = {"probe_window_s": 2, "probe_cadence_us": 20_000}


@contextmanager
def four_nodes() -> Iterator[Rig]:
    """Four nodes with their own networks and processes; skips if the machine cannot provide them."""
    missing = missing_for("namespaces")
    if missing:
        pytest.skip(f"namespaces: {missing}")
    with Rig(nodes=4) as rig:
        yield rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Four nodes for the tests of one module; a test that disconnects one reconnects it."""
    with four_nodes() as rig:
        yield rig


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips if no interpreter with torch is available."""
    missing = no_torch()
    if missing:
        pytest.skip(missing)
