"""SQL over records: results, and self-description."""

import pytest
from session_builders import a_hang, a_job, a_session, gpu

from gconsole.records import encode
from gconsole.session.format.table_schema import TABLES
from gconsole.session.manage.compact import compact
from gconsole.session.query.limits import QueryError
from gconsole.session.query.views import SHORT_VIEWS

# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_query_result_is_the_same_from_segments_parquet_and_ndjson(tmp_path, open_queries):
    records = [*a_job(), *a_hang()]
    segments = a_session(tmp_path, records, "segments")
    parquet = a_session(tmp_path, records, "parquet")
    compact(parquet)
    file = tmp_path / "night.ndjson"
    file.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    sql = "SELECT node, rank, avg(util_pct), count(*) FROM gpu_by_rank GROUP BY ALL ORDER BY ALL"

    answers = [open_queries(path)(sql) for path in (segments.path, parquet.path, file)]

    assert answers[0] == [("n0", 0, 100.0, 3), ("n0", 1, 50.0, 3), ("n1", 2, 100.0, 3), ("n1", 3, 100.0, 3)]
    assert answers[1] == answers[2] == answers[0]


def test_records_appended_after_compaction_are_queried_too(tmp_path, open_queries):
    from gconsole.session.format import zstd_frames
    from gconsole.session.format.writer import SegmentWriter

    session = a_session(tmp_path, [gpu(1), gpu(2)])
    compact(session)
    meta = session.read()
    meta.state = "recording"
    session.write(meta)
    writer = SegmentWriter(session)
    late = gpu(3)
    writer.append(zstd_frames.pack([encode(late)], {"gpu": 1}, late.rx, late.rx))
    writer.close()

    assert open_queries(session.path)("SELECT count(*), sum(seq) FROM gpu") == [(3, 6)]


def test_ranks_now_has_one_row_per_rank_with_its_latest_metrics(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_job()).path)

    rows = ask("SELECT rank, node, state, step, gpu, gpu_index, gpu_util_pct FROM ranks_now")

    assert rows == [
        (0, "n0", "moving", 3, "GPU-0", 0, 100.0), (1, "n0", "moving", 3, "GPU-1", 1, 50.0),
        (2, "n1", "moving", 3, "GPU-2", 0, 100.0), (3, "n1", "moving", 3, "GPU-3", 1, 100.0),
    ]  # fmt: skip


def test_misspelled_table_is_refused_with_the_name_it_resembles(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_job()).path)
    assert ask("SELECT count(*) FROM rank") == [(4,)]
    with pytest.raises(QueryError, match=r'Did you mean "(main.)?gpu_by_rank"'):
        ask("SELECT count(*) FROM gpus_by_rank")


@pytest.mark.parametrize(
    "sql",
    ["SELECT table_name FROM information_schema.tables", "SELECT name FROM (SHOW ALL TABLES)", "SHOW TABLES",
     "SELECT view_name FROM duckdb_views()"],
)  # fmt: skip
def test_catalog_lists_every_table_and_short_view(tmp_path, open_queries, sql: str):
    names = {row[0] for row in open_queries(a_session(tmp_path, a_job()).path)(sql)}
    assert names >= {*TABLES, *(view.name for view in SHORT_VIEWS)}


def test_watched_variables_can_be_selected_by_name(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_job()).path)

    rows = ask("SELECT watched['loss']::DOUBLE, watched['phase']->>'$' FROM rank_stat WHERE rank = 0 ORDER BY step")

    assert rows == [(3.5, "train"), (2.5, "train"), (1.5, "train")]


def test_gpu_of_rank_uses_the_rank_record_without_a_gpu_process(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_job()).path)

    assert ask("SELECT rank, source FROM gpu_of_rank ORDER BY rank")[2:] == [(2, "gpu_process"), (3, "rank")]


def test_stack_groups_list_the_outlier_first_and_resolve_deduplicated_stacks(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_hang()).path)

    rows = ask("SELECT count, ranks, stack FROM stack_groups")

    assert rows == [
        (1, [1], "load_shard dataset.py:88 < <module> train.py:212"),
        (2, [0, 2], "all_reduce distributed_c10d.py:3252 < <module> train.py:214"),
    ]


def test_backtrace_counts_from_the_innermost_call(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_hang()).path)

    rows = ask("SELECT rank, depth, func, lineno FROM backtrace WHERE rank = 1 AND is_main ORDER BY depth")

    assert rows == [(1, 0, "load_shard", 88), (1, 1, "<module>", 212)]


def test_collective_waits_list_operation_waiting_ranks_and_duration(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_hang()).path)

    rows = ask('SELECT "group", seq_id, operation, waiting, ranks, waited_s FROM collective_waits')

    assert rows == [("0", 1423, "nccl:all_reduce", 2, [0, 2], 41.0)]


def test_records_of_unknown_kinds_can_be_queried(tmp_path, open_queries):
    path = tmp_path / "night.ndjson"
    path.write_bytes(b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":9,"charm":7}\n')

    assert open_queries(path)("SELECT kind, raw->>'charm' FROM unknown") == [("quark", "7")]


def test_cluster_time_is_null_without_a_clock_model(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, a_job()).path)

    assert ask("SELECT DISTINCT t_cluster, bound_ns FROM gpu") == [(None, None)]


def test_query_result_is_truncated_to_the_row_limit(tmp_path, open_queries):
    ask = open_queries(a_session(tmp_path, [gpu(n) for n in range(1, 50)]).path)

    cut = ask.database.query("SELECT seq FROM gpu", limit=10)
    whole = ask.database.query("SELECT seq FROM gpu", limit=49)

    assert (len(cut.rows), cut.truncated) == (10, True)
    assert (len(whole.rows), whole.truncated) == (49, False)


# -- self-description --------------------------------------------------------------------------------------------------


def test_describe_lists_tables_and_short_views(tmp_path, open_queries):
    rows = open_queries(a_session(tmp_path, [gpu(1)]).path)("describe")

    assert ("gpu", "records", "Metrics of one GPU at one tick.") in rows
    assert "ranks_now" in [name for name, *_ in rows]


@pytest.mark.parametrize("question", ["DESCRIBE gpu", "desc gpu;", ' describe TABLE "gpu" '])
def test_describe_table_lists_column_types_units_and_descriptions(tmp_path, open_queries, question):
    rows = open_queries(a_session(tmp_path, [gpu(1)]).path)(question)

    assert ("power_w", "DOUBLE", "W", "power of the board; on most GPUs the driver's average over one second") in rows
    assert ("energy_j", "DOUBLE", "J", "energy used since the driver was loaded") in rows


def test_describe_of_a_query_is_passed_to_duckdb(tmp_path, open_queries):
    rows = open_queries(a_session(tmp_path, [gpu(1)]).path)("DESCRIBE SELECT power_w AS watts FROM gpu")

    assert rows[0][:2] == ("watts", "DOUBLE")


def test_completion_names_are_tables_with_their_columns(tmp_path, open_queries):
    names = open_queries(a_session(tmp_path, [gpu(1)]).path).database.names()

    assert "rank" in names["gpu_by_rank"] and "util_pct" in names["gpu"] and "bound_ns" in names["gpu"]
