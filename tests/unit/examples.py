"""Number of Hypothesis examples per property test, by tier."""

from __future__ import annotations

import os

#: Tier → fraction of the requested number. tests/run.py exports the tier; pytest started by hand uses `test`.
SHARE = {"quick": 0.1, "test": 0.25, "full": 2.0}
TIER = os.environ.get("TEST_TIER", "test")
#: Minimum; fewer examples cover only trivial inputs.
LEAST = 5


def examples(wanted: int) -> int:
    """`wanted` examples, scaled to the current tier."""
    return max(LEAST, round(wanted * SHARE[TIER]))
