"""The Query view: screen, model and columns."""
