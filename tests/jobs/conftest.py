"""What the tests of jobs that gconsole itself starts share: a rig, and scripts that its nodes see."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# So that `from rig import Rig` and `from program import gconsole` work, as in the tests of the cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))  # and `from run_command import run`

from fixtures import needs_torch, rig
from rig import Rig

__all__ = ["needs_torch", "rig"]  # fixtures


@pytest.fixture
def script(rig: Rig) -> Callable[[str, str], str]:
    """Puts a script on every node; the folder that it is in there."""

    def put(name: str, text: str) -> str:
        for node in rig.nodes:
            (node.folder / name).write_text(text)
        return rig.nodes[0].inside

    return put
