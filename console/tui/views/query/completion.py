"""Completion of SQL: what may stand at the cursor, out of the tables and columns there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Words of SQL that are worth offering; all else is short or rare.
_SQL: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "USING", "DESCRIBE", "DISTINCT", "HAVING",
    "BETWEEN", "DESC", "COUNT(*)", "avg(", "min(", "max(", "sum(", "median(", "quantile_cont(", "list(",
)  # fmt: skip
#: After these a table is meant.
_BEFORE_TABLE: Final = ("FROM", "JOIN", "DESCRIBE", "DESC", "SUMMARIZE")


@dataclass(frozen=True)
class SqlCompletion:
    """The options for the word from `start` up to `end`, the likeliest first."""

    start: int
    end: int
    options: tuple[str, ...]


def complete(text: str, cursor: int, names: Mapping[str, Sequence[str]]) -> SqlCompletion:
    """What the word before the cursor may become; `names` are the tables with their columns."""
    word = re.search(r"\w*$", text[:cursor])
    assert word is not None
    start, begun = word.start(), word[0].casefold()
    before = re.findall(r"\w+|\S", text[:start])
    mentioned = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)]
    columns = list(dict.fromkeys(column for name in mentioned for column in names[name]))
    if before and before[-1].upper() in _BEFORE_TABLE:
        candidates: list[str] = list(names)
    elif not before:
        candidates = [*_SQL, *names]
    else:
        candidates = [*columns, *_SQL, *names]
    options = [each for each in dict.fromkeys(candidates) if each.casefold().startswith(begun)]
    if options == [text[start:cursor]]:
        options = []
    return SqlCompletion(start, cursor, tuple(options))
