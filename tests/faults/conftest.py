"""The fault cluster, shared by all tests, and a skip with its reason if it cannot be created."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig, missing_for

from . import fault_cluster as worlds


@pytest.fixture(scope="session", autouse=True)
def _needs() -> None:
    missing = missing_for("namespaces") or (None if shutil.which("tmux") else "tmux is not installed")
    if missing:
        pytest.skip(f"namespaces: {missing}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with their own clusters run first: the shared one, once it runs, takes a fifth of a core."""
    items.sort(key=lambda item: "world" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def world(_needs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[worlds.World]:
    with worlds.made(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture
def rig(world: worlds.World) -> Rig:
    return world.rig


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path
