"""Orders to stop that nodes could not be told: a person's own, kept in their state folder until the nodes are back.

They are kept here and not on the other nodes of a job, because a node must not be able to have another one's job ended.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import msgspec
import platformdirs

from ..text.atomic_files import make_folder, write_atomically

#: Older orders than these are forgotten: so many jobs.
MOST: int = 200


class Owed:
    """`orders` are nodes by job. A file that cannot be read holds none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_cluster(cls, cluster: str) -> Owed:
        """Those of the cluster of that name."""
        return cls(platformdirs.user_state_path("gconsole") / "stops" / f"{quote(cluster, safe=' ')[:200]}.json")

    @property
    def orders(self) -> dict[str, tuple[str, ...]]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, tuple[str, ...]])
        except (OSError, msgspec.DecodeError):
            return {}

    def set(self, job: str, nodes: tuple[str, ...]) -> None:
        """These nodes could not be told to stop the job; with none the order is carried out. Raises OSError."""
        orders = self.orders
        if orders.get(job, ()) == nodes:
            return
        orders.pop(job, None)
        if nodes:
            orders[job] = nodes
        kept = dict(list(orders.items())[-MOST:])
        if kept:
            make_folder(self._path.parent)
            write_atomically(self._path, msgspec.json.encode(kept) + b"\n")
        else:
            self._path.unlink(missing_ok=True)
