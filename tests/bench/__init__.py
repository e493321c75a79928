"""Benches: each measures one promise of the design on this machine, beside a peer where there is one; none asserts.

`make bench` runs them and writes RESULTS.md. A bench is a module with `measure(quick) -> Outcome`; `result.py` says
what that is, `spent.py` measures processes, `stream.py` is what a real agent says, `conditions.py` where and when.
"""
