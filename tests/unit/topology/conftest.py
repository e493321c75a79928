"""So that `from machines import hgx_facts` works here, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "analysis"))
