"""Cost of queries and exports: bytes per record in Parquet, an average over 10 M samples, memory of an export."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from gconsole.records import Gpu, GpuProcess, encode
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, named
from tests.bench.process_usage import memory_bytes

from .noisy_gpus import seconds
from .process import in_new_process
from .result import Outcome, Row

NODES, GPUS = 64, 8
SAMPLES = 10_000_000
#: Generated samples; the rest of the table repeats them with later times.
MADE = 500_000
#: Records of the exported session, and of the compacted one.
EXPORTED, PANDAS = 1_000_000, 50_000
GOAL_BYTES, GOAL_S, GOAL_MEMORY = 60.0, 1.0, 300_000_000
_BEGAN_NS: Final = 1_790_000_000_000_000_000
_QUESTION: Final = "SELECT rank, avg(util_pct) AS util_pct FROM gpu_by_rank GROUP BY rank ORDER BY rank"


def measure(quick: bool) -> Outcome:
    samples, made, exported, of_pandas = (
        (400_000, 100_000, 200_000, 20_000) if quick else (SAMPLES, MADE, EXPORTED, PANDAS)
    )
    with tempfile.TemporaryDirectory(prefix="gconsole-bench-") as scratch:
        folder = Path(scratch)
        bytes_each, compacted_s = in_new_process(_compact, folder, made)
        first_s, later_s = in_new_process(_average, folder, samples, made)
        pandas_s = in_new_process(_by_pandas, folder, of_pandas)
        forms = ("json", "perfetto", "gswarm", "html")
        figures = {how: in_new_process(_export, folder, how, exported) for how in forms}
    worst = max(memory for memory, _ in figures.values())
    return Outcome(
        [
            Row("bytes of a `gpu` record in Parquet, every field", f"{bytes_each:.0f}", "≤ 60",
                bytes_each <= GOAL_BYTES),
            Row(f"avg by rank over {samples:,} GPU samples", f"{later_s:.2f} s", "≤ 1 s", later_s <= GOAL_S,
                f"pandas on the JSON of {of_pandas:,}: {pandas_s:.2f} s"),
            Row("the same, the first query of a process", f"{first_s:.2f} s"),
            Row(f"memory while exporting {exported:,} records, the worst of {len(figures)} forms",
                f"{worst / 1e6:.0f} MB RSS", "≤ 300 MB for 10 M", worst <= GOAL_MEMORY),
            Row("compacting", f"{made / compacted_s:,.0f} records/s"),
        ],
        [
            f"{NODES} nodes of {GPUS} GPUs at 1 Hz (noisy_gpus.py), all fields present; Parquet as `sessions compact`"
            f" writes it, of {made:,} records in one go",
            f"the {samples:,} samples are {made:,} repeated with later times; a rank a GPU",
            "exports of one session, discarded: "
            + ", ".join(f"{how} {memory / 1e6:.0f} MB, {took:.0f} s" for how, (memory, took) in figures.items()),
        ],
    )  # fmt: skip


def _records(count: int) -> Iterator[Gpu]:
    brought = seconds(NODES, GPUS, _BEGAN_NS)
    return islice((record for second in brought for node in second for record in node), count)


def _compact(folder: Path, made: int) -> tuple[float, float]:
    """(bytes per record, seconds) of compacting a session to Parquet."""
    from gconsole.session.manage.compact import compact

    session = named("made", folder)
    writer.write_session(session, _records(made), Meta())
    began = time.monotonic()
    done = compact(session)
    took = time.monotonic() - began
    return sum((session.parquet_folder / part.path).stat().st_size for part in done.parts) / made, took


class _Table:
    """A query source: the samples, and the GPU of each rank."""

    def __init__(self, files: tuple[Path, ...], ranks: list[GpuProcess]) -> None:
        self._files, self._ranks = files, ranks

    def tables(self, wanted: object) -> object:
        from gconsole.session.query.source_tables import SourceTables

        return SourceTables({"gpu": self._files}, {"gpu_process": [encode(rank).decode() for rank in self._ranks]})


def _average(folder: Path, samples: int, made: int) -> tuple[float, float]:
    """Seconds of the query: the first one with all set-up, and the best of three more."""
    from gconsole.session.format.duckdb_connection import connect
    from gconsole.session.format.parquet_writer import ROW_GROUP
    from gconsole.session.query.engine import Database

    parts = sorted((folder / "made" / "parquet" / "gpu").rglob("*.parquet"))
    files, listed = [], [str(part) for part in parts]
    with connect() as connection:
        for again in range(samples // made):
            path = folder / f"again-{again}.parquet"
            later = ", ".join(f"{name} + {again * 3_600_000_000_000} AS {name}" for name in ("t", "mono", "rx"))
            connection.execute(
                f"""COPY (SELECT * REPLACE ({later}) FROM read_parquet({listed}, hive_partitioning = false)
                    ORDER BY node, uuid, agent, mono, seq)
                    TO '{path}' (FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"""
            )
            files.append(path)
        query = f"""SELECT DISTINCT node, "index", uuid FROM read_parquet({listed}, hive_partitioning = false)"""
        keys = connection.execute(query).fetchall()
    ranks = [
        GpuProcess(node=node, index=index, uuid=uuid, pid=rank, type="compute", job="j", attempt=0,
                   rank=rank)
        for rank, (node, index, uuid) in enumerate(keys)
    ]  # fmt: skip
    database = Database(_Table(tuple(files), ranks))  # type: ignore[arg-type]
    took = []
    for _ in range(4):
        began = time.monotonic()
        answer = database.query(_QUESTION)
        took.append(time.monotonic() - began)
    if len(answer.rows) != len(keys):
        raise RuntimeError(f"{len(answer.rows)} ranks answered")
    return took[0], min(took[1:])


def _by_pandas(folder: Path, count: int) -> float:
    """Seconds of the same average over NDJSON records."""
    import pandas as pd

    path = folder / "samples.ndjson"
    with path.open("wb") as file:
        file.writelines(encode(record) + b"\n" for record in _records(count))
    began = time.monotonic()
    pd.read_json(path, lines=True).groupby("uuid")["util_pct"].mean()
    return time.monotonic() - began


class _NullFile(io.RawIOBase):
    def write(self, data: object) -> int:
        return len(data)  # type: ignore[arg-type]


def _export(folder: Path, how: str, count: int) -> tuple[int, float]:
    """(peak RSS, seconds) of an export of that many records, which repeat the generated ones."""
    from gconsole.session.export.formats import SESSION_FORMATS
    from gconsole.session.export.slice import slice_session

    made, long = named("made", folder), named("long", folder)
    if not long.path.exists():
        shutil.copytree(made.path, long.path, ignore=shutil.ignore_patterns("parquet", "lock"))
        segments, meta = made.segments(), long.read()
        for again in range(1, count // meta.records):
            for segment in segments:
                shutil.copy(segment, long.segment(again * len(segments) + int(segment.name.partition(".")[0])))
    began = time.monotonic()
    SESSION_FORMATS[how].write(slice_session(long.path), _NullFile())  # type: ignore[arg-type]
    return memory_bytes()[1], time.monotonic() - began
