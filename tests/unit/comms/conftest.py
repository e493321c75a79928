"""Makes the helpers of the agent tests in tests/unit/remote importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
