"""Labelled jobs: hangs as they occur in the field, small, on real ranks, and the verdict that each must get.

`jobs/` are the scripts, `labels.py` the expected verdict of each, `live_jobs.py` runs one on a rig, `recordings/` are
the records of each as `gconsole batch --records` wrote them (`python -m tests.hangs.make_recordings` makes them anew),
`score.py` compares verdicts with labels, `baselines.py` does the same for other methods.

Nothing of this may be known to the product: no name of a file, a function or a label of this folder.
"""
