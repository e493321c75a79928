"""Labelled crashes: real jobs that die in real ways, or end well, with the verdict that each must get.

`jobs/` are the scripts, `labels.py` the expected verdict of each, `live_jobs.py` runs one on a rig while the program
watches, `recordings/` are the records of each (`python -m tests.crashes.make_recordings` regenerates them), `score.py`
compares verdicts with labels, `rounds.py` runs all of them live.

The product must not contain any name of a file, a function or a label of this folder.
"""
