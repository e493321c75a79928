"""Fault injection: lost and duplicate records per fault, and what the console shows.

`fault_cluster.py` is the cluster for most faults: real nodes with a job, a console that records them with a
linger, and a console with a screen. A test injects a fault, removes it and asserts; its figures are appended by
`measurements.py`, from which `results.py` writes RESULTS.md. `soak.py` injects random faults for an hour. Nothing here
uses product internals except the session files.
"""
