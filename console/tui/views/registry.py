"""Every view, once: its name, its key, its titles, and what makes it. Tabs, keys and palette follow from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..keymap.actions import Action
from .base import View
from .clocks.view import ClocksView
from .events.view import EventsView
from .gpus.view import GpusView
from .hang.view import HangView
from .jobs.view import JobsView
from .nodes.view import NodesView
from .overview.view import OverviewView
from .query.view import QueryView
from .ranks.view import RanksView
from .skew.view import SkewView
from .topology.view import TopologyView


@dataclass(frozen=True)
class ViewSpec:
    """One view. `short` is its title where the tabs are crowded, `tells` what it is for."""

    name: str
    key: str
    title: str
    short: str
    make: Callable[[ViewSpec], View]
    tells: str

    @property
    def action(self) -> Action:
        """What opens it."""
        return Action(f"app.view_{self.name}", self.key, f"views.show('{self.name}')", self.title, f"Show {self.tells}")


VIEWS: Final[tuple[ViewSpec, ...]] = (
    ViewSpec("overview", "1", "Overview", "Over", lambda row: OverviewView(id=row.name),
            "the status of nodes, GPUs, ranks and findings"),
    ViewSpec("ranks", "2", "Ranks", "Ranks", lambda row: RanksView(id=row.name), "all ranks, including missing ones"),
    ViewSpec("hang", "3", "Hang", "Hang", lambda row: HangView(id=row.name),
        "which rank is blocking the job, with the evidence"),
    ViewSpec("skew", "4", "Skew", "Skew", lambda row: SkewView(id=row.name),
            "which ranks are late at collectives, with error bars"),
    ViewSpec("topology", "5", "Topology", "Topo", lambda row: TopologyView(id=row.name),
            "GPUs, NICs and NUMA nodes, and the ranks on them"),
    ViewSpec("gpus", "6", "GPUs", "GPUs", lambda row: GpusView(id=row.name),
            "all metrics of all GPUs, and the ranks using them"),
    ViewSpec("clocks", "7", "Clocks", "Clk", lambda row: ClocksView(id=row.name),
            "clock offset, drift and error bound of every node"),
    ViewSpec("events", "8", "Events", "Ev", lambda row: EventsView(id=row.name),
            "the event log: XID, OOM, lost nodes, markers"),
    ViewSpec("query", "9", "Query", "Qry", lambda row: QueryView(id=row.name), "SQL over all records"),
    ViewSpec("jobs", "0", "Jobs", "Jobs", lambda row: JobsView(id=row.name),
            "jobs started by gconsole or discovered"),
    ViewSpec("nodes", "n", "Nodes", "Nodes", lambda row: NodesView(id=row.name),
            "node details, including the log"),
)  # fmt: skip
