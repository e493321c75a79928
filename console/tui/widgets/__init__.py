"""Widgets, one a file: they draw plain rows, know no store and no fleet, and can be tested alone."""
