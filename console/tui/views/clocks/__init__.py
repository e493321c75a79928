"""The Clocks view: screen, model and columns."""
