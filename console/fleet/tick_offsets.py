"""When in the second each node samples: many nodes at once, so that the console wakes once for their records.

A record that arrives alone wakes an idle process, which costs the console ten to twenty times what the record itself
does. Nodes of a parallel job also delay it less if they sample at the same instant than one after the other.
"""

from __future__ import annotations

from typing import Final

#: Nodes that sample at the same instant: reading the records of as many takes the console about 15 ms.
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
