"""Dialogs that open over a view."""
