"""Cluster clock with error bounds, from probe records to a linear clock model per node. Pure: records in, findings out.

Pipeline: `samples` (one edge window as arrays), `feasible_region` and `estimators` (possible lines, best line), `edge`,
`intervals` and `network_fit` (all edges against each other), `node_bounds` (one window of all nodes), `time_services`
(NTP/PTP claims), `windows` (fold of records), `readings` and `model` (clock conversion), `findings`.
"""

from .model import ClusterInstant, CommonClock
from .readings import NodeClock

__all__ = ["ClusterInstant", "CommonClock", "NodeClock"]
