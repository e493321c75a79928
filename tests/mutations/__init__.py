"""Defects put back into the product on purpose, to show that the fast test tiers notice them."""
