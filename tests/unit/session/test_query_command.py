"""`gconsole query`: output formats, messages on failure, and interruption."""

import contextlib
import json
import lzma
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from session_builders import a_hang, a_job, a_session, gpu
from session_queries import ENDLESS, run

from gconsole.cli.query import query as command
from gconsole.records import Mark

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
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


def test_csv_result_escapes_spreadsheet_formulas(tmp_path):
    path = a_session(tmp_path, [Mark(text='=cmd|"/c calc"!A1'), Mark(text="@SUM(1)"), Mark(text="fine")]).path

    lines = run(path, 'SELECT text AS "=x" FROM mark ORDER BY text', "--format", "csv").stdout.splitlines()

    assert lines == ["'=x", '"\'=cmd|""/c calc""!A1"', "'@SUM(1)", "fine"]


def test_control_characters_in_node_text_are_replaced_in_the_table(tmp_path):
    path = a_session(tmp_path, [Mark(text="\x1b[2Jgone\nnext")]).path

    assert run(path, "SELECT text FROM mark").stdout.splitlines()[2] == "·[2Jgone·next"


def test_truncation_by_the_row_limit_is_reported_on_stderr(tmp_path):
    path = a_session(tmp_path, [gpu(n) for n in range(1, 9)]).path

    result = run(path, "SELECT seq FROM gpu", "--limit", "2", "--format", "json")

    assert len(json.loads(result.stdout)) == 2
    assert "showing the first 2 rows" in result.stderr


def test_sql_syntax_error_is_reported_with_exit_code_2(tmp_path):
    result = run(a_session(tmp_path, [gpu(1)]).path, "SELEKT")

    assert result.return_value == 2
    assert result.stderr.startswith("gconsole: Parser Error")


def test_session_with_a_newer_schema_is_rejected_with_advice_to_update(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    session.meta_path.write_text(session.meta_path.read_text().replace("gconsole.session/1", "gconsole.session/9"))

    result = run(session.path, "SELECT count(*) FROM gpu")

    assert result.return_value == 2 and "update gconsole" in result.stderr


def test_session_with_damaged_session_json_can_still_be_queried(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    session.meta_path.write_text("{")

    assert json.loads(run(session.path, "SELECT count(*) AS n FROM gpu", "--format", "json").stdout) == [{"n": 1}]


def test_failed_query_leaves_an_existing_output_file_unchanged(tmp_path):
    path, out = a_session(tmp_path, [gpu(1)]).path, tmp_path / "kept.csv"
    out.write_text("kept")

    assert run(path, "SELECT nothing FROM gpu", "--format", "csv", "-o", out).return_value == 2
    assert out.read_text() == "kept"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept.csv", "night"]


def test_truncated_segment_is_reported_and_the_rest_is_queried(tmp_path):
    session = a_session(tmp_path, [gpu(1)])
    with session.segments()[-1].open("ab") as file:
        file.write(b"torn")

    result = run(session.path, "SELECT count(*) AS n FROM gpu", "--format", "json")

    assert json.loads(result.stdout) == [{"n": 1}]
    assert "cut off" in result.stderr


@pytest.mark.slow
def test_queries_in_the_sql_guide_return_rows(tmp_path):
    """Every query in the guide: nodes, latest step, memory, backtraces, collectives."""
    path = a_session(tmp_path, [*a_job(), *a_hang()]).path
    text = (ROOT / "docs/guide/sql.md").read_text()
    questions = re.findall(r'^gconsole query night "([^"]+)"', text, re.MULTILINE)

    answered = {sql: run(path, sql, "--format", "json") for sql in questions}

    assert len(questions) >= 8
    for sql, result in answered.items():
        assert result.return_value == 0, (sql, result.stderr)
        assert json.loads(result.stdout), sql


def test_recorded_hang_file_can_be_queried(tmp_path):
    packed = ROOT / "tests/hangs/recordings/asynchronous.ndjson.xz"
    path = tmp_path / "hang.ndjson"
    path.write_bytes(lzma.decompress(packed.read_bytes()))

    rows = json.loads(run(path, "SELECT ranks FROM stack_groups WHERE count = 3", "--format", "json").stdout)

    assert rows[0]["ranks"] == [0, 1, 3]


HEAVY = {"duckdb", "pyarrow", "pandas", "matplotlib", "textual", "asyncssh"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["from gconsole.cli.main import gconsole; gconsole(['--help'], standalone_mode=False)",
     "import gconsole.cli.batch, gconsole.cli.output, gconsole.monitor.headless",
     "from gconsole.cli.query import query; query(['--help'], standalone_mode=False)"],
)  # fmt: skip
def test_heavy_libraries_are_not_imported_by_commands_that_do_not_need_them(program):
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print('\\n', *sys.modules)"], capture_output=True, text=True,
        check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


#: Prints "ready" once the query has installed its signal handlers, then runs the command.
SCRIPT = """
import signal, sys
set_to = signal.signal
def announce(number, handler):
    before = set_to(number, handler)
    if number == signal.SIGTERM:  # the last one that is installed
        print("ready", flush=True)
    return before
signal.signal = announce
from gconsole.cli.main import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigint_or_sigterm_ends_a_query_and_leaves_no_scratch_files(tmp_path, number):
    path, scratch = a_session(tmp_path / "sessions", [gpu(1)]).path, tmp_path / "scratch"
    scratch.mkdir()
    argv = [sys.executable, "-c", SCRIPT, "query", str(path), ENDLESS]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(scratch)})  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    for _ in range(6):  # the first may arrive before the query has started
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
            break
    assert "Traceback" not in process.communicate(timeout=90)[1]
    assert process.returncode == 130
    assert list(scratch.iterdir()) == []


# -- output formats ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_duplicate_column_names_are_disambiguated_in_every_format(tmp_path):
    path = a_session(tmp_path, a_job()).path
    sql = "SELECT g.node, r.node, r.rank AS node_1 FROM gpu g JOIN rank r ON r.rank = 3 AND g.uuid = 'GPU-0' LIMIT 1"

    (row,) = json.loads(run(path, sql, "--format", "json").stdout)
    run(path, sql, "--format", "parquet", "-o", tmp_path / "x.parquet")

    assert row == {"node": "n0", "node_1": "n1", "node_1_1": 3}
    assert run(path, sql, "--format", "csv").stdout.splitlines()[0] == "node,node_1,node_1_1"
    import pandas as pd

    assert list(pd.read_parquet(tmp_path / "x.parquet").columns) == ["node", "node_1", "node_1_1"]


@pytest.mark.slow
def test_parquet_has_the_same_types_with_and_without_a_limit(tmp_path):
    import duckdb

    path = a_session(tmp_path, a_job()).path
    sql = """SELECT node, node, count(*) * 10000000000000000000::HUGEINT AS huge, INTERVAL '90 days' AS apart,
                    {'a': 1::HUGEINT} AS nested, 'x'::BLOB AS raw, max(util_pct) AS u FROM gpu GROUP BY ALL -- end"""
    types = []
    for limit, out in ((0, tmp_path / "all.parquet"), (5, tmp_path / "some.parquet")):
        result = run(path, sql, "--format", "parquet", "--limit", limit, "-o", out)
        assert result.return_value == 0, result.stderr
        types.append(duckdb.sql(f"DESCRIBE FROM '{out}'").fetchall())
        assert len(duckdb.sql(f"FROM '{out}'").fetchall()) == 2

    assert types[0] == types[1]
    assert [row[0] for row in types[0]] == ["node", "node_1", "huge", "apart", "nested", "raw", "u"]


@pytest.mark.slow
def test_deadline_covers_writing_parquet_and_leaves_no_file(tmp_path):
    path, out = a_session(tmp_path, a_job()).path, tmp_path / "x.parquet"

    result = run(path, ENDLESS, "--format", "parquet", "--limit", 0, "--timeout", "1s", "-o", out)

    assert result.return_value == 2 and "no result within 1 s" in result.stderr
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["table", "json", "csv", "parquet"])
def test_out_of_range_timestamps_are_written_in_every_format(tmp_path, how):
    path = a_session(tmp_path, [gpu(1)]).path
    sql = "SELECT make_timestamp(t) AS wrong, make_timestamp_ns(t) AS at, INTERVAL '90 days' AS apart FROM gpu"

    result = run(path, sql, "--format", how, "-o", tmp_path / "out")

    assert result.return_value == 0, result.stderr
    if how != "parquet":
        assert "2026-09-21 14:13:20" in (tmp_path / "out").read_text() and "90 days" in (tmp_path / "out").read_text()


def test_interval_is_written_in_json_as_readable_text(tmp_path):
    path = a_session(tmp_path, [gpu(1)]).path
    sql = "SELECT INTERVAL '14 months 3 days' AS a, INTERVAL '-90.5 seconds' AS b, INTERVAL '0 seconds' AS c"

    assert json.loads(run(path, sql, "--format", "json").stdout) == [
        {"a": "1 year 2 months 3 days", "b": "-00:01:30.5", "c": "00:00:00"}
    ]


def test_timestamp_column_header_has_no_unit(tmp_path):
    path = a_session(tmp_path, [gpu(1)]).path

    title = run(path, "SELECT make_timestamp_ns(t) AS at, t, temp_c FROM gpu").stdout.splitlines()[0]

    assert title.split() == ["at", "t", "[ns]", "temp_c", "[°C]"]


def test_name_that_is_no_session_file_or_host_is_refused_before_anything_connects(tmp_path):
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "meta.json").write_text("{}")
    result = CliRunner().invoke(command, ["nigth.invalid", "SELECT 1", "--folder", str(tmp_path)])

    assert result.exit_code == 2
    assert "nigth.invalid is neither a session, a file nor a host name that can be resolved" in result.stderr


def test_limited_parquet_says_so_and_explain_is_refused(tmp_path):
    path, out = a_session(tmp_path, [gpu(1), gpu(2)]).path, tmp_path / "x.parquet"

    limited = run(path, "FROM gpu", "--format", "parquet", "--limit", 1, "-o", out)
    explained = run(path, "EXPLAIN FROM gpu", "--format", "parquet", "-o", tmp_path / "y.parquet")

    assert "first 1 rows" in limited.stderr and pq.read_metadata(out).num_rows == 1
    assert explained.return_value == 2 and "leave out --format parquet" in explained.stderr
    assert not (tmp_path / "y.parquet").exists()
