"""What the health checks require of digests, so that they find the same in them as in samples."""

from __future__ import annotations

from ..analysis.health.conditions import REASONS, thresholds
from ..analysis.health.window import BUCKETS
from ..config.model import Config
from ..core.wants import DigestRules


def digest_rules(config: Config) -> DigestRules:
    """By the limits of a configuration. A digest belongs to one bucket of the window of the checks."""
    limits = config.health
    return DigestRules(lambda infos: thresholds(infos, limits.busy_pct), REASONS, limits.window_s / BUCKETS)
