"""Benchmarks: each measures one goal of the design on this machine, with a peer where there is one; none asserts.

`make bench` runs them and writes RESULTS.md. A benchmark is a module with `measure(quick) -> Outcome`, see `result.py`.
`process_usage.py` measures processes, `stream.py` replays a real agent, `conditions.py` describes the machine.
"""
