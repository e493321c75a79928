"""The Events view: screen, model and columns."""
