"""The tables of a query as the console hands them to the process that runs it.

DuckDB is not imported here: that process has it, and loading it would stop the frame clock of the screen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..format.table_schema import LineFile
from ..format.zstd_frames import MAX_RAW_BYTES


class HistoryRows(msgspec.Struct, frozen=True):
    """Metric history of one kind: a row per instant and entity at which anything is known."""

    heads: Sequence[str]  # JSON per entity: what identifies it
    head_names: tuple[str, ...]
    entity: NDArray[np.int64]  # per row: index in `heads`
    t: NDArray[np.int64]  # per row: console CLOCK_REALTIME, ns
    metrics: dict[str, NDArray[np.float64]]  # per row; NaN: unknown


class SourceTables(msgspec.Struct, frozen=True):
    """The columns and files of each table; a table that is not named has no rows."""

    files: dict[str, tuple[Path, ...]] = msgspec.field(default_factory=dict)  # Parquet
    line_files: dict[str, LineFile] = msgspec.field(default_factory=dict)
    lines: dict[str, Sequence[str]] = msgspec.field(default_factory=dict)  # as `table_schema.line_of` formats them
    history: dict[str, HistoryRows] = msgspec.field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write records and history into a folder, for `load` in another process. Raises OSError."""
        for table, lines in self.lines.items():
            (folder / f"{table}.ndjson").write_text("\n".join(lines), encoding="utf-8")
        for table, rows in self.history.items():
            heads = msgspec.json.encode((rows.head_names, rows.heads))
            (folder / f"{table}.heads.json").write_bytes(heads)
            arrays: dict[str, Any] = {"entity": rows.entity, "t": rows.t, **rows.metrics}
            np.savez(folder / f"{table}.npz", **arrays)

    @classmethod
    def load(cls, folder: Path, wanted: Collection[str]) -> Self:
        """Read what `save` wrote. Raises OSError."""
        line_files: dict[str, LineFile] = {}
        history: dict[str, HistoryRows] = {}
        for table in wanted:
            if (path := folder / f"{table}.ndjson").exists():
                line_files[table] = LineFile(path, min(path.stat().st_size, MAX_RAW_BYTES))
            if (path := folder / f"{table}.npz").exists():
                names, heads = msgspec.json.decode(
                    (folder / f"{table}.heads.json").read_bytes(), type=tuple[tuple[str, ...], list[str]]
                )
                with np.load(path) as arrays:
                    columns = {name: arrays[name] for name in arrays.files}
                entity, t = columns.pop("entity"), columns.pop("t")
                history[table] = HistoryRows(heads, names, entity, t, columns)
        return cls(line_files=line_files, history=history)
