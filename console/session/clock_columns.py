"""Where the clock model meets what is kept: `t_cluster` and `bound_ns` beside every record's own stamps.

Stamps are never rewritten; a record that no model reaches has null in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from ..hub import Published
from ..records import Record


def with_cluster_time(sql: str) -> str:
    """That query of records with the two columns added."""
    return f"SELECT *, NULL::BIGINT AS t_cluster, NULL::BIGINT AS bound_ns FROM ({sql})"


class ClusterTime:
    """Instants of nodes on the common clock, where a session knows it; else as the node says."""

    @classmethod
    def of(cls, records: Iterable[Published]) -> Self:
        """The common clock, as these records of clocks tell it."""
        return cls()

    def knows(self, node: str) -> bool:
        """Whether that node's instants are on the common clock."""
        return not node

    def of_record(self, record: Record) -> int:
        """When a record was made."""
        return record.t

    def of_instant(self, node: str, at: int) -> int:
        """An instant of that node's CLOCK_REALTIME."""
        return at
