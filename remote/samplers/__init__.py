"""Samplers: one file a source of facts, each on its own thread, each able to be absent."""
