"""Makes `from builders import a_node` importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
