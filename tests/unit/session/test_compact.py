"""Compaction of segments to Parquet: complete, without duplicates, restartable, and readable by other programs."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import msgspec
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from session_builders import HOUR, START, a_job, a_session, gpu, records_in

from gconsole.cli.sessions import sessions
from gconsole.records import Host, Mark, decode, encode
from gconsole.session.format import zstd_frames
from gconsole.session.format.layout import SessionError, segment_number
from gconsole.session.format.reader import records
from gconsole.session.format.writer import SegmentWriter
from gconsole.session.manage import compact as compacting
from gconsole.session.manage.compact import MANIFEST, compact, read_manifest


def in_parquet(session):
    """Every record in Parquet as a line, sorted."""
    found = []
    for part in read_manifest(session).parts:
        columns = pq.ParquetFile(session.parquet_folder / part.path).read()
        found += [encode(record) for record in records_in(part.table, columns)]
    return sorted(found)


def in_segments(session):
    return sorted(encode(record) for record in records(session.path))


def many(count=3000):
    return [gpu(n, uuid=f"GPU-{n % 8}", at=n // 8, util_pct=float(n % 101), power_w=n / 8) for n in range(1, count)]


@pytest.mark.slow
def test_every_record_is_in_parquet_once(tmp_path):
    unknown = decode(b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":%d}' % START)
    session = a_session(tmp_path, [*many(), *a_job(), Mark(text="=1+2", rx=START), unknown])

    compact(session)

    assert in_parquet(session) == in_segments(session)


def test_a_table_is_partitioned_by_the_hour_of_arrival(tmp_path):
    hours = [Host(node="n1", seq=n, rx=START + n * HOUR) for n in range(3)]
    session = a_session(tmp_path, hours)

    done = compact(session)

    assert [part.path.split("/")[:2] for part in done.parts] == [
        ["host", "hour=2026-09-21T14"], ["host", "hour=2026-09-21T15"], ["host", "hour=2026-09-21T16"],
    ]  # fmt: skip


def test_compacting_again_does_nothing(tmp_path):
    session = a_session(tmp_path, many())
    compact(session)
    before = {path: path.stat().st_mtime_ns for path in session.parquet_folder.rglob("*")}

    compact(session)

    assert {path: path.stat().st_mtime_ns for path in session.parquet_folder.rglob("*")} == before


@pytest.mark.slow
def test_files_of_an_interrupted_compaction_step_are_removed_and_rewritten(tmp_path, monkeypatch):
    session = a_session(tmp_path, many())
    written = compacting.write_checked

    def disk_full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compacting, "write_checked", disk_full)
    with pytest.raises(OSError, match="No space"):
        compact(session)
    assert not read_manifest(session).parts and list(session.parquet_folder.rglob("*.parquet"))

    monkeypatch.setattr(compacting, "write_checked", written)
    compact(session)

    assert in_parquet(session) == in_segments(session)
    assert len(list(session.parquet_folder.rglob("*.parquet"))) == len(read_manifest(session).parts)


_COMPACTS = """
import sys
from pathlib import Path
from gconsole.session.manage import compact
from gconsole.session.format.layout import Session
print("begins", flush=True)
compact.compact(Session(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_compaction_resumes_after_sigkill_without_losing_records(tmp_path, monkeypatch):
    monkeypatch.setattr("gconsole.session.format.writer.SegmentWriter.__init__.__defaults__", (1,), raising=False)
    monkeypatch.setattr("gconsole.session.format.writer.FRAME_RECORDS", 500)
    session = a_session(tmp_path, many(20_000))
    assert len(session.segments()) > 10

    for delay in (0.0, 0.05, 0.1, 0.2, 0.35):
        process = subprocess.Popen([sys.executable, "-c", _COMPACTS, str(session.path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        deadline = time.monotonic() + delay
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    compact(session)

    assert in_parquet(session) == in_segments(session)


def test_a_compaction_that_is_killed_leaves_no_incomplete_file_and_keeps_each_finished_segment(tmp_path, monkeypatch):
    monkeypatch.setattr("gconsole.session.format.writer.SegmentWriter", lambda session: SegmentWriter(session, 1))
    monkeypatch.setattr("gconsole.session.format.writer.FRAME_RECORDS", 500)
    session = a_session(tmp_path, many(2_001))
    written = compacting.write_checked

    def killed_after_two(path, manifest):
        if len(manifest.segments) == 3:
            raise KeyboardInterrupt
        written(path, manifest)

    monkeypatch.setattr(compacting, "write_checked", killed_after_two)
    monkeypatch.setattr("gconsole.session.format.parquet_writer.sync_file", lambda path: drafts.append(path))
    drafts = []
    with pytest.raises(KeyboardInterrupt):
        compact(session)

    assert all(path.name.endswith(".parquet.draft") for path in drafts), "other programs read *.parquet"
    assert [segment_number(Path(name)) for name in read_manifest(session).segments] == [1, 2]
    kept = {path: path.stat().st_ino for path in session.parquet_folder.rglob("*-00000[12]-0.parquet")}
    monkeypatch.setattr(compacting, "write_checked", written)
    compact(session)
    assert len(kept) == 2 and all(path.stat().st_ino == inode for path, inode in kept.items())
    assert in_parquet(session) == in_segments(session)


def test_crashed_session_is_not_compacted_before_it_is_recovered(tmp_path):
    session = a_session(tmp_path, many())
    session.write(msgspec.structs.replace(session.read(), state="recording"))

    with pytest.raises(SessionError, match="its console crashed; first: gconsole sessions recover night"):
        compact(session)


def test_missing_parquet_file_is_reported_on_the_next_compaction(tmp_path):
    session = a_session(tmp_path, many())
    done = compact(session)
    (session.parquet_folder / done.parts[0].path).unlink()

    with pytest.raises(SessionError, match=r"is missing; try: remove .*parquet"):
        compact(session)


def test_damaged_manifest_is_reported_by_name(tmp_path):
    session = a_session(tmp_path, many())
    compact(session)
    (session.parquet_folder / MANIFEST).write_bytes(b"{")

    with pytest.raises(SessionError, match=MANIFEST):
        compact(session)


def test_pandas_and_duckdb_read_the_parquet_folder_unchanged(tmp_path):
    session = a_session(tmp_path, many())
    compact(session)
    folder = session.parquet_folder / "gpu"

    frame = pd.read_parquet(folder)
    by_pandas = frame.groupby("uuid")["power_w"].mean().to_dict()
    query = f"SELECT uuid, avg(power_w) FROM read_parquet('{folder}/**/*.parquet') GROUP BY uuid"

    assert dict(duckdb.sql(query).fetchall()) == pytest.approx(by_pandas)
    assert set(frame["hour"]) == {"2026-09-21T14"}


def test_instants_are_utc_timestamps_beside_the_exact_integers(tmp_path):
    session = a_session(tmp_path, [gpu(1), gpu(2, at=3), Mark(text="end", t=2**62, rx=2**63 - 1)])
    compact(session)

    frame = pd.read_parquet(session.parquet_folder / "gpu")
    (mark,) = session.parquet_folder.rglob("mark/**/*.parquet")

    assert str(frame["t_utc"].dtype) == "datetime64[us, UTC]"
    assert list(frame["t"]) == [START, START + 3_000_000_000]
    assert list(frame["t_utc"]) == [pd.Timestamp(START, tz="UTC"), pd.Timestamp(START + 3_000_000_000, tz="UTC")]
    assert list(frame["rx_utc"]) == [moment + pd.Timedelta(microseconds=1) for moment in frame["t_utc"]]
    assert pd.read_parquet(mark)["rx_utc"][0].year == 2262
    types = duckdb.sql(f"DESCRIBE SELECT t_utc, rx_utc FROM '{mark}'").fetchall()
    assert [row[1] for row in types] == ["TIMESTAMP WITH TIME ZONE"] * 2


@pytest.mark.slow
def test_dask_reads_the_parquet_folder_unchanged(tmp_path):
    dask = pytest.importorskip("dask.dataframe", reason="dask is not installed (only in CI)")
    session = a_session(tmp_path, [*many(), *(gpu(n, at=3600 + n, power_w=1.0) for n in range(5000, 5100))])
    compact(session)

    frame = dask.read_parquet(session.parquet_folder / "gpu")

    assert frame.npartitions == 2
    expected = pd.read_parquet(session.parquet_folder / "gpu").groupby("uuid")["power_w"].max()
    assert frame.groupby("uuid")["power_w"].max().compute().to_dict() == pytest.approx(expected.to_dict())


@pytest.mark.slow
def test_python_example_in_the_export_guide_runs(tmp_path, capsys):
    pytest.importorskip("dask.dataframe", reason="dask is not installed (only in CI)")
    session = a_session(tmp_path, many())
    compact(session)
    text = (Path(__file__).parents[3] / "docs/guide/export.md").read_text()
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "duckdb" in block]

    exec(re.sub(r"(?m)^folder = .*$", f"folder = {str(session.parquet_folder / 'gpu')!r}", shown), {})


@pytest.mark.slow
def test_unsealed_segment_of_a_recording_session_is_not_compacted(tmp_path):
    session = a_session(tmp_path, many())
    meta = session.read()
    session.write(msgspec.structs.replace(meta, sealed=0, state="recording"))
    with session.lock():
        assert compact(session).parts == ()

    session.write(meta)
    assert compact(session).parts


def test_concurrent_compaction_of_one_session_is_rejected(tmp_path):
    session = a_session(tmp_path, many())
    session.parquet_folder.mkdir()
    with compacting._compaction_lock(session), pytest.raises(SessionError, match="another process is compacting it"):
        compact(session)


def test_compact_command_prints_records_files_size_and_path(tmp_path):
    a_session(tmp_path, many())

    result = CliRunner().invoke(sessions, ["compact", "night", "--folder", str(tmp_path)])

    assert result.exit_code == 0
    assert re.match(r"night: 2,999 records in 1 file, [\d.]+ KiB: .*/night/parquet", result.output)


def test_lines_that_this_version_does_not_write_are_read_as_records(tmp_path):
    session = a_session(tmp_path, [gpu(1, util_pct=5.0)])
    usual = encode(gpu(2, util_pct=7.0))
    without = usual.replace(b'"util_pct":7.0,', b"")
    wrong = usual.replace(b'"util_pct":7.0', b'"util_pct":"high"')
    at_an_hour = [encode(Mark(text="before", rx=START)), encode(Mark(text="after", rx=START + HOUR))]
    data = zstd_frames.pack([usual, without, wrong], {"gpu": 3}, START, START + 9)
    data += zstd_frames.pack(at_an_hour, {"mark": 2}, START, START + HOUR)
    session.segments()[0].write_bytes(data)
    meta = session.read()
    meta.seals = ()
    session.write(meta)
    assert meta.is_own

    done = compact(session)

    assert in_parquet(session) == sorted([usual, encode(decode(without)), *at_an_hour])
    assert done.damaged_bytes == len(wrong)
    assert {part.hour for part in done.parts if part.table == "mark"} == {"2026-09-21T14", "2026-09-21T15"}
