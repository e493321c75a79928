"""`csv`: a file a kind, its columns those of the records; unknown is empty, and no text is a formula."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from ...records import KINDS, RawRecord, Record, encode
from ...records.kinds import kind_of
from ...text.atomic_files import new_text
from ...text.csv_cell import cell
from ..format.table_schema import UNKNOWN
from .slice import Chosen

#: Fields that say how a record travelled come last: a spreadsheet shows the first ones.
_LAST: Final = ("agent", "seq", "mono", "rx")


def write(what: Chosen, folder: Path) -> list[Path]:
    """Write the files into a folder; which they are. Raises OSError, FileExistsError where one is there already."""
    writers: dict[str, tuple[Path, Callable[[Any], object]]] = {}
    with ExitStack() as stack:
        for record in what.records():
            kind = UNKNOWN if isinstance(record, RawRecord) else kind_of(record)
            if kind not in writers:
                path = folder / f"{kind}.csv"
                file = stack.enter_context(new_text(path))
                writers[kind] = path, _writer(kind, file)
            writers[kind][1](record)
    return [path for path, _ in writers.values()]


def _writer(kind: str, file: TextIO) -> Callable[[Any], object]:
    rows = csv.writer(file, lineterminator="\n")
    if kind == UNKNOWN:
        rows.writerow(["kind", "node", "agent", "seq", "rx", "raw"])
        return lambda raw: rows.writerow(
            [*map(cell, (raw.kind, raw.node, raw.agent, raw.seq, raw.rx)), encode(raw).decode(errors="replace")]
        )
    names = columns_of(KINDS[kind])
    rows.writerow(names)

    def put(record: Record) -> None:
        facts = msgspec.to_builtins(record)
        rows.writerow([cell(facts.get(name)) for name in names])

    return put


def columns_of(struct: type[Record]) -> list[str]:
    """The fields of a kind, those of its head that tell when and where first."""
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    return [name for name in names if name not in _LAST] + [name for name in names if name in _LAST]
