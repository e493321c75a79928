"""Collectives recorded by communication libraries: missing ranks, mismatches, wait-for graph, traffic, performance.

`align` aligns the records, `fault` finds missing ranks and mismatches, `wait_graph` orders them by cause, `traffic` and
`performance` describe what completed. Results carry a reason where the records are not sufficient.
"""
