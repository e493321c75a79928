"""Fixtures of the HTTP API tests: a rig, and a real `gconsole api` over its nodes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Makes `from rig import Rig` work, as in tests/cluster, and `from run_command import until`.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "jobs"))
sys.path.insert(0, str(Path(__file__).parent))  # and `from api_client import Api`

from api_client import Api, running_api
from fixtures import FEW_PROBES, four_nodes, needs_torch
from rig import Rig

__all__ = ["needs_torch"]  # a fixture


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Four nodes for all of these tests; a test that disconnects one reconnects it."""
    with four_nodes() as rig:
        yield rig


@pytest.fixture(scope="session")
def api(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A read-only console, with four simulated GPUs per node."""
    folder = tmp_path_factory.mktemp("api")
    hosts = rig.write_hosts_toml(folder / "hosts.toml", agent={"simulate_gpus": 4}, clock=FEW_PROBES)
    with running_api(hosts, folder, "--rate", "5000") as api:
        api.until_connected(4)
        yield api


@pytest.fixture(scope="session")
def changing_api(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A console over the same nodes that may add and remove them."""
    folder = tmp_path_factory.mktemp("changing_api")
    hosts = rig.write_hosts_toml(folder / "hosts.toml", agent={"simulate_gpus": 4}, clock=FEW_PROBES)
    with running_api(hosts, folder, "--rate", "5000", "--allow-run") as api:
        api.until_connected(4)
        yield api
