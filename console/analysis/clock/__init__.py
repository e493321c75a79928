"""Cluster clock with error bounds, from probe records to a linear clock model per node. Pure: records in, findings out.

Pipeline: `edge` (one edge window: possible lines, best line, bound), `network_fit` (all edges against each other),
`node_bounds` (one window of all nodes), `assign` (measured lines or NTP/PTP claims), `windows` (fold of records),
`model` (clock conversion), `findings`.
"""
