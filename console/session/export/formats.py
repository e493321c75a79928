"""Registry of the export formats of a session, and its plain tables: CSV and Parquet files per record kind."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

import msgspec

from ...records import KINDS, RawRecord, Record, encode
from ...records.kinds import kind_of
from ...text.atomic_files import create_text, make_folder
from ...text.sanitize import cell
from ..format.layout import Session
from ..format.reader import Damaged, RecordFilter
from ..format.table_schema import TABLES, UNKNOWN
from .slice import SessionSlice

#: Columns that describe transport rather than content come last in CSV.
_LAST_COLUMNS: Final = ("agent", "seq", "mono", "rx")


class SessionFormat(msgspec.Struct, frozen=True):
    """One export format of a session; the module of its writer is imported when it is used."""

    name: str
    suffix: str
    writer: str  # "module.function" in this package, called with a slice and a binary file, or a folder if `is_folder`
    description: str
    is_folder: bool = False

    def write(self, source: SessionSlice, out: BinaryIO) -> None:
        """Write the slice into one file. Raises OSError, and what reading the session raises."""
        self._function(source, out)

    def write_folder(self, source: SessionSlice, folder: Path) -> list[Path]:
        """Write the slice into a folder; return the files. Raises OSError, and what reading the session raises."""
        files: list[Path] = self._function(source, folder)
        return files

    @property
    def _function(self) -> Callable[..., list[Path]]:
        module, _, name = self.writer.partition(".")
        function: Callable[..., list[Path]] = getattr(import_module(f".{module}", __package__), name)
        return function


#: Format name → format, in the order of menus.
SESSION_FORMATS: Final[dict[str, SessionFormat]] = {
    form.name: form
    for form in (
        SessionFormat("json", ".json", "document.write", "whole session in one documented file; can be imported"),
        SessionFormat(
            "parquet", "-parquet", "formats.write_parquet", "one folder per kind, for DuckDB, pandas, Spark, Dask",
            is_folder=True,
        ),
        SessionFormat("csv", "-csv", "formats.write_csv", "one file per kind, for a spreadsheet", is_folder=True),
        SessionFormat("perfetto", ".perfetto-trace", "perfetto.write", "trace for ui.perfetto.dev"),
        SessionFormat(
            "speedscope", ".speedscope.json", "stacks.write_speedscope", "stacks of the newest capture, for speedscope"
        ),
        SessionFormat("gswarm", ".gswarm.json", "gswarm.write", "frames and summary as gswarm-profiler documents them"),
        SessionFormat("html", ".html", "html_page.write", "HTML report for a ticket: verdict, findings, stacks, plots"),
    )
}  # fmt: skip


def write_parquet(source: SessionSlice, folder: Path) -> list[Path]:
    """Write a folder per kind, partitioned by hour as compaction does; return the files. Raises OSError.

    Of a session that is exported for all times, nodes and GPUs, the files of compaction are copied.
    """
    whole = SessionSlice(source.path, RecordFilter(source.choice.kinds), meta=source.meta)
    if type(source) is SessionSlice and source == whole and source.path.is_dir():
        return _copy_parquet(source, folder)
    from ..format.parquet_writer import PartWriter  # imports DuckDB

    writer = PartWriter(folder, "part")
    writer.add(source.records())
    return [folder / part.path for part in writer.finish()]


def _copy_parquet(source: SessionSlice, folder: Path) -> list[Path]:
    from ..format.parquet_writer import PartWriter
    from ..query.sources import RecordedSource

    copies = []
    with RecordedSource(source.path) as recorded:
        files, segments = recorded.stored(TABLES if source.choice.kinds is None else sorted(source.choice.kinds))
        writer = PartWriter(recorded.scratch / "parts", "part")
        for path, tables in segments.items():
            writer.add_segment(path, recorded.note_damage, tables, is_own=source.meta.is_own)
        originals = [
            *(path for _, path in files),
            *(recorded.scratch / "parts" / part.path for part in writer.finish()),
        ]
        last = Session(source.path).segments()[-1:]
        for damage in recorded.damage:
            if damage.is_loss and not (damage.what == "torn" and [damage.path] == last):
                raise Damaged(f"{source.path}: {damage}; try: gconsole sessions verify {source.path.name}, and recover")
        for original in originals:
            copy = folder.joinpath(*original.parts[-3:])  # kind, hour, file
            make_folder(copy.parent)
            with copy.open("xb") as out, original.open("rb") as file:
                shutil.copyfileobj(file, out)
            copies.append(copy)
    return copies


def write_csv(source: SessionSlice, folder: Path) -> list[Path]:
    """Write a CSV file per kind; return the files. Unknown values are empty; text that a spreadsheet reads as a formula
    is escaped.

    Raises OSError, FileExistsError if a file exists already.
    """
    writers: dict[str, tuple[Path, Callable[[Any], object]]] = {}
    with ExitStack() as stack:
        for record in source.records():
            kind = UNKNOWN if isinstance(record, RawRecord) else kind_of(record)
            if kind not in writers:
                path = folder / f"{kind}.csv"
                writers[kind] = path, _row_writer(kind, stack.enter_context(create_text(path)))
            writers[kind][1](record)
    return [path for path, _ in writers.values()]


def _row_writer(kind: str, file: TextIO) -> Callable[[Any], object]:
    rows = csv.writer(file, lineterminator="\n")
    if kind == UNKNOWN:
        rows.writerow(["kind", "node", "agent", "seq", "rx", "raw"])
        return lambda raw: rows.writerow(
            [*map(cell, (raw.kind, raw.node, raw.agent, raw.seq, raw.rx)), encode(raw).decode(errors="replace")]
        )
    names = csv_columns(KINDS[kind])
    rows.writerow(names)

    def write_row(record: Record) -> None:
        fields = msgspec.to_builtins(record)
        rows.writerow([cell(fields.get(name)) for name in names])

    return write_row


def csv_columns(struct: type[Record]) -> list[str]:
    """Return the field names of a kind in the order of its CSV columns."""
    names = [field.encode_name for field in msgspec.structs.fields(struct)]
    return [name for name in names if name not in _LAST_COLUMNS] + [name for name in names if name in _LAST_COLUMNS]
