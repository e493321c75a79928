"""The Topology view: screen, model and columns."""
