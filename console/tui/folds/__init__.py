"""Data derived from the store for the screen: jobs, verdicts, clocks."""
