"""Readers of files that others made: dumps and logs in, records out. Nothing here knows a store or a screen."""
