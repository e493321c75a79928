"""The Skew view: screen, model and columns."""
