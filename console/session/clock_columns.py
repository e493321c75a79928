"""Where the clock model meets the tables: `t_cluster` and `bound_ns` beside every record's own stamps.

Stamps are never rewritten; a record that no model reaches has null in both.
"""

from __future__ import annotations


def with_cluster_time(sql: str) -> str:
    """That query of records with the two columns added."""
    return f"SELECT *, NULL::BIGINT AS t_cluster, NULL::BIGINT AS bound_ns FROM ({sql})"
