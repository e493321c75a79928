"""RESULTS.md: the latest result of each benchmark. A partial run replaces its own rows and keeps the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.result import HEAD, Outcome

_INTRO: Final = """# Results of the benches

Written by `make bench`, or of some of them by `make bench ARGS="NAME …"`; each says below when it ran last. A bench
measures and prints; it asserts nothing. A goal that is missed stays here as missed, with what was tried. Figures are
medians; ratios are to a peer measured in the same run. Rows marked `old` were measured at a commit after which the code
that they measure has changed.
"""
_COLUMNS: Final = ("bench", *(cell or "verdict" for cell in HEAD), "commit")
_COMMIT: Final = re.compile(r"\bcommit ([0-9a-f]{7,40})( and uncommitted changes)?")


@dataclass(frozen=True)
class StoredResult:
    """One benchmark: its table rows and its section, as in the file."""

    rows: tuple[str, ...]
    section: tuple[str, ...]


def kept_of(name: str, outcome: Outcome, conditions: Sequence[tuple[str, str]]) -> StoredResult:
    """The entry for a new outcome under these conditions."""
    commit = _commit_cell("; ".join(f"{what} {value}" for what, value in conditions))
    rows = ["| " + " | ".join((name, *row.cells, commit)) + " |" for row in outcome.rows]
    lines = [f"- {line}" for line in outcome.how]
    if outcome.missed:
        tried = [f"  - {attempt}" for attempt in outcome.attempts] or ["  - nothing yet"]
        lines += [f"- missed: {', '.join(row.what for row in outcome.missed)}; tried:", *tried]
    lines.append(f"- conditions: {'; '.join(f'{what} {value}' for what, value in conditions)}")
    return StoredResult(tuple(rows), tuple(lines))


def _commit_cell(conditions: str) -> str:
    """The commit in a line of conditions, `+` for one with changes; empty without any."""
    commit = _COMMIT.search(conditions)
    return f"{commit[1]}{'+' if commit[2] else ''}" if commit else ""


def commit_of(stored: StoredResult) -> str:
    """The commit at which a benchmark was measured; empty where it is unknown."""
    return _commit_cell(" ".join(stored.section)).rstrip("+")


def marked(stored: StoredResult, *, is_old: bool) -> StoredResult:
    """The entry with its commit in each row; `is_old`: the code that it measures has changed since."""
    cell = f"{_commit_cell(' '.join(stored.section))}{' old' if is_old else ''}".strip()
    rows = (" | ".join((*row.removesuffix(" |").split(" | ")[: len(_COLUMNS) - 1], cell)) + " |" for row in stored.rows)
    return StoredResult(tuple(rows), stored.section)


def read(text: str) -> dict[str, StoredResult]:
    """The entries of the file, by benchmark."""
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = {name.strip(): body for name, _, body in (part.partition("\n") for part in parts)}
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return {
        name: StoredResult(
            tuple(row for row in rows if row.startswith(f"| {name} |")),
            tuple(line for line in body.splitlines() if line.strip()),
        )
        for name, body in sections.items()
    }


def as_markdown(kept: Mapping[str, StoredResult], order: Iterable[str]) -> str:
    """The file: one table, and the method of each benchmark."""
    there = [name for name in order if name in kept]
    table = ["| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS)]
    lines = [*_INTRO.splitlines(), "", *table, *(row for name in there for row in kept[name].rows)]
    for name in there:
        lines += ["", f"## {name}", "", *kept[name].section]
    return "\n".join(lines) + "\n"
