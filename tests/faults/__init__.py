"""Everything that breaks around the console, produced on purpose: what is lost, what is doubled, what the screen says.

`world.py` is the cluster that most faults happen to: real nodes with a job, a console that records them with a linger,
and a console with a screen. A test strikes, mends and asserts; its figures go to the ledger, of which `results.py`
makes RESULTS.md. `soak.py` strikes for an hour. Nothing here knows the inside of the product but its session files.
"""
