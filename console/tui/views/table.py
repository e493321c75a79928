"""Every view, once: its name, its key, its titles, and what makes it. Tabs, keys and palette follow from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..keys import Action
from .base import View
from .overview import Overview
from .ranks import Ranks
from .soon import Soon


@dataclass(frozen=True)
class ViewRow:
    """One view. `short` is its title where the tabs are crowded."""

    name: str
    key: str
    title: str
    short: str
    make: Callable[[ViewRow], View]
    promise: str = ""  # of a view that is not built yet

    @property
    def action(self) -> Action:
        """What opens it."""
        return Action(f"app.view_{self.name}", self.key, f"app.show('{self.name}')", self.title, f"Show {self.title}")


def _soon(row: ViewRow) -> View:
    return Soon(row.title, row.promise, id=row.name)


VIEWS: Final[tuple[ViewRow, ...]] = (
    ViewRow("overview", "1", "Overview", "Over", lambda row: Overview(id=row.name)),
    ViewRow("ranks", "2", "Ranks", "Ranks", lambda row: Ranks(id=row.name)),
    ViewRow("hang", "3", "Hang", "Hang", _soon, "will say which rank holds the job, and show the proof"),
    ViewRow("skew", "4", "Skew", "Skew", _soon, "will show who arrives late at each collective, with its uncertainty"),
    ViewRow("topology", "5", "Topology", "Topo", _soon, "will draw GPUs, NICs and NUMA nodes, and the ranks on them"),
    ViewRow("gpus", "6", "GPUs", "GPUs", _soon, "will list every figure of every GPU, and the ranks that use it"),
    ViewRow("clocks", "7", "Clocks", "Clk", _soon, "will show offset, drift and bound of every node's clock"),
    ViewRow("events", "8", "Events", "Ev", _soon, "will be one stream of what happened: XID, OOM, node lost, marks"),
    ViewRow("query", "9", "Query", "Qry", _soon, "will answer SQL over every record of the session"),
    ViewRow("jobs", "0", "Jobs", "Jobs", _soon, "will list the jobs that gconsole started"),
    ViewRow("nodes", "n", "Nodes", "Nodes", _soon, "will tell everything known of a node, its log included"),
)
