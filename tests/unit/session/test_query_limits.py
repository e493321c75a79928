"""SQL over records: rejected statements, and limits on time, memory and files."""

import resource
import signal
import subprocess
import sys
import threading

import pandas as pd
import pytest
from session_builders import a_job, a_session, gpu
from session_queries import ENDLESS, SessionQueries, run

from gconsole.session.query.engine import Database
from gconsole.session.query.limits import QueryCancelled, QueryError
from gconsole.session.query.sources import RecordedSource
from gconsole.session.query.worker import QueryWorkerClient

REFUSED = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/*')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_csv('https://example.org/x.csv')",
    "COPY gpu TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT parquet)",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "INSERT INTO plain.gpu SELECT * FROM plain.gpu",
    "DELETE FROM plain.gpu",
    "DROP VIEW gpu",
    "CALL pragma_version()",
    "USE system",
    "BEGIN",
    "CHECKPOINT",
    "VACUUM",
    "SELECT 1; COPY gpu TO '{out}'",
    "SELECT 1; SELECT 2",
    "WITH x AS (INSERT INTO plain.gpu SELECT * FROM plain.gpu RETURNING *) FROM x",
    "WITH x AS (DELETE FROM plain.gpu RETURNING *) FROM x",
    "EXPLAIN ANALYZE WITH x AS (DELETE FROM plain.gpu RETURNING *) FROM x",
    "FROM query('COPY (SELECT 1) TO ''{out}''')",
    "FROM read_duckdb('/etc/passwd')",
    "FROM read_ndjson_objects('/etc/passwd')",
    "FROM duckdb_extensions()",
    "FROM enable_logging('QueryLog')",
    "SELECT getenv('HOME')",
    "PREPARE v AS SELECT 1",
    "SET VARIABLE x = 1",
    "SET memory_limit = '100GB'",
    "",
    "-- nothing",
]


@pytest.fixture(scope="module")
def query_one_record(tmp_path_factory):
    """Queries on a session of one record."""
    queries = SessionQueries(a_session(tmp_path_factory.mktemp("one"), [gpu(1)]).path)
    yield queries
    queries.close()


@pytest.mark.slow
@pytest.mark.parametrize("sql", REFUSED)
def test_sql_that_reads_outside_the_records_or_writes_is_rejected(tmp_path, query_one_record, sql):
    out = tmp_path / "written"

    with pytest.raises(QueryError):
        query_one_record(sql.format(out=out))

    assert not out.exists()
    assert query_one_record("SELECT count(*) FROM gpu") == [(1,)]


@pytest.mark.parametrize("sql", ["SELECT * FROM '/etc/passwd'", "SELECT * FROM '/etc/shadow.csv'"])
def test_file_path_is_rejected_as_a_table_name(tmp_path, open_queries, sql):
    with pytest.raises(QueryError):
        open_queries(a_session(tmp_path, [gpu(1)]).path)(sql)


def test_python_variable_is_rejected_as_a_table_name(tmp_path, open_queries):
    secret = pd.DataFrame({"word": ["swordfish"]})
    assert len(secret)
    with pytest.raises(QueryError):
        open_queries(a_session(tmp_path, [gpu(1)]).path)("SELECT * FROM secret")


def test_duckdb_sandbox_settings_are_in_force(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, [gpu(1)]).path)
    names = (
        "('enable_external_access', 'lock_configuration', 'autoload_known_extensions', 'python_enable_replacements')"
    )

    settings = dict(ask(f"SELECT name, value FROM duckdb_settings() WHERE name IN {names}"))

    assert settings == {
        "enable_external_access": "false", "lock_configuration": "true", "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }  # fmt: skip


def test_misspelled_column_is_an_error_that_suggests_candidates(tmp_path, open_queries):
    with pytest.raises(QueryError, match=r'Candidate bindings.*"power_w"'):
        open_queries(a_session(tmp_path, [gpu(1)]).path)("SELECT powr_w FROM gpu")


def test_query_past_its_deadline_is_cancelled_with_an_error(tmp_path, open_queries):
    with pytest.raises(QueryError, match=r"no result within 0\.2 s"):
        open_queries(a_session(tmp_path, [gpu(1)]).path)(ENDLESS, deadline_s=0.2)


def test_query_can_be_cancelled_from_another_thread(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, [gpu(1)]).path)
    ask("SELECT 1")
    over = threading.Event()

    def cancel():
        while not over.wait(0.02):
            ask.database.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        with pytest.raises(QueryCancelled):
            ask(ENDLESS)
    finally:
        over.set()
        thread.join()
    assert ask("SELECT 1") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    ["SELECT repeat('x', 4200000000), repeat('y', 4200000000)", "SELECT range(4200000000)",
     "SELECT list(range) FROM range(1000000000)"],
)  # fmt: skip
def test_query_over_the_memory_limit_fails_with_advice(tmp_path, sql):
    path = a_session(tmp_path, [gpu(1)]).path

    result = subprocess.run([sys.executable, "-m", "gconsole", "query", path, sql], capture_output=True, text=True)

    assert result.returncode == 2
    assert "the result needs more than 1GB of memory; select fewer columns or rows" in result.stderr


def test_memory_limit_is_restored_after_the_query(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    run(a_session(tmp_path, [gpu(1)]).path, "SELECT 1")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_unpacking_of_segments_can_be_cancelled(tmp_path):
    source = RecordedSource(a_session(tmp_path, a_job()).path)
    with source:
        source.cancel()
        with pytest.raises(QueryCancelled):
            Database(source, source.scratch).query("FROM gpu")


def test_unpacked_scratch_files_are_removed_when_the_source_closes(tmp_path):
    source = RecordedSource(a_session(tmp_path, [gpu(1)]).path)
    with source:
        source.tables(["gpu"])
        scratch = source.scratch
        assert list(scratch.rglob("*.ndjson"))
    assert not scratch.exists()


@pytest.mark.parametrize(
    ("signal_number", "words"),
    [
        (signal.SIGKILL, "ended with SIGKILL, perhaps out of memory; select fewer"),
        (signal.SIGSEGV, "ended with signal 11 before it replied; run the query again"),
    ],
)
def test_death_of_the_query_process_is_reported_with_its_signal(signal_number, words):
    client = QueryWorkerClient()
    client.names()  # starts the process
    process = client._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)  # so that it has not ended when the request is sent
    ending = threading.Timer(0.1, lambda: [process.send_signal(number) for number in (signal_number, signal.SIGCONT)])
    ending.start()
    try:
        with pytest.raises(QueryError, match=words):
            client.names()
    finally:
        ending.join()
        client.close()
