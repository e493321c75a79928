"""The boundary tests listed for `make quick` exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run import BOUNDARIES

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_test_of_a_boundary_exists(boundary: str) -> None:
    path, *names = BOUNDARIES[boundary].split("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {names[-1]}(" in text
