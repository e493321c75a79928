"""Headless commands: batch, clean, ps."""
