"""`gconsole.open` and `gconsole.diagnose`: sessions, NDJSON and exported JSON as DataFrames, records and verdicts."""

import warnings
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from session_builders import START, a_hang, a_job, a_session, gpu
from session_files import crashed_session

import gconsole
from gconsole.records import Gpu, GpuInfo, NodeState, encode
from gconsole.runtime.recorded import DamageWarning
from gconsole.session.export import document
from gconsole.session.export.slice import SessionSlice
from gconsole.session.format import zstd_frames
from gconsole.session.format.writer import SegmentWriter
from gconsole.session.manage.compact import compact
from gconsole.text.timespec import TimeSpecError

pytestmark = pytest.mark.slow


@pytest.fixture
def night(tmp_path):
    a_session(tmp_path, [*a_job(), *a_hang()])
    with gconsole.open("night", folder=tmp_path) as session:
        yield session


# -- tables ------------------------------------------------------------------------------------------------------------


def test_readme_query_is_a_frame_with_nullable_types(night):
    frame = night.sql("SELECT rank, avg(util_pct) AS util_pct FROM gpu_by_rank GROUP BY rank ORDER BY rank").df()

    assert frame.dtypes.astype(str).to_dict() == {"rank": "Int64", "util_pct": "Float64"}
    assert frame.to_dict("list") == {"rank": [0, 1, 2, 3], "util_pct": [100.0, 50.0, 100.0, 100.0]}
    assert frame.attrs["units"] == {"util_pct": "%"}


def test_records_of_a_kind_have_utc_timestamps_units_and_unknown_values(tmp_path):
    a_session(tmp_path, [gpu(1, util_pct=0.0, mem_used_bytes=2**60 + 1), gpu(2, at=1)])

    frame = gconsole.open("night", folder=tmp_path).df("gpu")

    assert frame["t"].tolist() == [pd.Timestamp(START, tz="UTC"), pd.Timestamp(START + 10**9, tz="UTC")]
    assert str(frame["t"].dtype) == "datetime64[ns, UTC]"
    assert frame["util_pct"].tolist() == [0.0, pd.NA], "unknown is not 0"
    assert frame["mem_used_bytes"].tolist() == [2**60 + 1, pd.NA], "exact beyond 2^53"
    assert frame["simulated"].dtype == "boolean"
    assert frame["t_cluster"].isna().all()
    assert frame.attrs["units"]["mem_used_bytes"] == "bytes"
    assert "kernel running" in frame.attrs["descriptions"]["util_pct"]


@pytest.mark.parametrize("form", ["segments", "parquet", "ndjson", "json"])
def test_frame_is_the_same_from_every_form_of_a_recording(tmp_path, form):
    session = a_session(tmp_path, a_job())
    expected = gconsole.open(session.path).df("rank_stat")
    path = session.path
    if form == "parquet":
        compact(session)
    elif form == "ndjson":
        path = tmp_path / "records.ndjson"
        path.write_bytes(b"".join(encode(record) + b"\n" for record in gconsole.open(session.path).records()))
    elif form == "json":
        path = tmp_path / "night.json"
        with path.open("wb") as out:
            document.write(SessionSlice(session.path, meta=session.read()), out)

    opened = gconsole.open(path)

    pd.testing.assert_frame_equal(opened.df("rank_stat"), expected)
    assert len(opened.at("100%").ranks) == 4
    assert opened.span == gconsole.open(session.path).span


def test_frame_is_limited_to_nodes_times_and_columns(tmp_path):
    records = [gpu(seq, node=f"n{node}", at=seq) for node in range(3) for seq in range(5)]
    a_session(tmp_path, sorted(records, key=lambda record: record.rx))
    night = gconsole.open("night", folder=tmp_path)

    some = night.df("gpu", nodes="n[0-1]", since="+1s", until="-1s", columns=["node", "seq"])

    assert some.columns.tolist() == ["node", "seq"]
    assert sorted(map(tuple, some.values.tolist())) == [(f"n{node}", seq) for node in (0, 1) for seq in (1, 2)]
    begin = datetime.fromtimestamp(START // 10**9 + 4, UTC)
    assert night.df("gpu", since=begin)["seq"].tolist() == [4, 4, 4]
    assert night.df("gpu", nodes=["n2"], since=START + 4 * 10**9)["node"].tolist() == ["n2"]


def test_view_is_a_frame_too(night):
    frame = night.df("gpu_by_rank", nodes="n1")
    assert set(frame["rank"]) == {2, 3}


def test_large_sums_decimals_and_texts_keep_their_values(night):
    result = night.sql("SELECT sum(9000000000000000000) AS big, sum(3) AS small, 1.25::DECIMAL(5,2) AS d, "
                       "[1, 2] AS l, NULL::VARCHAR AS nothing FROM range(2)")  # fmt: skip

    [row] = result.rows()
    assert row == {"big": 18 * 10**18, "small": 6, "d": 1.25, "l": [1, 2], "nothing": None}
    frame = result.df()
    assert frame["big"][0] == 18 * 10**18
    assert (frame["small"].dtype, frame["small"][0], frame["d"][0]) == ("Int64", 6, 1.25)
    assert np.array_equal(frame["l"][0], [1, 2])


def test_empty_result_has_its_columns_and_types(night):
    frame = night.sql("SELECT t, node, util_pct FROM gpu WHERE false").df()
    assert frame.dtypes.astype(str).tolist() == ["datetime64[ns, UTC]", "string", "Float64"]


def test_query_that_writes_is_refused(night):
    with pytest.raises(gconsole.QueryError, match="read-only"):
        night.sql("CREATE TABLE x AS SELECT 1")


# -- records and states ------------------------------------------------------------------------------------------------


def test_records_are_selected_by_kind_in_order_of_arrival(night):
    kinds = [type(record).__name__ for record in night.records("gpu_info", "rank")]
    assert sorted(set(kinds)) == ["GpuInfo", "Rank"]
    with pytest.raises(gconsole.SessionError, match=r"'gpus' is not a kind of record; kinds: .*gpu"):
        night.records("gpus")
    with pytest.raises(gconsole.SessionError, match=r"neither a kind of record nor a view; views: .*gpu_by_rank"):
        night.df("gpus")


def test_state_at_an_instant_is_that_of_a_replay(tmp_path):
    records = [gpu(seq, at=seq, util_pct=float(seq)) for seq in range(10)]
    a_session(
        tmp_path,
        [NodeState(node="n1", state="ok", rx=START), GpuInfo(node="n1", index=0, uuid="GPU-a", rx=START), *records],
    )
    night = gconsole.open("night", folder=tmp_path)

    assert night.at("+3s").gpus["util_pct"].tolist() == [2.0], "its record arrives 1 µs after 3 s"
    assert night.at("100%").gpus["util_pct"].tolist() == [9.0]
    assert night.end().gpus["util_pct"].tolist() == [9.0]
    with pytest.raises(TimeSpecError, match="is not a time"):
        night.at("noon")


def test_figures_of_a_lost_node_are_unknown_and_have_an_age(tmp_path):
    lost = NodeState(node="n1", state="lost", rx=START + 60 * 10**9)
    a_session(tmp_path, [NodeState(node="n1", state="ok", rx=START), gpu(1, util_pct=99.0), lost])

    [row] = gconsole.open("night", folder=tmp_path).end().gpus.to_dict("records")

    assert pd.isna(row["util_pct"])
    assert row["stale_s"] == pytest.approx(60, abs=0.1)


def test_hang_is_diagnosed_as_by_the_command(night):
    verdicts = night.diagnose()

    assert verdicts[0].job == verdicts.job
    assert verdicts.state == verdicts[0].state
    assert verdicts.job in str(verdicts)
    assert "<pre" in verdicts._repr_html_()
    assert verdicts.df()["job"].tolist()


def test_names_in_a_verdict_cannot_add_html(night):
    from msgspec.structs import replace

    from gconsole.monitor.hang import verdicts as of_store
    from gconsole.runtime.results import JobVerdicts

    [first, *_] = of_store(night.end().store)
    html = JobVerdicts([replace(first, job="<script>x", summary="<img src=x>")])._repr_html_()
    assert "<script>" not in html and "<img" not in html and "&lt;img" in html


def test_folder_of_logs_is_diagnosed(tmp_path):
    for rank in range(2):
        text = (
            "step 1\n"
            if rank
            else 'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    x\nValueError: bad\n'
        )
        (tmp_path / f"rank{rank}.log").write_text(text)

    verdicts = gconsole.diagnose(tmp_path)

    assert (verdicts.kind, [culprit.rank for culprit in verdicts.culprits]) == ("exception", [0])
    assert verdicts.df()[["rank", "file", "line"]].values.tolist() == [[0, "train.py", 3]]
    with pytest.raises(gconsole.SessionError, match="no logs"):
        empty = tmp_path / "empty"
        empty.mkdir()
        gconsole.diagnose(empty)


# -- sessions that are not at rest -------------------------------------------------------------------------------------


def test_session_is_read_while_it_is_recorded(tmp_path):
    session = crashed_session(tmp_path, "night", [[gpu(1)]])
    night = gconsole.open("night", folder=tmp_path)
    with session.lock():
        assert night.is_recording
        assert len(night.df("gpu")) == 1
        writer, late = SegmentWriter(session), gpu(2, at=5)
        writer.append(zstd_frames.pack([encode(late)], {"gpu": 1}, late.rx, late.rx))
        writer.close()
        assert night.df("gpu")["seq"].tolist() == [1, 2]
        assert [record.seq for record in night.records("gpu")] == [1, 2]
        assert night.df("gpu", since="-1s")["seq"].tolist() == [2]


def test_damage_is_a_warning_that_names_the_place(tmp_path):
    session = a_session(tmp_path, [gpu(seq, at=seq) for seq in range(50)])
    [segment] = session.segments()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)

    with pytest.warns(DamageWarning, match="sessions verify night"):
        gconsole.open(session.path).df("gpu")
    with pytest.warns(DamageWarning):
        list(gconsole.open(session.path).records())


def test_missing_session_says_what_to_try(tmp_path):
    with pytest.raises(gconsole.SessionError, match="gconsole sessions list"):
        gconsole.open("nosuch", folder=tmp_path)
    with pytest.raises(gconsole.SessionError, match="no such file"):
        gconsole.open(tmp_path / "gone.ndjson")
    (tmp_path / "bad.ndjson").write_text("nonsense\n")
    with pytest.raises(gconsole.SessionError, match=r"bad\.ndjson:1: not a record"):
        list(gconsole.open(tmp_path / "bad.ndjson").records())
    a_session(tmp_path, [], "empty")
    with pytest.raises(gconsole.SessionError, match="no records"):
        gconsole.open("empty", folder=tmp_path).at("+1s")


def test_closing_removes_what_was_unpacked(tmp_path, monkeypatch):
    a_session(tmp_path / "sessions", [gpu(1)])
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with warnings.catch_warnings(), gconsole.open("night", folder=tmp_path / "sessions") as night:
        warnings.simplefilter("error")
        night.df("gpu")
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
    assert isinstance(next(iter(night.records("gpu"))), Gpu), "it can still be read"


# -- exports, comparison -----------------------------------------------------------------------------------------------


def test_csv_export_has_the_records_of_the_range_and_nodes(tmp_path):
    a_session(tmp_path, [gpu(n, node=f"n{n % 2}", at=n, util_pct=float(n)) for n in range(10)])
    night = gconsole.open("night", folder=tmp_path)

    written = night.export("csv", tmp_path / "out", since="+4s", until=START + 8 * 10**9, nodes="n1", kinds=["gpu"])

    assert written == [tmp_path / "out" / "gpu.csv"]
    assert pd.read_csv(written[0])["util_pct"].tolist() == [5.0, 7.0]


def test_export_of_one_file_can_be_opened_again(night, tmp_path):
    (written,) = night.export("json", tmp_path / "night.json")

    assert list(gconsole.open(written).records("rank")) == list(night.records("rank"))


@pytest.mark.parametrize(
    ("how", "part", "words"),
    [("xml", {}, "not a format"), ("json", {"nodes": "n9"}, "no records of n9"), ("csv", {"kinds": ["gpus"]}, "gpus"),
     ("json", {"since": "2099-01-01"}, "nothing was recorded")],
)  # fmt: skip
def test_export_of_nothing_is_an_error_and_writes_no_file(night, tmp_path, how, part, words):
    with pytest.raises(gconsole.SessionError, match=words):
        night.export(how, tmp_path / "out", **part)

    assert not (tmp_path / "out").exists()


def test_comparison_has_frames_of_facts_findings_and_metrics(tmp_path):
    before = [GpuInfo(node="n1", agent="a", seq=1, rx=START, index=0, uuid="u", name="H100", driver="550.1"),
              gpu(2, "u", power_w=300.0)]  # fmt: skip
    after = [GpuInfo(node="n1", agent="a", seq=1, rx=START, index=0, uuid="u", name="H100", driver="560.2"),
             gpu(2, "u", power_w=400.0, temp_c=50.0)]  # fmt: skip
    a_session(tmp_path, before, "before")
    a_session(tmp_path, after, "after")

    diff = gconsole.open("before", folder=tmp_path).diff(tmp_path / "after")

    assert diff.is_different
    assert diff.facts.to_dict("records") == [
        {"what": "gpu0 driver", "a": "550.1", "b": "560.2", "nodes": ["n1"]},
    ]  # fmt: skip
    assert diff.findings.empty
    metrics = diff.df().set_index("metric")
    assert (metrics.loc["gpu.power_w", "median_a"], metrics.loc["gpu.power_w", "median_b"]) == (300.0, 400.0)
    assert metrics.loc["gpu.temp_c", "samples_a"] is pd.NA, "not measured is not 0"
    assert "gpu0 driver" in str(diff) and "gpu0 driver" in diff._repr_html_()


def test_comparison_with_a_file_says_to_import_it(night, tmp_path):
    (written,) = night.export("json", tmp_path / "night.json")

    with pytest.raises(gconsole.SessionError, match="import it first"):
        night.diff(written)


def test_plot_draws_the_picture_of_the_command(tmp_path):
    pytest.importorskip("matplotlib")
    a_session(tmp_path, [gpu(n, at=n, util_pct=float(n), power_w=100.0) for n in range(20)])

    gconsole.open("night", folder=tmp_path).plot(tmp_path / "night.svg")

    assert "power_w" in (tmp_path / "night.svg").read_text()
