"""Sessions compacted by the previous release, with Parquet written by pyarrow, are read unchanged."""

import shutil
from pathlib import Path

import pytest

from gconsole.records import encode
from gconsole.session.format import reader
from gconsole.session.format.layout import Session
from gconsole.session.manage.compact import compact
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource

#: GPU metrics, a map, stacks, arrays of structs, and an unknown kind, with the segments they were compacted from.
PREVIOUS = Path(__file__).parent / "session"


@pytest.fixture
def previous(tmp_path):
    shutil.copytree(PREVIOUS, tmp_path / "night")
    return Session(tmp_path / "night")


def test_parquet_of_the_previous_release_has_the_records_of_its_segments(previous):
    recorded = sorted(map(encode, reader.records(previous.path)))
    assert len({record.split(b'"')[3] for record in recorded}) == 5
    for segment in previous.segments():
        segment.unlink()

    assert sorted(map(encode, reader.records(previous.path))) == recorded


@pytest.mark.slow
def test_parquet_of_the_previous_release_can_be_queried_with_sql(previous):
    with RecordedSource(previous.path) as source:
        database = Database(source, source.scratch)
        assert database.query("SELECT count(*), max(util_pct), max(mem_used_bytes) FROM gpu").rows == [
            (5, 2.5, 2**53 + 1)
        ]
        assert database.query("SELECT DISTINCT watched['phase'] FROM rank_stat").rows == [('"train"',)]
        assert database.query("SELECT bins[1].best[1].rtt FROM clock_bins").rows == [(4,)]
        assert database.query("SELECT DISTINCT func FROM backtrace WHERE depth = 0 ORDER BY ALL").rows == [
            ("all_reduce",), ("load_shard",),
        ]  # fmt: skip
        database.close()


def test_compacting_a_session_of_the_previous_release_again_changes_nothing(previous):
    before = {path: path.stat().st_mtime_ns for path in previous.parquet_folder.rglob("*.parquet")}
    compact(previous)
    assert {path: path.stat().st_mtime_ns for path in previous.parquet_folder.rglob("*.parquet")} == before
