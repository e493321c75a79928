"""Stop orders for unreachable nodes, kept in the user's state folder until the nodes are back.

They are not kept on other nodes of the job: a node must not be able to end another node's job.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import msgspec
import platformdirs

from ..text.atomic_files import make_folder, write_atomically

#: Jobs with pending orders that are kept; older ones are dropped.
MAX_JOBS: int = 200


class PendingStops:
    """The pending stop orders in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_cluster(cls, cluster: str) -> PendingStops:
        """The pending stop orders of the cluster of that name."""
        return cls(platformdirs.user_state_path("gconsole") / "stops" / f"{quote(cluster, safe=' ')[:200]}.json")

    @property
    def orders(self) -> dict[str, tuple[str, ...]]:
        """Nodes by job; empty if the file cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[str, ...]])
        except (OSError, msgspec.DecodeError):
            return {}

    def set(self, job: str, nodes: tuple[str, ...]) -> None:
        """Replace the nodes on which a job is still to be stopped; none if the order is done. Raises OSError."""
        orders = self.orders
        if orders.get(job, ()) == nodes:
            return
        orders.pop(job, None)
        if nodes:
            orders[job] = nodes
        kept = dict(list(orders.items())[-MAX_JOBS:])
        if kept:
            make_folder(self._path.parent)
            write_atomically(self._path, msgspec.json.encode(kept) + b"\n")
        else:
            self._path.unlink(missing_ok=True)
