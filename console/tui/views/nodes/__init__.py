"""The Nodes view: screen, model and columns."""
