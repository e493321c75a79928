"""So that `from builders import a_node` works here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
