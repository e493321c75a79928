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
medians; ratios are to a peer measured in the same run.
"""
_COLUMNS: Final = ("bench", *(cell or "verdict" for cell in HEAD))


@dataclass(frozen=True)
class StoredResult:
    """One benchmark: its table rows and its section, as in the file."""

    rows: tuple[str, ...]
    section: tuple[str, ...]


def kept_of(name: str, outcome: Outcome, conditions: Sequence[tuple[str, str]]) -> StoredResult:
    """The entry for a new outcome under these conditions."""
    rows = ["| " + " | ".join((name, *row.cells)) + " |" for row in outcome.rows]
    lines = [f"- {line}" for line in outcome.how]
    if outcome.missed:
        tried = [f"  - {attempt}" for attempt in outcome.attempts] or ["  - nothing yet"]
        lines += [f"- missed: {', '.join(row.what for row in outcome.missed)}; tried:", *tried]
    lines.append(f"- conditions: {'; '.join(f'{what} {value}' for what, value in conditions)}")
    return StoredResult(tuple(rows), tuple(lines))


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
