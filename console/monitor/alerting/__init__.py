"""Unattended watching: rules on findings, what they do, and the heartbeat that proves that the watch runs."""
