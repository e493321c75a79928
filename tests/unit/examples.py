"""Number of examples that a property test draws, by the tier that runs it."""

from __future__ import annotations

import os

#: Tier → part of the number that a test asks for. tests/run.py exports the tier; pytest started by hand is `test`.
SHARE = {"quick": 0.1, "test": 0.25, "full": 2.0}
TIER = os.environ.get("TEST_TIER", "test")
#: Fewer examples than these find nothing that the first, trivial ones do not.
LEAST = 5


def examples(wanted: int) -> int:
    """`wanted` examples, scaled to the tier that runs."""
    return max(LEAST, round(wanted * SHARE[TIER]))
