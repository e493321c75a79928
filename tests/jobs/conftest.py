"""What the tests of jobs that gconsole itself starts share: a rig, and scripts that its nodes see."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# So that `from rig import Rig` and `from program import gconsole` work, as in the tests of the cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))  # and `from starting import run`

from jobs import no_torch
from rig import Rig, missing_for


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Four nodes, each with a network and processes of its own."""
    missing = missing_for("namespaces")
    if missing:
        pytest.skip(f"namespaces: {missing}")
    with Rig(nodes=4) as rig:
        yield rig


@pytest.fixture
def script(rig: Rig) -> Callable[[str, str], str]:
    """Puts a script on every node; the folder that it is in there."""

    def put(name: str, text: str) -> str:
        for node in rig.nodes:
            (node.folder / name).write_text(text)
        return rig.nodes[0].inside

    return put


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips where no interpreter with torch is at hand."""
    missing = no_torch()
    if missing:
        pytest.skip(missing)
