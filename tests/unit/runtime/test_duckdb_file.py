"""A DuckDB file of views over a session's Parquet, as other programs open it."""

import duckdb
import pytest
from click.testing import CliRunner
from session_builders import a_hang, a_job, a_session, gpu

import gconsole
from gconsole.cli.sessions import sessions
from gconsole.session.format.table_schema import TABLES

pytestmark = pytest.mark.slow


def test_duckdb_file_has_every_table_and_view_for_any_duckdb(tmp_path):
    session = a_session(tmp_path, [*a_job(), *a_hang()])
    path = tmp_path / "night.duckdb"

    gconsole.open(session.path).write_duckdb(path)

    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute("SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank").fetchall()
        tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_columns()").fetchall()}
        assert connection.execute("SELECT count(t_cluster) FROM gpu").fetchall() == [(0,)]
    assert rows == [(0, 100.0), (1, 50.0), (2, 100.0), (3, 100.0)]
    assert tables >= {*TABLES, "ranks_now", "stack_groups"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".gconsole")] == []


def test_duckdb_file_is_replaced_and_reads_what_was_recorded_since(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    path = tmp_path / "night.duckdb"
    gconsole.open(session.path).write_duckdb(path)
    a_session(tmp_path, [gpu(1), gpu(2)], "other")

    gconsole.open(tmp_path / "other").write_duckdb(path)

    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM gpu").fetchall() == [(2,)]


def test_duckdb_file_of_a_session_without_records_is_refused(tmp_path):
    session = a_session(tmp_path, [])
    with pytest.raises(gconsole.SessionError, match="no records are compacted yet"):
        gconsole.open(session.path).write_duckdb(tmp_path / "night.duckdb")
    assert not (tmp_path / "night.duckdb").exists()


def test_command_writes_the_file_and_reports_its_records(tmp_path):
    a_session(tmp_path, [gpu(1), gpu(2)])
    path = tmp_path / "night.duckdb"

    result = CliRunner().invoke(sessions, ["duckdb", "night", "-o", str(path), "--folder", str(tmp_path)])

    assert (result.exit_code, result.output) == (0, f"night: views of 2 records: {path}\n")
