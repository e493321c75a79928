"""Verdict on a job that died: its first cause, the cascade and the teardown."""
