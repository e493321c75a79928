"""The Hang view: screen, model and columns."""
