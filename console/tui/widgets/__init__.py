"""Widgets: they draw plain rows, without the store or the fleet, and can be tested alone."""
