"""Cluster time in SQL and in traces equals the clock model's, with a bound that is never smaller."""

import random

import pytest
from session_builders import START, a_session, gpu
from session_clocks import SECOND, ask, windows

from gconsole.analysis.clock.model import CommonClock
from gconsole.records import ClockSnapshot, RankStat
from gconsole.session.manage.compact import compact
from gconsole.session.query import engine
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource
from gconsole.session.query.views import BEYOND_NS, needs_cluster_time


def stat(node, mono, seq):
    return RankStat(node=node, agent="a", seq=seq, mono=mono, t=mono, rx=START, job="j", rank=0, pid=1, start_ticks=1,
                    state="idle")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("compacted", [False, True])
def test_sql_cluster_time_matches_the_clock_model_and_never_understates_its_bound(tmp_path, compacted):
    chance = random.Random(1)
    lines = {node: windows(node) for node in ("n0", "n1")}
    monos = [chance.randrange(0, 400 * SECOND) for _ in range(2000)]
    stats = [stat(f"n{n % 2}", mono, n + 1) for n, mono in enumerate(monos)]
    session = a_session(tmp_path, [*lines["n0"], *lines["n1"], *stats])
    if compacted:
        compact(session)
    clock = CommonClock(lines, {})

    rows = ask(session.path, "SELECT node, mono, t_cluster, bound_ns FROM rank_stat")

    assert len(rows) == len(stats)
    for node, mono, t_cluster, bound_ns in rows:
        own = clock.to_cluster(node, mono)
        assert abs(t_cluster - own.ns) <= 3
        assert own.bound_ns <= bound_ns <= 3 * own.bound_ns + 10_000


@pytest.mark.slow
def test_record_outside_every_clock_window_has_null_cluster_time_and_bound(tmp_path):
    far = 50 * SECOND + 2 * BEYOND_NS
    records = [*windows("n0"), stat("n0", far, 90), stat("n9", SECOND, 91), gpu(92, node="n9")]
    path = a_session(tmp_path, records).path

    assert ask(path, "SELECT DISTINCT t_cluster, bound_ns FROM rank_stat") == [(None, None)]
    assert ask(path, "SELECT t_cluster FROM gpu") == [(None,)]


@pytest.mark.slow
def test_cluster_time_after_a_reboot_uses_the_new_clock_fit(tmp_path):
    old, new = windows("n0", begin=900 * SECOND), windows("n0", begin=5 * SECOND)
    for n, record in enumerate(new):
        record.rx, record.seq = START + (500 + n) * SECOND, 100 + n
    path = a_session(tmp_path, [*old, *new, stat("n0", 6 * SECOND, 500)]).path

    own = CommonClock({"n0": [*old, *new]}, {}).to_cluster("n0", 6 * SECOND)

    assert abs(ask(path, "SELECT t_cluster FROM rank_stat")[0][0] - own.ns) <= 3


@pytest.mark.parametrize("sql", [
    "SELECT t_cluster FROM gpu", "SELECT * FROM gpu", "FROM gpu", "SELECT g.* FROM gpu g",
    "SELECT rank, t FROM ranks_now",
    "WITH a AS (FROM gpu) SELECT bound_ns FROM a", "SUMMARIZE gpu", "TABLE gpu",
])  # fmt: skip
def test_queries_that_may_return_cluster_time_need_it(sql):
    assert needs_cluster_time(sql)


@pytest.mark.parametrize(
    "sql", ["SELECT count(*) FROM gpu", "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank"]
)
def test_queries_that_cannot_return_cluster_time_skip_it(sql):
    assert not needs_cluster_time(sql)


def test_perfetto_trace_timestamps_are_in_cluster_time(tmp_path):
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    from gconsole.session.export.formats import SESSION_FORMATS
    from gconsole.session.export.slice import slice_session

    line = windows("n1")
    snapshots = [
        ClockSnapshot(node="n1", raw=(50 + n) * SECOND, real=START + n * SECOND, monotonic=1, boot=1, width_ns=9,
                      reads=1, seq=900 + n)
        for n in range(3)
    ]  # fmt: skip
    sample = gpu(500, util_pct=5.0)
    sample.mono = 55 * SECOND
    path = a_session(tmp_path, [*line, *snapshots, sample]).path
    with (tmp_path / "trace").open("wb") as out:
        SESSION_FORMATS["perfetto"].write(slice_session(path), out)
    trace = perfetto.Trace()
    trace.ParseFromString((tmp_path / "trace").read_bytes())

    (at,) = [packet.timestamp for packet in trace.packet if packet.track_event.type == 4]

    assert at == CommonClock({"n1": line}, {}).to_cluster("n1", 55 * SECOND).ns
    assert "n1" in [packet.track_descriptor.name for packet in trace.packet], "no separate clock name"


@pytest.mark.slow
def test_live_store_queries_have_cluster_time():
    from gconsole.core.store import Store
    from gconsole.session import store_snapshot
    from gconsole.session.format.table_schema import TABLES

    store = Store()
    store.apply([*windows("n1"), stat("n1", 55 * SECOND, 90), gpu(500, util_pct=5.0, node="n1")])
    database = Database(store_snapshot.snapshot_tables(store, TABLES))
    try:
        rows = database.query("SELECT mono, t_cluster FROM gpu").to_dicts()
    finally:
        database.close()
    own = CommonClock({"n1": windows("n1")}, {}).to_cluster("n1", rows[0]["mono"])
    assert own is not None and abs(rows[0]["t_cluster"] - own.ns) <= 3


def test_clock_records_of_a_long_session_may_spill_to_disk_as_its_query_may(tmp_path, monkeypatch):
    session = a_session(tmp_path, [*windows("n1"), gpu(1, node="n1", at=60)])
    folders = []

    def records_of(connection, kind, read=engine._records_of):
        folders.extend(connection.execute("SELECT current_setting('temp_directory')").fetchall())
        return read(connection, kind)

    monkeypatch.setattr(engine, "_records_of", records_of)
    with RecordedSource(session.path) as source:
        database = Database(source, source.scratch)
        database.query("SELECT t_cluster FROM gpu")
        database.close()

        assert folders == [(str(source.scratch / "spill"),)]
