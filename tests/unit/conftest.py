"""Property tests draw as many examples as their tier has time for, in the fast tiers always the same ones."""

from __future__ import annotations

from examples import TIER, examples
from hypothesis import settings

settings.register_profile("tier", max_examples=examples(100), derandomize=TIER != "full")
settings.load_profile("tier")
