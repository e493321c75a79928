"""Every view, once: its name, its key, its titles, and what makes it. Tabs, keys and palette follow from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..keymap.actions import Action
from .base import View
from .clocks.view import Clocks
from .events.view import Events
from .gpus.view import Gpus
from .hang.view import Hang
from .jobs.view import Jobs
from .nodes.view import Nodes
from .overview.view import Overview
from .query.view import Query
from .ranks.view import Ranks
from .skew.view import Skew
from .topology.view import Topology


@dataclass(frozen=True)
class ViewRow:
    """One view. `short` is its title where the tabs are crowded, `tells` what it is for."""

    name: str
    key: str
    title: str
    short: str
    make: Callable[[ViewRow], View]
    tells: str

    @property
    def action(self) -> Action:
        """What opens it."""
        return Action(f"app.view_{self.name}", self.key, f"app.show('{self.name}')", self.title, f"Show {self.tells}")


VIEWS: Final[tuple[ViewRow, ...]] = (
    ViewRow("overview", "1", "Overview", "Over", lambda row: Overview(id=row.name),
            "nodes, GPUs, ranks and findings at one glance"),
    ViewRow("ranks", "2", "Ranks", "Ranks", lambda row: Ranks(id=row.name), "a row a rank, missing ones too"),
    ViewRow("hang", "3", "Hang", "Hang", lambda row: Hang(id=row.name), "which rank holds the job, and the proof"),
    ViewRow("skew", "4", "Skew", "Skew", lambda row: Skew(id=row.name),
            "who arrives late at each collective, with its uncertainty"),
    ViewRow("topology", "5", "Topology", "Topo", lambda row: Topology(id=row.name),
            "GPUs, NICs and NUMA nodes, and the ranks on them"),
    ViewRow("gpus", "6", "GPUs", "GPUs", lambda row: Gpus(id=row.name),
            "every figure of every GPU, and the ranks that use it"),
    ViewRow("clocks", "7", "Clocks", "Clk", lambda row: Clocks(id=row.name),
            "offset, drift and bound of every node's clock"),
    ViewRow("events", "8", "Events", "Ev", lambda row: Events(id=row.name),
            "one stream of what happened: XID, OOM, node lost, marks"),
    ViewRow("query", "9", "Query", "Qry", lambda row: Query(id=row.name), "SQL over every record of the session"),
    ViewRow("jobs", "0", "Jobs", "Jobs", lambda row: Jobs(id=row.name),
            "the jobs that gconsole started"),
    ViewRow("nodes", "n", "Nodes", "Nodes", lambda row: Nodes(id=row.name),
            "everything known of a node, its log included"),
)  # fmt: skip
