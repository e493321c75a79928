"""Labelled jobs by the shape of their communication: healthy, slow and hung, with and without a Flight Recorder."""
