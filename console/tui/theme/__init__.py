"""Themes: built-in TOML files, the user's own, and their conversion to Textual."""
