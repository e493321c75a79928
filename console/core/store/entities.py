"""What is known of one thing now, and the keys under which the store has it."""

from __future__ import annotations

from dataclasses import dataclass

from ...records import AgentCost, Gpu, GpuDigest, GpuInfo, Host, Node, NodeState, Rank, RankStat

#: A process for ever: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]
#: A GPU: (node, uuid).
GpuKey = tuple[str, str]
#: One of its links: (node, uuid, link). A process on it: (node, uuid, pid).
GpuPartKey = tuple[str, str, int]
#: A network port: (node, device, port).
NicKey = tuple[str, str, int]
#: An edge of a node's topology: (node, type, kind and id of one end, of the other).
LinkKey = tuple[str, str, str, str, str, str]


@dataclass(slots=True)
class NodeNow:
    """All that is known of one node now."""

    name: str
    state: NodeState | None = None
    node: Node | None = None
    host: Host | None = None
    cost: AgentCost | None = None  # None until the agent's first full tick
    heard: int = 0  # console time of its last record, ns; 0 for never


@dataclass(slots=True)
class GpuNow:
    """All that is known of one GPU now."""

    info: GpuInfo | None = None
    gpu: Gpu | None = None
    digest: GpuDigest | None = None  # of the last second, where it was looked at several times


@dataclass(slots=True)
class RankNow:
    """One process that is, or was, a rank."""

    rank: Rank
    stat: RankStat | None = None
    still_since: int | None = None  # `mono` of the first of the figures that say, without a break, that nothing moves
    broken: tuple[int, int] | None = None  # when that had its last break (`t`), and since when it had held
    disturbed: int = 0  # when the agent had last stopped it to read its native calls (`t`)
