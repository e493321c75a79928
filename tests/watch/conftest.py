"""Fixtures of the unattended watch: the rig, and an interpreter with torch."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from fixtures import needs_torch, rig

__all__ = ["needs_torch", "rig"]  # fixtures
