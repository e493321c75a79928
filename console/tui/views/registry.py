"""The table of all views; tabs, keys and palette commands follow from it."""

from __future__ import annotations

from typing import Final

import msgspec

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


class ViewSpec(msgspec.Struct, frozen=True):
    """One view. `short` is its title in narrow tab bars, `help` completes "Show …"."""

    name: str
    key: str
    title: str
    short: str
    view: type[View]
    help: str

    @property
    def action(self) -> Action:
        """The action that opens it."""
        return Action(f"app.view_{self.name}", self.key, f"views.show('{self.name}')", self.title, f"Show {self.help}")


VIEWS: Final[tuple[ViewSpec, ...]] = (
    ViewSpec("overview", "1", "Overview", "Over", OverviewView, "the status of nodes, GPUs, ranks and findings"),
    ViewSpec("ranks", "2", "Ranks", "Ranks", RanksView, "all ranks, including missing ones"),
    ViewSpec("hang", "3", "Hang", "Hang", HangView, "which rank is blocking the job, with the evidence"),
    ViewSpec("skew", "4", "Skew", "Skew", SkewView, "which ranks are late at collectives, with error bars"),
    ViewSpec("topology", "5", "Topology", "Topo", TopologyView, "GPUs, NICs and NUMA nodes, and the ranks on them"),
    ViewSpec("gpus", "6", "GPUs", "GPUs", GpusView, "all metrics of all GPUs, and the ranks using them"),
    ViewSpec("clocks", "7", "Clocks", "Clk", ClocksView, "clock offset, drift and error bound of every node"),
    ViewSpec("events", "8", "Events", "Ev", EventsView, "the event log: XID, OOM, lost nodes, markers"),
    ViewSpec("query", "9", "Query", "Qry", QueryView, "SQL over all records"),
    ViewSpec("jobs", "0", "Jobs", "Jobs", JobsView, "jobs started by gconsole or discovered"),
    ViewSpec("nodes", "n", "Nodes", "Nodes", NodesView, "node details, including the log"),
)
