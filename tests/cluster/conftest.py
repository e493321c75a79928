"""Fixtures of the tests on the rig, and the header line with the mode of the rig on this machine."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Makes `from rig import Rig` and `from jobs import start_torchrun` work here, and in any script that does the same.
sys.path.insert(0, str(Path(__file__).parent))

from jobs import no_torch
from rig import MODES, Mode, Rig, RigUnavailable, missing_for, pick_mode


def pytest_report_collectionfinish() -> str:
    # Not pytest_report_header: pytest calls that before it loads this file when started from the root of the tests.
    try:
        mode = pick_mode()
    except RigUnavailable as error:
        return f"cluster rig: none ({error})"
    return f"cluster rig: {mode.name} ({mode.why}); torch for jobs: {no_torch() or 'yes'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip a test that needs something this mode or machine lacks, with the exception's text as the reason."""
    with _unavailable_is_a_skip():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with _unavailable_is_a_skip():
        return (yield)


@contextlib.contextmanager
def _unavailable_is_a_skip() -> Iterator[None]:
    try:
        yield
    except RigUnavailable as error:
        raise pytest.skip.Exception(str(error), _use_item_location=True) from error


@pytest.fixture(scope="session")
def rig_mode() -> Mode:
    """The mode of the rig on this machine."""
    return pick_mode()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Four plain nodes for the tests of one module; a test that changes one restores it."""
    with Rig(nodes=4) as rig:
        yield rig


@pytest.fixture(params=MODES)
def each_mode(request: pytest.FixtureRequest) -> str:
    """Every mode that works on this machine."""
    missing = missing_for(request.param)
    if missing:
        pytest.skip(f"{request.param}: {missing}")
    return request.param


@pytest.fixture(scope="session")
def needs_namespaces() -> None:
    """Skips if nodes cannot have their own network, process table and hostname."""
    missing = missing_for("namespaces")
    if missing:
        pytest.skip(f"namespaces: {missing}")


@pytest.fixture(scope="session")
def needs_openssh() -> None:
    """Skips if OpenSSH's server and client are not installed."""
    missing = missing_for("loopback")
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips if no interpreter with torch is available."""
    missing = no_torch()
    if missing:
        pytest.skip(missing)
