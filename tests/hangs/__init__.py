"""Labelled jobs: what really hangs in the field, small, on real ranks, and what a verdict about each must say.

`jobs/` are the scripts, `labels.py` says what is true of each, `lab.py` runs one on a rig, `recordings/` are the
records of each as `gconsole batch --records` wrote them (`python -m tests.hangs.record` makes them anew), `score.py`
compares verdicts with labels, `rivals.py` does for other methods what the verdict does.

Nothing of this may be known to the product: no name of a file, a function or a label of this folder.
"""
