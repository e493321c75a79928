"""The fault cluster, shared by all tests, and a skip with its reason if it cannot be created."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig, missing_for

from . import fault_cluster


@pytest.fixture(scope="session", autouse=True)
def _needs() -> None:
    missing = missing_for("namespaces") or (None if shutil.which("tmux") else "tmux is not installed")
    if missing:
        pytest.skip(f"namespaces: {missing}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with their own clusters run first: the shared one, once it runs, takes a fifth of a core."""
    items.sort(key=lambda item: "cluster" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def cluster(_needs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[fault_cluster.FaultCluster]:
    with fault_cluster.running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def rig(cluster: fault_cluster.FaultCluster) -> Rig:
    return cluster.rig


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path
