"""What a question asks for, told without a database: whoever holds the records need not load one."""

from __future__ import annotations

import re

from ...records import KINDS
from .views import SHORT_VIEWS

#: The table of records whose kind nobody knows.
UNKNOWN = "unknown"
#: All tables there can be.
TABLES = (*KINDS, UNKNOWN)


def tables_named(sql: str) -> frozenset[str]:
    """The tables that the question may read: every word in it that is one, and those behind a short view."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    for view in SHORT_VIEWS:
        if view.name in words:
            words |= set(view.tables)
    return frozenset(words & set(TABLES))
