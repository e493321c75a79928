"""Fault injection: what each fault costs in lost and duplicate records, and what the console shows.

`fault_cluster.py` is the cluster that most faults happen to: real nodes with a job, a console that records them with a
linger, and a console with a screen. A test injects a fault, removes it and asserts; its figures are appended by
`measurements.py`, from which `results.py` writes RESULTS.md. `soak.py` injects random faults for an hour. Nothing here
uses the inside of the product but its session files.
"""
