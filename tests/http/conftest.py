"""What the tests of the HTTP API share: a rig, and a real `gconsole api` over its nodes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# So that `from rig import Rig` works, as in the tests of the cluster, and `from starting import until` as in the jobs'.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "jobs"))
sys.path.insert(0, str(Path(__file__).parent))  # and `from talking import Api`

from jobs import no_torch
from rig import Rig, missing_for
from talking import Api, serving


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Four nodes, each with a network and processes of its own; a test that takes one away brings it back."""
    missing = missing_for("namespaces")
    if missing:
        pytest.skip(f"namespaces: {missing}")
    with Rig(nodes=4) as rig:
        yield rig


@pytest.fixture(scope="session")
def api(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A console that only looks, with four simulated GPUs a node."""
    folder = tmp_path_factory.mktemp("api")
    hosts = rig.write_hosts_toml(folder / "hosts.toml", agent={"simulate_gpus": 4})
    with serving(hosts, folder, "--rate", "5000") as api:
        api.until_connected(4)
        yield api


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips where no interpreter with torch is at hand."""
    missing = no_torch()
    if missing:
        pytest.skip(missing)
