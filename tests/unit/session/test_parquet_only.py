"""Sessions with only Parquet left after compaction read the same as with segments."""

import json
import re
import shutil
from itertools import islice

import msgspec
import pytest
from click.testing import CliRunner
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from session_builders import a_job, a_session, any_record, gpu

from gconsole.cli.sessions import sessions
from gconsole.records import KINDS, Gpu, Mark, RankStat, RawRecord, encode
from gconsole.session.format import reader
from gconsole.session.format.layout import SessionError, write_checked
from gconsole.session.format.manifest import MANIFEST, read_manifest
from gconsole.session.format.reader import RecordFilter
from gconsole.session.format.writer import SegmentWriter
from gconsole.session.manage import catalog
from gconsole.session.manage.compact import compact
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource
from gconsole.session.record import recovery


def without_segments(session, gone=lambda path: True):
    """The session after compaction, without its segments or those selected by `gone`."""
    compact(session)
    for path in session.segments():
        if gone(path):
            path.unlink()
    return session


def in_order(records):
    return sorted(map(encode, records))


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_records_read_from_parquet_equal_the_recorded_ones_byte_for_byte(data, tmp_path_factory):
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    records = [data.draw(any_record(kind)) for kind in kinds]
    session = a_session(tmp_path_factory.mktemp("sessions"), records)

    without_segments(session)

    assert in_order(reader.records(session.path)) == in_order(records)


def test_record_with_the_maximum_int64_timestamp_is_read_from_parquet(tmp_path):
    record = Mark(text="the end of time", rx=2**63 - 1)
    session = without_segments(a_session(tmp_path, [record]))

    assert [one.rx for one in reader.records(session.path)] == [2**63 - 1]


@pytest.mark.slow
def test_records_of_all_kinds_are_read_from_parquet_in_arrival_order(tmp_path):
    written = [gpu(2 * n, at=n) if n % 2 else RankStat(job="j", rank=0, pid=1, start_ticks=1, state="idle", seq=n, rx=n)
               for n in range(5000)]  # fmt: skip
    for n, record in enumerate(written):
        record.rx = n + 1
    session = without_segments(a_session(tmp_path, written))

    assert [record.rx for record in reader.records(session.path)] == list(range(1, 5001))
    some = reader.records(session.path, RecordFilter(kinds={"gpu"}, from_rx=100, to_rx=110))
    assert [(type(record), record.rx) for record in some] == [(Gpu, rx) for rx in (100, 102, 104, 106, 108)]


def test_records_of_unknown_kinds_are_read_from_parquet_unchanged(tmp_path):
    line = b'{"kind":"novelty","node":"n1","agent":"a1","seq":7,"rx":5,"x":1}'
    raw = RawRecord("novelty", "n1", "a1", 7, 5, raw=line)
    session = without_segments(a_session(tmp_path, [raw]))

    (record,) = reader.records(session.path)

    assert json.loads(encode(record)) == json.loads(encode(raw))


@pytest.mark.slow
def test_query_result_is_the_same_from_segments_parquet_or_both(tmp_path):
    question = "SELECT rank, count(*) AS n, avg(util_pct) AS u FROM gpu_by_rank GROUP BY rank ORDER BY rank"
    answers = []
    for name, prepare in (
        ("segments", lambda session: session), ("both", lambda session: compact(session) and session),
        ("parquet", without_segments),
    ):  # fmt: skip
        with RecordedSource(prepare(a_session(tmp_path, a_job(), name)).path) as source:
            database = Database(source, source.scratch)
            answers.append(database.query(question).to_dicts())
            database.close()
    assert answers[0] and answers[0] == answers[1] == answers[2]


@pytest.mark.slow
def test_each_record_is_read_once_when_only_some_segments_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("gconsole.session.format.writer.SegmentWriter", lambda session: SegmentWriter(session, 1000))
    monkeypatch.setattr("gconsole.session.format.writer.FRAME_RECORDS", 10)
    written = [gpu(n + 1, at=n) for n in range(200)]
    session = a_session(tmp_path, written)
    assert len(session.segments()) >= 6

    without_segments(session, gone=lambda path: path.name.startswith(("000001", "000004")))

    assert [record.seq for record in reader.records(session.path)] == [record.seq for record in written]


def test_note_after_all_segments_are_removed_does_not_reuse_a_segment_number(tmp_path):
    session = without_segments(a_session(tmp_path, [gpu(n + 1, at=n) for n in range(10)]))

    catalog.mark(session, "in the morning")

    *before, note = reader.records(session.path)
    assert len(before) == 10 and isinstance(note, Mark)
    compact(session)
    assert len(list(reader.records(session.path))) == 11
    assert recovery.verify(session).is_sound


def test_damaged_parquet_is_reported_when_no_segments_remain(tmp_path):
    session = without_segments(a_session(tmp_path, [gpu(1)]))
    for path in session.parquet_folder.rglob("*.parquet"):
        path.write_bytes(b"PAR1" + b"x" * 200 + b"PAR1")

    with pytest.raises(SessionError, match="its Parquet is damaged"):
        list(islice(reader.records(session.path), 1))


# -- deletion of segments, and checks without them ---------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(sessions, list(map(str, args)))


def test_segments_are_dropped_once_all_their_records_are_in_parquet(tmp_path):
    session = a_session(tmp_path, a_job())

    result = run("compact", "night", "--drop-segments", "--folder", tmp_path)

    assert result.exit_code == 0 and "dropped " in result.output and " of segments" in result.output
    assert session.segments() == []
    assert in_order(reader.records(session.path)) == in_order(a_job())
    again = run("compact", "night", "--drop-segments", "--folder", tmp_path)
    assert again.exit_code == 0 and "dropped 0 B of segments" in again.output


def test_no_segment_is_dropped_when_parquet_or_the_segment_has_changed(tmp_path):
    session = a_session(tmp_path, a_job())
    compact(session)
    part = next(session.parquet_folder.rglob("gpu/**/*.parquet"))
    whole = part.read_bytes()
    for spoil, words in (
        (lambda: part.unlink(), "is missing"),
        (lambda: part.write_bytes(next(session.parquet_folder.rglob("rank/**/*.parquet")).read_bytes()),
         "is damaged: its checksum is wrong"),
        (lambda: session.segments()[0].open("ab").write(b"more"), "changed after it was compacted"),
    ):  # fmt: skip
        spoil()
        result = run("compact", "night", "--drop-segments", "--folder", tmp_path)
        assert result.exit_code == 2 and words in result.output, result.output
        assert len(session.segments()) == 1
        part.write_bytes(whole)


def test_no_segment_is_dropped_while_parquet_has_fewer_records(tmp_path):
    session = a_session(tmp_path, a_job())
    compact(session)
    manifest = read_manifest(session)
    *kept, lost = manifest.parts
    (session.parquet_folder / lost.path).unlink()
    write_checked(session.parquet_folder / MANIFEST, msgspec.structs.replace(manifest, parts=tuple(kept)))

    result = run("compact", "night", "--drop-segments", "--folder", tmp_path)

    records = len(a_job())
    assert result.exit_code == 2
    assert f"only {records - lost.rows} of {records} records are in Parquet" in result.output
    assert len(session.segments()) == 1


def test_no_segment_is_dropped_while_a_record_differs_in_parquet(tmp_path):
    session = a_session(tmp_path, a_job())
    other = a_session(tmp_path, [replace(record, seq=record.seq + 1) for record in a_job()], "other")
    for each in (session, other):
        compact(each)
    manifest = read_manifest(session)
    for part in manifest.parts:  # of the same sizes, and sound by itself
        shutil.copy(other.parquet_folder / part.path, session.parquet_folder / part.path)
    write_checked(session.parquet_folder / MANIFEST, replace(manifest, parts=read_manifest(other).parts))

    result = run("compact", "night", "--drop-segments", "--folder", tmp_path)

    assert result.exit_code == 2 and "Parquet has other records than 000001.ndjson.zst" in result.output
    assert len(session.segments()) == 1


@pytest.mark.slow
def test_query_reads_segments_in_place_of_a_damaged_parquet_file_and_names_it(tmp_path):
    session = a_session(tmp_path, a_job())
    compact(session)
    path = next(session.parquet_folder.rglob("gpu/**/*.parquet"))
    sound = path.read_bytes()
    expected = sorted((0.5 if rank == 1 else 1.0) for rank in range(4) for _ in range(3))
    for place in range(0, len(sound), 97):
        damaged = bytearray(sound)
        damaged[place] ^= 4
        path.unlink()
        path.write_bytes(damaged)
        with RecordedSource(session.path) as source:
            database = Database(source, source.scratch)
            assert database.query("SELECT util_pct / 100 FROM gpu ORDER BY ALL").rows == [(u,) for u in expected]
            database.close()
            assert [str(damage) for damage in source.damage] == [
                f"{path.name}: damaged; its records are read from segments instead"
            ]
        assert not recovery.verify(session).is_sound
    for segment in session.segments():
        segment.unlink()
    with RecordedSource(session.path) as source, pytest.raises(SessionError, match=rf"{path.name}.*checksum"):
        source.tables(["gpu"])


def test_crashed_session_keeps_its_segments_until_it_is_recovered(tmp_path):
    session = a_session(tmp_path, a_job())
    meta = session.read()
    meta.state = "recording"
    session.write(meta)

    result = run("compact", "night", "--drop-segments", "--folder", tmp_path)

    assert result.exit_code == 2 and "sessions recover night" in result.output and session.segments()


def test_session_without_segments_is_verified_and_recovered_from_parquet(tmp_path):
    session = without_segments(a_session(tmp_path, a_job()))
    before = session.read()

    assert run("verify", "night", "--folder", tmp_path).output == f"night: {len(a_job())} records in 0 frames, ok\n"
    recovery.recover(session)

    after = session.read()
    assert (after.records, after.counts, after.first_rx, after.last_rx, after.state, after.agents) == (
        before.records, before.counts, before.first_rx, before.last_rx, "closed", before.agents,
    )  # fmt: skip
    assert after.sealed == before.sealed, "the next segment must not reuse a compacted number"


def test_records_in_neither_segments_nor_parquet_are_reported_missing(tmp_path):
    session = a_session(tmp_path, a_job())
    for path in session.segments():
        path.unlink()

    result = CliRunner().invoke(sessions, ["verify", "night", "--folder", str(tmp_path)], standalone_mode=False)

    assert result.return_value == 1
    first, second = result.output.splitlines()
    assert first == f"night: 0 records in 0 frames, 1 damaged section, {len(a_job())} records missing"
    assert re.fullmatch(r"  ✖ 000001\.ndjson\.zst: missing, with 1\.\d KiB of records", second)
    with pytest.raises(SessionError, match="missing"):
        list(reader.records(session.path))
    recovered = run("recover", "night", "--folder", tmp_path).output
    assert recovered == f"night: 0 records in 0 frames, {len(a_job())} records missing\n"
