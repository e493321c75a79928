"""SQL over records: what it answers, what it tells of itself, and what it refuses."""

import contextlib
import json
import lzma
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from session_made import a_job, a_session, gpu

from gconsole.cli.query import query as command
from gconsole.records import Collective, Frame, Mark, Stack, encode
from gconsole.session.compact import compact
from gconsole.session.database import Database, QueryCancelled, QueryError
from gconsole.session.sources import RecordedSource

ROOT = Path(__file__).parents[3]


class Asked:
    """A database over a folder or file, whose answers are plain rows."""

    def __init__(self, path):
        self.source = RecordedSource(path)
        self.database = Database(self.source, self.source.scratch)

    def __call__(self, sql, **how):
        return [tuple(row.values()) for row in self.database.ask(sql, **how).rows.to_pylist()]

    def close(self):
        self.database.close()
        self.source.close()


@pytest.fixture
def asked():
    opened = []

    def open_(path):
        opened.append(Asked(path))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def a_hang():
    """Rank 1 of two reads a file, rank 0 waits for it in all_reduce; one capture."""
    loading = (Frame("<module>", "train.py", 212), Frame("load_shard", "dataset.py", 88))
    reducing = (Frame("<module>", "train.py", 214), Frame("all_reduce", "/torch/distributed_c10d.py", 3252))
    common = {"capture": "c1", "sample": 0, "job": "llama", "start_ticks": 7, "status": "ok", "agent": "a"}
    common["node"] = "n0"
    return [
        Stack(**common, seq=1, rank=0, pid=100, thread_id=1, os_thread_id=100, path=0, frames=reducing),
        Stack(**common, seq=2, rank=2, pid=102, thread_id=1, os_thread_id=102, path=0),
        Stack(**common, seq=3, rank=1, pid=101, thread_id=1, os_thread_id=101, path=1, frames=loading),
        Stack(**common, seq=4, rank=1, pid=101, thread_id=2, os_thread_id=177, thread_name="pin", path=0),
        *(
            Collective(capture="c1", source="worker_server", job="llama", rank=rank, agent="a", node="n0", seq=5 + rank,
                       process_group=("0", "default_pg"), collective_seq_id=1423, profiling_name="nccl:all_reduce",
                       retired=False, read_at=50_000_000_000, time_created_ns=9_000_000_000, duration_ms=rank)
            for rank in (0, 2)
        ),
    ]  # fmt: skip


# -- what it answers ---------------------------------------------------------------------------------------------------


def test_segments_and_parquet_and_a_file_of_records_answer_alike(tmp_path, asked):
    records = [*a_job(), *a_hang()]
    segments = a_session(tmp_path, records, "segments")
    parquet = a_session(tmp_path, records, "parquet")
    compact(parquet)
    file = tmp_path / "night.ndjson"
    file.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    sql = "SELECT node, rank, avg(util_pct), count(*) FROM gpu_by_rank GROUP BY ALL ORDER BY ALL"

    answers = [asked(path)(sql) for path in (segments.path, parquet.path, file)]

    assert answers[0] == [("n0", 0, 100.0, 3), ("n0", 1, 50.0, 3), ("n1", 2, 100.0, 3), ("n1", 3, 100.0, 3)]
    assert answers[1] == answers[2] == answers[0]


def test_what_was_recorded_after_compaction_is_there_too(tmp_path, asked):
    from gconsole.session import frames
    from gconsole.session.segments import SegmentWriter

    session = a_session(tmp_path, [gpu(1), gpu(2)])
    compact(session)
    writer = SegmentWriter(session)
    late = gpu(3)
    writer.append(frames.pack([encode(late)], {"gpu": 1}, late.rx, late.rx))
    writer.close()

    assert asked(session.path)("SELECT count(*), sum(seq) FROM gpu") == [(3, 6)]


def test_ranks_now_is_one_row_a_rank_with_its_last_figures(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_job()).path)

    rows = ask("SELECT rank, node, state, step, gpu, gpu_index, gpu_util_pct FROM ranks_now")

    assert rows == [
        (0, "n0", "moving", 3, "GPU-0", 0, 100.0), (1, "n0", "moving", 3, "GPU-1", 1, 50.0),
        (2, "n1", "moving", 3, "GPU-2", 0, 100.0), (3, "n1", "moving", 3, "GPU-3", 1, 100.0),
    ]  # fmt: skip


def test_watched_variables_are_asked_for_by_name(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_job()).path)

    rows = ask("SELECT watched['loss']::DOUBLE, watched['phase']->>'$' FROM rank_stat WHERE rank = 0 ORDER BY step")

    assert rows == [(3.5, "train"), (2.5, "train"), (1.5, "train")]


def test_a_rank_whose_gpu_only_its_environment_tells_is_found_by_it(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_job()).path)

    assert ask("SELECT rank, source FROM gpu_of_rank ORDER BY rank")[2:] == [(2, "gpu_process"), (3, "rank")]


def test_stack_groups_have_the_odd_rank_first_and_repeated_stacks_in_full(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_hang()).path)

    rows = ask("SELECT count, ranks, stack FROM stack_groups")

    assert rows == [
        (1, [1], "load_shard dataset.py:88 < <module> train.py:212"),
        (2, [0, 2], "all_reduce distributed_c10d.py:3252 < <module> train.py:214"),
    ]


def test_backtrace_counts_from_the_innermost_call(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_hang()).path)

    rows = ask("SELECT rank, depth, func, lineno FROM backtrace WHERE rank = 1 AND is_main ORDER BY depth")

    assert rows == [(1, 0, "load_shard", 88), (1, 1, "<module>", 212)]


def test_collective_waits_name_who_waits_in_what_for_how_long(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_hang()).path)

    rows = ask('SELECT "group", seq_id, operation, waiting, ranks, waited_s FROM collective_waits')

    assert rows == [("0", 1423, "nccl:all_reduce", 2, [0, 2], 41.0)]


def test_records_of_unknown_kinds_can_be_asked_for(tmp_path, asked):
    path = tmp_path / "night.ndjson"
    path.write_bytes(b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":9,"charm":7}\n')

    assert asked(path)("SELECT kind, raw->>'charm' FROM unknown") == [("quark", "7")]


def test_time_of_the_cluster_is_unknown_without_a_clock_model(tmp_path, asked):
    ask = asked(a_session(tmp_path, a_job()).path)

    assert ask("SELECT DISTINCT t_cluster, bound_ns FROM gpu") == [(None, None)]


# -- what it tells of itself -------------------------------------------------------------------------------------------


def test_describe_lists_tables_and_short_views(tmp_path, asked):
    told = asked(a_session(tmp_path, [gpu(1)]).path)("describe")

    assert ("gpu", "records", "One GPU at one tick.") in told
    assert "ranks_now" in [name for name, *_ in told]


@pytest.mark.parametrize("question", ["DESCRIBE gpu", "desc gpu;", ' describe TABLE "gpu" '])
def test_describe_tells_units_and_meanings(tmp_path, asked, question):
    told = asked(a_session(tmp_path, [gpu(1)]).path)(question)

    assert ("power_w", "DOUBLE", "W", "") in told
    assert ("energy_j", "DOUBLE", "J", "since the driver was loaded") in told


def test_describe_of_a_question_is_duckdbs_own(tmp_path, asked):
    told = asked(a_session(tmp_path, [gpu(1)]).path)("DESCRIBE SELECT power_w AS watts FROM gpu")

    assert told[0][:2] == ("watts", "DOUBLE")


def test_the_names_for_completion_are_tables_with_their_columns(tmp_path, asked):
    names = asked(a_session(tmp_path, [gpu(1)]).path).database.names()

    assert "rank" in names["gpu_by_rank"] and "util_pct" in names["gpu"] and "bound_ns" in names["gpu"]


# -- what it refuses ---------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("sql", REFUSED)
def test_nothing_but_the_records_can_be_read_and_nothing_written(tmp_path, asked, sql):
    ask = asked(a_session(tmp_path, [gpu(1)]).path)
    out = tmp_path / "written"

    with pytest.raises(QueryError):
        ask(sql.format(out=out))

    assert not out.exists()
    assert ask("SELECT count(*) FROM gpu") == [(1,)]


@pytest.mark.parametrize("sql", ["SELECT * FROM '/etc/passwd'", "SELECT * FROM '/etc/shadow.csv'"])
def test_a_path_is_no_table(tmp_path, asked, sql):
    with pytest.raises(QueryError):
        asked(a_session(tmp_path, [gpu(1)]).path)(sql)


def test_a_variable_of_the_program_is_no_table(tmp_path, asked):
    import pyarrow

    secret = pyarrow.table({"word": ["swordfish"]})
    assert secret.num_rows
    with pytest.raises(QueryError):
        asked(a_session(tmp_path, [gpu(1)]).path)("SELECT * FROM secret")


def test_settings_that_shut_it_off_are_in_force(tmp_path, asked):
    ask = asked(a_session(tmp_path, [gpu(1)]).path)
    names = (
        "('enable_external_access', 'lock_configuration', 'autoload_known_extensions', 'python_enable_replacements')"
    )

    told = dict(ask(f"SELECT name, value FROM duckdb_settings() WHERE name IN {names}"))

    assert told == {
        "enable_external_access": "false", "lock_configuration": "true", "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }  # fmt: skip


def test_a_mistake_is_told_where_it_is(tmp_path, asked):
    with pytest.raises(QueryError, match=r'Candidate bindings.*"power_w"'):
        asked(a_session(tmp_path, [gpu(1)]).path)("SELECT powr_w FROM gpu")


ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


def test_a_question_that_takes_too_long_is_given_up(tmp_path, asked):
    with pytest.raises(QueryError, match=r"no answer within 0\.2 s"):
        asked(a_session(tmp_path, [gpu(1)]).path)(ENDLESS, deadline_s=0.2)


def test_a_question_can_be_cancelled_from_another_thread(tmp_path, asked):
    ask = asked(a_session(tmp_path, [gpu(1)]).path)
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


@pytest.mark.parametrize(
    "sql",
    ["SELECT repeat('x', 4200000000), repeat('y', 4200000000)", "SELECT range(4200000000)",
     "SELECT list(range) FROM range(1000000000)"],
)  # fmt: skip
def test_what_would_take_all_memory_ends_with_a_word(tmp_path, sql):
    result = run(a_session(tmp_path, [gpu(1)]).path, sql)

    assert result.return_value == 2
    assert "the answer needs more than 1GB of memory; ask for fewer columns or rows" in result.stderr


def test_memory_is_not_bounded_any_more_afterwards(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    run(a_session(tmp_path, [gpu(1)]).path, "SELECT 1")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_columns_of_one_name_are_told_apart_in_every_form(tmp_path):
    path = a_session(tmp_path, a_job()).path
    sql = "SELECT g.node, r.node, r.rank AS node_1 FROM gpu g JOIN rank r ON r.rank = 3 AND g.uuid = 'GPU-0' LIMIT 1"

    (row,) = json.loads(run(path, sql, "--format", "json").stdout)
    run(path, sql, "--format", "parquet", "-o", tmp_path / "x.parquet")

    assert row == {"node": "n0", "node_1": "n1", "node_1_1": 3}
    assert run(path, sql, "--format", "csv").stdout.splitlines()[0] == "node,node_1,node_1_1"
    import pandas as pd

    assert list(pd.read_parquet(tmp_path / "x.parquet").columns) == ["node", "node_1", "node_1_1"]


@pytest.mark.parametrize("how", ["table", "json", "csv", "parquet"])
def test_instants_of_a_year_that_nobody_can_write_are_an_answer_too(tmp_path, how):
    path = a_session(tmp_path, [gpu(1)]).path
    sql = "SELECT make_timestamp(t) AS wrong, make_timestamp_ns(t) AS at, INTERVAL '90 days' AS apart FROM gpu"

    result = run(path, sql, "--format", how, "-o", tmp_path / "out")

    assert result.return_value == 0, result.stderr
    if how != "parquet":
        assert "2026-09-21 14:13:20" in (tmp_path / "out").read_text() and "90 days" in (tmp_path / "out").read_text()


def test_an_interval_reads_as_one(tmp_path):
    path = a_session(tmp_path, [gpu(1)]).path
    sql = "SELECT INTERVAL '14 months 3 days' AS a, INTERVAL '-90.5 seconds' AS b, INTERVAL '0 seconds' AS c"

    assert json.loads(run(path, sql, "--format", "json").stdout) == [
        {"a": "14 months 3 days", "b": "-00:01:30.5", "c": "00:00:00"}
    ]


def test_an_instant_that_is_one_has_no_unit(tmp_path):
    path = a_session(tmp_path, [gpu(1)]).path

    title = run(path, "SELECT make_timestamp_ns(t) AS at, t, temp_c FROM gpu").stdout.splitlines()[0]

    assert title.split() == ["at", "t", "[ns]", "temp_c", "[°C]"]


def test_a_name_that_no_session_has_is_said_before_nodes_are_asked(tmp_path):
    argv = ["nosuch", "SELECT 1", "--folder", str(tmp_path), "--set", "ssh.transport=carrier-pigeon"]
    told = CliRunner().invoke(command, argv, standalone_mode=False)

    assert f"no session in {tmp_path} is called nosuch: asking a node of that name" in told.stderr


def test_what_is_unpacked_can_be_given_up(tmp_path):
    source = RecordedSource(a_session(tmp_path, a_job()).path)
    with source:
        source.give_up()
        with pytest.raises(QueryCancelled):
            Database(source, source.scratch).ask("FROM gpu")


def test_an_answer_has_at_most_as_many_rows_as_were_asked_for(tmp_path, asked):
    ask = asked(a_session(tmp_path, [gpu(n) for n in range(1, 50)]).path)

    cut = ask.database.ask("SELECT seq FROM gpu", limit=10)
    whole = ask.database.ask("SELECT seq FROM gpu", limit=49)

    assert (len(cut.rows), cut.truncated) == (10, True)
    assert (len(whole.rows), whole.truncated) == (49, False)


def test_what_was_unpacked_is_gone_afterwards(tmp_path):
    source = RecordedSource(a_session(tmp_path, [gpu(1)]).path)
    with source:
        source.tables(["gpu"])
        scratch = source.scratch
        assert list(scratch.rglob("*.parquet"))
    assert not scratch.exists()


# -- on the command line -----------------------------------------------------------------------------------------------


def run(*args):
    result = CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command_writes_a_table_json_csv_and_parquet(tmp_path):
    path = a_session(tmp_path, a_job()).path
    sql = "SELECT node, sum(seq) AS total, max(grown) AS grown FROM gpu GROUP BY node ORDER BY node"

    assert run(path, sql).stdout.splitlines()[2].split() == ["n0", "126", "{}"]
    assert json.loads(run(path, sql, "--format", "json").stdout)[0] == {"node": "n0", "total": 126, "grown": {}}
    assert run(path, sql, "--format", "csv").stdout.splitlines()[:2] == ["node,total,grown", "n0,126,{}"]
    out = tmp_path / "answer.parquet"
    run(path, sql, "--format", "parquet", "-o", out)
    import pandas as pd

    assert list(pd.read_parquet(out)["node"]) == ["n0", "n1"]


def test_no_cell_of_a_csv_is_a_formula(tmp_path):
    path = a_session(tmp_path, [Mark(text='=cmd|"/c calc"!A1'), Mark(text="@SUM(1)"), Mark(text="fine")]).path

    lines = run(path, 'SELECT text AS "=x" FROM mark ORDER BY text', "--format", "csv").stdout.splitlines()

    assert lines == ["'=x", '"\'=cmd|""/c calc""!A1"', "'@SUM(1)", "fine"]


def test_text_of_a_node_cannot_steer_the_terminal(tmp_path):
    path = a_session(tmp_path, [Mark(text="\x1b[2Jgone\nnext")]).path

    assert run(path, "SELECT text FROM mark").stdout.splitlines()[2] == "·[2Jgone·next"


def test_the_limit_is_said_where_it_cut(tmp_path):
    path = a_session(tmp_path, [gpu(n) for n in range(1, 9)]).path

    result = run(path, "SELECT seq FROM gpu", "--limit", "2", "--format", "json")

    assert len(json.loads(result.stdout)) == 2
    assert "only the first 2 rows" in result.stderr


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    result = run(a_session(tmp_path, [gpu(1)]).path, "SELEKT")

    assert result.return_value == 2
    assert result.stderr.startswith("gconsole: Parser Error")


def test_a_session_of_a_newer_version_is_not_asked(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    session.meta_path.write_text(session.meta_path.read_text().replace("gconsole.session/1", "gconsole.session/9"))

    result = run(session.path, "SELECT count(*) FROM gpu")

    assert result.return_value == 2 and "update gconsole" in result.stderr


def test_a_session_whose_facts_are_damaged_still_answers(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    session.meta_path.write_text("{")

    assert json.loads(run(session.path, "SELECT count(*) AS n FROM gpu", "--format", "json").stdout) == [{"n": 1}]


def test_a_failed_question_leaves_the_old_file_alone(tmp_path):
    path, out = a_session(tmp_path, [gpu(1)]).path, tmp_path / "kept.csv"
    out.write_text("kept")

    assert run(path, "SELECT nothing FROM gpu", "--format", "csv", "-o", out).return_value == 2
    assert out.read_text() == "kept"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.csv", "night"]


def test_a_torn_tail_is_said_and_the_rest_answered(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    with session.segments()[-1].open("ab") as file:
        file.write(b"torn")

    result = run(session.path, "SELECT count(*) AS n FROM gpu", "--format", "json")

    assert json.loads(result.stdout) == [{"n": 1}]
    assert "cut off" in result.stderr


def test_the_questions_of_the_readme_work(tmp_path):
    """Those that others' documents show, or call future: all nodes, latest step, memory, backtrace, collectives."""
    path = a_session(tmp_path, [*a_job(), *a_hang()]).path
    text = (ROOT / "README.md").read_text()
    questions = re.findall(r'^gconsole query night "([^"]+)"', text, re.MULTILINE)

    answered = {sql: run(path, sql, "--format", "json") for sql in questions}

    assert len(questions) >= 8
    for sql, result in answered.items():
        assert result.return_value == 0, (sql, result.stderr)
        assert json.loads(result.stdout), sql


def test_a_recorded_hang_of_the_lab_answers_too(tmp_path):
    packed = ROOT / "tests/hangs/recordings/asynchronous.ndjson.xz"
    path = tmp_path / "hang.ndjson"
    path.write_bytes(lzma.decompress(packed.read_bytes()))

    rows = json.loads(run(path, "SELECT ranks FROM stack_groups WHERE count = 3", "--format", "json").stdout)

    assert rows[0]["ranks"] == [0, 1, 3]


HEAVY = {"duckdb", "pyarrow", "pandas", "matplotlib", "textual", "asyncssh"}


@pytest.mark.parametrize(
    "program",
    ["from gconsole.cli.main import gconsole; gconsole(['--help'], standalone_mode=False)",
     "import gconsole.cli.batch, gconsole.cli.offline, gconsole.batch",
     "from gconsole.cli.query import query; query(['--help'], standalone_mode=False)"],
)  # fmt: skip
def test_what_is_heavy_is_loaded_only_by_those_who_need_it(program):
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print('\\n', *sys.modules)"], capture_output=True, text=True,
        check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


#: Says when ctrl-c is the question's, then does what the command does.
TOLD = """
import signal, sys
set_to = signal.signal
def told(number, handler):
    before = set_to(number, handler)
    if number == signal.SIGTERM:  # the last one that a question hears
        print("ready", flush=True)
    return before
signal.signal = told
from gconsole.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_question_and_nothing_is_left_behind(tmp_path, number):
    path, scratch = a_session(tmp_path / "sessions", [gpu(1)]).path, tmp_path / "scratch"
    scratch.mkdir()
    argv = [sys.executable, "-c", TOLD, "query", str(path), ENDLESS]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(scratch)})  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    for _ in range(6):  # the first may come before the engine has begun
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            break
    assert "Traceback" not in process.communicate(timeout=10)[1]
    assert process.returncode == 130
    assert list(scratch.iterdir()) == []
