"""How far apart the reads of one capture were, and how long it took: on the nodes' own clocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...records import Stack


def spread_ns(stacks: Sequence[Stack]) -> int | None:
    """How far apart /proc was read, in the worst sample: against the instant that was the same for all nodes."""
    late: dict[tuple[int, int], list[int]] = defaultdict(list)
    starts = _starts(stacks)
    for stack in stacks:
        if stack.looked is not None and stack.at is not None:
            late[(stack.sample, stack.at - starts[stack.node])].append(stack.looked - stack.at)
    return max((max(one) - min(one) for one in late.values()), default=None)


def took_ns(stacks: Sequence[Stack]) -> int | None:
    """From the instant that was asked for to the end of the last read."""
    starts = _starts(stacks)
    ends = (stack.ended - starts[stack.node] for stack in stacks if stack.ended and stack.node in starts)
    return max(ends, default=None)


def _starts(stacks: Sequence[Stack]) -> dict[str, int]:
    """The first instant that was asked for, on each node's clock."""
    starts: dict[str, int] = {}
    for stack in stacks:
        if stack.at is not None:
            starts[stack.node] = min(stack.at, starts.get(stack.node, stack.at))
    return starts
