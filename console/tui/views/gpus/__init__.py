"""The GPUs view: screen, model and columns."""
