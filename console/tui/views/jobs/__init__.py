"""The Jobs view: screen, model and columns."""
