"""The Ranks view: screen, model and columns."""
