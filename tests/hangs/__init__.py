"""Labelled jobs: small reproductions of hangs from the field, on real ranks, with the verdict that each must get.

`jobs/` are the scripts, `labels.py` the expected verdict of each, `live_jobs.py` runs one on a rig, `recordings/` are
the records of each as `gconsole batch --records` wrote them (`python -m tests.hangs.make_recordings` regenerates them),
`score.py` compares verdicts with labels, `baselines.py` does the same for other methods.

The product must not contain any name of a file, a function or a label of this folder.
"""
