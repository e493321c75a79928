"""Hypothesis profile: the number of examples depends on the tier; the fast tiers are deterministic."""

from __future__ import annotations

from examples import TIER, examples
from hypothesis import settings

settings.register_profile("tier", max_examples=examples(100), derandomize=TIER != "full")
settings.load_profile("tier")
