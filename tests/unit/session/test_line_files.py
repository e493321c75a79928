"""Records that are not compacted yet, unpacked as lines of which a query parses only some columns."""

from contextlib import closing

import pytest
from session_builders import START, a_session, gpu
from session_queries import SessionQueries

from gconsole.records import End, Link, Log, Mark, decode, encode
from gconsole.session.format import line_files, reader, zstd_frames
from gconsole.session.format.layout import SessionError
from gconsole.session.query.engine import Database
from gconsole.session.query.limits import QueryError
from gconsole.session.query.sources import RecordedSource


def test_struct_with_the_name_of_a_kind_within_a_line_is_not_a_record(tmp_path):
    ends = {"a": End(kind="gpu", id="GPU-0"), "b": End(kind="nic", id="mlx5_0")}
    link = Link(node="n1", agent="a", seq=3, rx=START, type="pcie", **ends)
    log = Log(agent="a", seq=4, rx=START, source="console", text='\n{"kind":"gpu","node":"n2"}')
    ask = SessionQueries(a_session(tmp_path, [gpu(1), gpu(2), link, log, gpu(5)]).path)
    assert ask("SELECT list(seq ORDER BY seq) FROM gpu") == [([1, 2, 5],)]
    assert ask("SELECT a.kind, b.id FROM link") == [("gpu", "mlx5_0")]
    assert ask("SELECT text FROM log") == [(log.text,)]
    ask.close()


def test_many_tables_at_once_have_all_their_records_in_order_of_arrival(tmp_path):
    records = [gpu(seq) if seq % 3 else Mark(agent="a", seq=seq, rx=START, text=str(seq)) for seq in range(1, 9_001)]
    ask = SessionQueries(a_session(tmp_path, records).path)
    assert ask("SELECT (SELECT count(DISTINCT seq) FROM gpu), (SELECT count(DISTINCT text) FROM mark)") == [
        (6000, 3000)
    ]
    ask.close()


def test_only_records_of_unknown_kinds_are_decoded_for_their_table(tmp_path, monkeypatch):
    quarks = [decode(b'{"kind":"quark","node":"n1","agent":"a","seq":%d,"rx":9}' % seq) for seq in (7, 8)]
    session = a_session(tmp_path, [gpu(1), *quarks, gpu(2)])
    seen = []
    monkeypatch.setattr(reader, "decode", lambda line: seen.append(line) or decode(line))
    ask = SessionQueries(session.path)
    assert ask("SELECT kind, seq FROM unknown ORDER BY seq") == [("quark", 7), ("quark", 8)]
    assert len(seen) == 2
    ask.close()


def test_large_tables_become_parquet_and_keep_every_record(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "_TABLE_BYTES", 1 << 20)
    ask = SessionQueries(a_session(tmp_path, [gpu(seq, util_pct=seq / 10) for seq in range(1, 9_001)]).path)
    assert ask("SELECT count(DISTINCT seq), max(util_pct), min(node) FROM gpu") == [(9000, 900.0, "n1")]
    assert len(list(ask.source.scratch.rglob("gpu-*.parquet"))) >= 2
    assert sum(path.stat().st_size for path in ask.source.scratch.rglob("gpu.ndjson")) <= 1 << 20
    ask.close()


def test_value_of_another_type_is_an_error_that_names_compaction(tmp_path):
    session = a_session(tmp_path, [gpu(1, util_pct=5.0)])
    wrong = encode(gpu(2, util_pct=7.0)).replace(b'"util_pct":7.0', b'"util_pct":"high"')
    session.segments()[0].write_bytes(zstd_frames.pack([wrong], {"gpu": 1}, START, START + 9))
    meta = session.read()
    meta.seals = ()
    session.write(meta)
    ask = SessionQueries(session.path)
    with pytest.raises(QueryError, match=r'another version \(.*: "high"\); try: .* compact$'):
        ask("SELECT max(util_pct) FROM gpu")
    assert ask("SELECT count(seq) FROM gpu") == [(1,)]
    ask.close()
    with RecordedSource(session.path, is_kept=True) as source, pytest.raises(SessionError, match="another version"):
        source.tables(["gpu"])


def test_source_for_many_queries_unpacks_parquet(tmp_path):
    session = a_session(tmp_path, [gpu(seq, util_pct=seq / 10) for seq in range(1, 101)])
    with RecordedSource(session.path, is_kept=True) as source, closing(Database(source, source.scratch)) as database:
        assert database.query("SELECT count(DISTINCT seq), max(util_pct) FROM gpu").rows == [(100, 10.0)]
        assert database.query("SELECT count(*) FROM mark").rows == [(0,)]
        assert not list(source.scratch.rglob("*.ndjson"))
