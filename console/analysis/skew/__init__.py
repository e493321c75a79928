"""Straggler analysis on the common clock: which ranks arrive late, how often, at what cost, with error bounds.

`sync_points` aligns the ranks' records, `lateness` evaluates one sync point and aggregates them, `consistency` detects
desynchronised ranks and clock violations. Differences within the clock error are `unresolved`.
"""
