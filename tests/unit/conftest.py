"""Hypothesis profile: the number of examples depends on the tier; the fast tiers are deterministic."""

from __future__ import annotations

from examples import TIER, examples
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tier",
    max_examples=examples(100),
    derandomize=TIER != "full",
    deadline=None,  # seconds mean nothing beside five other test processes
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tier")
