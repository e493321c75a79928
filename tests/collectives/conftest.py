"""Makes `from rig import Rig` and `from jobs import Job` work, as in tests/cluster."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from fixtures import needs_torch, rig

__all__ = ["needs_torch", "rig"]  # fixtures
