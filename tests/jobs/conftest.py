"""Fixtures of the tests of `gconsole run`: a rig, and scripts on its nodes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Makes `from rig import Rig` and `from program import gconsole` work, as in tests/cluster.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))  # and `from run_command import run`

from fixtures import needs_torch, rig
from rig import Rig

__all__ = ["needs_torch", "rig"]  # fixtures


@pytest.fixture
def script(rig: Rig) -> Callable[[str, str], str]:
    """Installs a script on every node; its folder there."""

    def put(name: str, text: str) -> str:
        for node in rig.nodes:
            (node.folder / name).write_text(text)
        return rig.nodes[0].inside

    return put
