"""One clock for the cluster, with a bound: from what probes measured to the line of each node.

In this order: `samples` (a window of one edge as arrays), `region` (all lines that its stamps allow) and `fit` (the
best of them), `edge` (both together), `mesh` and `constraints` (all edges against each other), `settle` (a window of
the fleet), `claims` (what the nodes' own time services say), `windows` (the fold of records into windows and lines),
`readings` and `line` (the conversion that everybody uses), `found` (what is wrong with a clock). Pure: records in,
records and findings out.
"""

from .model import ClusterTime, CommonClock
from .readings import NodeClock

__all__ = ["ClusterTime", "CommonClock", "NodeClock"]
