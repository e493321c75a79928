"""Processes of the node from /proc: identity, state, environment, and which of them are ranks."""
