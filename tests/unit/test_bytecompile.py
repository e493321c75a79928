"""The agent's sources compile on the oldest supported Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_contract import VERSIONS, the_python

REMOTE = Path(__file__).parents[2] / "remote"
COMPILE = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        compile(f.read(), path, "exec", dont_inherit=True)
"""


def the_oldest() -> str:
    for version in VERSIONS:
        try:
            return the_python(str(version.values[0]))
        except pytest.skip.Exception:
            continue
    pytest.skip("no old Python on this machine")


def test_the_agent_compiles_on_the_oldest_python_here():
    sources = sorted(map(str, REMOTE.rglob("*.py")))

    done = subprocess.run([the_oldest(), "-c", COMPILE, *sources], capture_output=True, text=True, check=False)

    assert len(sources) > 20
    assert (done.returncode, done.stderr) == (0, "")
