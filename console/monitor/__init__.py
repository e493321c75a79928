"""Live evaluation of the store: findings, hang diagnosis, skew, clocks, topology."""
