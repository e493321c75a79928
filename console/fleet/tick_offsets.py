"""When in the second each node samples: many nodes at once, so that the console wakes once for their records.

A record that arrives alone wakes an idle process: a heartbeat then takes the console 0.4 ms of CPU, and 0.02 ms in a
loop (measured 2026-11-27). Background work delays a synchronous job less if all its nodes do it at the same instant
(Petrini, Kerbyson and Pakin, "The Case of the Missing Supercomputer Performance", SC 2003; not measured here).
"""

from __future__ import annotations

from typing import Final

#: Nodes that sample at the same instant. Their records keep the event loop busy for 7 ms, without SSH (0.43 ms a node,
#: by the bench `throughput`).
TOGETHER: Final = 16


def tick_offset_s(position: int) -> float:
    """Seconds after each full second of its own clock at which the node at this position of its fleet samples.

    Groups of `TOGETHER` nodes are spread over the second by the binary van der Corput sequence, which leaves gaps of
    nearly equal length after any number of groups: 0, 0.5, 0.25, 0.75, 0.125, …
    """
    group, offset, share = position // TOGETHER, 0.0, 0.5
    while group:
        group, bit = divmod(group, 2)
        offset, share = offset + bit * share, share / 2
    return offset
