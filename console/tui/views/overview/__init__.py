"""The Overview view: screen, model and columns."""
