"""Ranks without torch meet over files, polling; rank 2 was never started."""

from file_barrier import meet_over_files
from plain import ready

ready()
meet_over_files(0, 0.5)
