"""The Parquet of a session, read by the programs that people have: the same rows and types in each of them."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from session_builders import START, a_session, gpu

from gconsole.session.manage.compact import compact

#: Columns of `gpu` with what a reader has to make of them. `hour` is the name of a folder, which readers may parse.
TYPES = {
    "node": "text", "seq": "int64", "t": "int64", "power_w": "float64", "mem_used_bytes": "int64", "index": "int64",
    "remap_pending": "bool", "clocks_event_reasons": "list", "t_utc": "UTC instant", "hour": "text",
}  # fmt: skip
FIRST = dt.datetime.fromtimestamp(START / 1e9, dt.UTC)


class Answer(NamedTuple):
    """What a reader found in the `gpu` table."""

    rows: int
    power_sum: float
    power_nulls: int
    largest_t: int
    first_instant: dt.datetime
    types: dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `gpu` table of a compacted session of two hours; every third power is unknown."""
    metrics = [gpu(n, uuid=f"GPU-{n % 8}", at=n, power_w=n / 8 if n % 3 else None, mem_used_bytes=2**40 + n)
               for n in range(4000)]  # fmt: skip
    session = a_session(tmp_path_factory.mktemp("readers"), metrics)
    compact(session)
    return session.parquet_folder / "gpu"


def by_pandas(folder: Path) -> Answer:
    import pandas as pd

    frame = pd.read_parquet(folder, dtype_backend="pyarrow")
    types = {name: _name(str(frame[name].dtype)) for name in TYPES}
    power = frame["power_w"]
    first = frame["t_utc"].min().to_pydatetime()
    return Answer(len(frame), power.sum(), int(power.isna().sum()), int(frame["t"].max()), first, types)


def by_duckdb(folder: Path) -> Answer:
    import duckdb

    with duckdb.connect() as db:
        table = f"read_parquet('{folder}/**/*.parquet')"
        described = {name: kind for name, kind, *_ in db.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()}
        # the instant as a number: without pytz DuckDB makes no Python datetime of it
        ((rows, total, nulls, largest, first_us),) = db.sql(
            f"SELECT count(*), sum(power_w), count(*) - count(power_w), max(t), epoch_us(min(t_utc)) FROM {table}"
        ).fetchall()
    types = {name: _name(described[name]) for name in TYPES}
    return Answer(rows, total, nulls, largest, _instant(first_us), types)


def by_dask(folder: Path) -> Answer:
    dask = pytest.importorskip("dask.dataframe", reason="dask is not installed (only in CI)")
    frame = dask.read_parquet(folder)
    types = {name: _name(str(frame[name].dtype)) for name in TYPES}
    assert types["clocks_event_reasons"] == "object", "numpy has no lists"
    types |= {"clocks_event_reasons": "list", "hour": "text"}
    power, first = frame["power_w"], frame["t_utc"].min().compute().to_pydatetime()
    nulls = int(power.isna().sum().compute())
    return Answer(len(frame), power.sum().compute(), nulls, int(frame["t"].max().compute()), first, types)


def by_polars(folder: Path) -> Answer:
    pl = pytest.importorskip("polars", reason="polars is not installed (only in CI)")
    frame = pl.read_parquet(folder)
    types = {name: _name(str(frame.schema[name])) for name in TYPES}
    power = frame["power_w"]
    return Answer(len(frame), power.sum(), power.null_count(), frame["t"].max(), frame["t_utc"].min(), types)


def by_spark(folder: Path) -> Answer:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed (only by make full)")
    if shutil.which("java") is None:
        pytest.skip("no Java on this machine")
    spark = (
        sql.SparkSession.builder.master("local[1]").appName("gconsole-test")
        .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    )  # fmt: skip
    try:
        frame = spark.read.parquet(str(folder))
        types = {name: _name(kind) for name, kind in frame.dtypes if name in TYPES}
        (row,) = frame.selectExpr(
            "count(*)", "sum(power_w)", "count(*) - count(power_w)", "max(t)", "min(unix_micros(t_utc))"
        ).collect()
    finally:
        spark.stop()
    return Answer(row[0], row[1], row[2], row[3], _instant(row[4]), types)


def _instant(since_epoch_us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(since_epoch_us / 1e6, dt.UTC)


def _name(reader_type: str) -> str:
    """A reader's name of a type in the words of `TYPES`."""
    kind = reader_type.lower().replace("[pyarrow]", "")
    if kind.endswith("[]") or kind.startswith(("list", "array")):
        return "list"
    if kind.startswith(("timestamp", "datetime")):
        # Spark's `timestamp` is an instant; one without a time zone is `timestamp_ntz`
        has_zone = "utc" in kind or kind in {"timestamp", "timestamp with time zone"}
        return "UTC instant" if has_zone else "instant without a time zone"
    for name, words in (("text", ("varchar", "str", "dictionary")), ("int64", ("bigint", "int64")),
                        ("float64", ("double", "float64")), ("bool", ("bool",))):  # fmt: skip
        if kind.startswith(words):
            return name
    return kind


@pytest.mark.slow
@pytest.mark.timeout(600)  # Spark starts a Java machine
@pytest.mark.parametrize(
    "read", [by_pandas, by_duckdb, by_dask, by_polars, pytest.param(by_spark, marks=pytest.mark.full)]
)
def test_reader_finds_every_row_with_its_type(folder: Path, read: Callable[[Path], Answer]) -> None:
    answer = read(folder)

    power = [n / 8 for n in range(4000) if n % 3]
    assert answer.rows == 4000
    assert answer.power_sum == pytest.approx(sum(power))
    assert answer.power_nulls == 4000 - len(power)
    assert answer.largest_t == START + 3999 * 1_000_000_000, "exact: a float has 53 bits"
    assert abs(answer.first_instant - FIRST) < dt.timedelta(microseconds=2)
    assert answer.types == TYPES
