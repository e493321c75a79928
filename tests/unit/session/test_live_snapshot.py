"""Exports of the in-memory history of a console equal those of a recorded session."""

import json
import re

import numpy as np
import pytest
from session_builders import START, a_job, a_session, gpu

from gconsole.core.store import Store
from gconsole.records import Finding, GpuInfo, NodeState, Process, RankStat, Stack, StackFrame
from gconsole.records.metrics import HISTORY
from gconsole.session.export.formats import SESSION_FORMATS
from gconsole.session.export.gpu_curves import Curves
from gconsole.session.export.html_page import page_of
from gconsole.session.export.live_snapshot import live_snapshot
from gconsole.session.export.slice import slice_session
from gconsole.session.format import reader
from gconsole.session.format.layout import SessionError
from gconsole.session.manage.catalog import import_file
from gconsole.session.store_snapshot import metric_history

SECOND = 1_000_000_000


def a_watch(records):
    """Store of a console that received these records."""
    store = Store(history_bytes=1 << 28)
    for record in records:
        store.apply([record])
    return store


def a_capture():
    frames = (StackFrame("main", "train.py", 3), StackFrame("load", "data.py", 88, source="open(path)"))
    both = {"job": "llama", "start_ticks": 7, "agent": "agent-n0", "node": "n0"}
    return [
        Stack(**both, seq=900, t=START, mono=0, rx=START + 3 * SECOND, capture="c", sample=0, rank=1, pid=101,
              status="ok", began=START, ended=START + 900, os_thread_id=101, frames=frames),
        Finding(seq=901, agent="c", t=START, rx=START + 3 * SECOND, id="rank_missing", severity="error",
                confidence="certain", text="rank 1 is late", first_seen=START),
    ]  # fmt: skip


def half_an_hour(seconds=1800):
    """A GPU that is active in the first half of the time."""
    yield GpuInfo(node="n1", agent="a", seq=1, t=START, rx=START, mono=1, index=0, uuid="GPU-a")
    for at in range(seconds):
        yield gpu(at + 2, at=at, util_pct=100.0 * (at < seconds // 2))


def test_live_html_page_equals_the_page_of_a_recorded_session(tmp_path):
    records = [*a_job(ticks=60), *a_capture()]
    out = tmp_path / "night.html"
    with out.open("wb") as file:
        SESSION_FORMATS["html"].write(slice_session(a_session(tmp_path, records).path), file)

    page = page_of("night", a_watch(records))()

    assert page == out.read_text()
    assert page.count("<svg") == 6 and "util_pct" in page and "rank_missing" in page and "data.py:88" in page


def test_live_plots_cover_the_whole_metric_history():
    store, streamed = a_watch(half_an_hour()), Curves(["util_pct"])
    for record in half_an_hour():
        streamed.add(record, record.rx)
    kept = metric_history(store, "gpu")

    curves = Curves.of_history(["util_pct"], kept.metrics, HISTORY["gpu"], {("n1", "GPU-a"): ("n1", 0, "GPU-a")})

    (names, table), (expected_names, expected) = curves.table("util_pct"), streamed.table("util_pct")
    assert names == expected_names and table.shape == expected.shape
    assert curves.seconds == streamed.seconds
    differs = np.abs(table - expected) > 0.01
    assert differs.sum() <= 1, "except in the 10 s around the change"
    assert table[0, 0] == 100 and table[0, -1] == 0 and not np.isnan(table).any()


def test_live_html_page_without_gpus_has_no_plots():
    page = page_of("here", a_watch([NodeState(node="n1", state="ok", rx=START)]))()

    assert "<svg" not in page and page.endswith("</html>\n")


def exported(store, how, tmp_path):
    out = tmp_path / f"held{SESSION_FORMATS[how].suffix}"
    with out.open("wb") as file:
        SESSION_FORMATS[how].write(live_snapshot(store, "watched"), file)
    return out


def test_live_json_export_can_be_imported_as_a_session(tmp_path):
    store = a_watch([*a_job(ticks=20), *a_capture()])

    session, meta = import_file(exported(store, "json", tmp_path), None, tmp_path)

    records = list(reader.records(session.path))
    assert session.name == "watched" and meta.records == len(records)
    assert [record.rx for record in records] == sorted(record.rx for record in records)
    assert len({(record.agent, record.seq) for record in records}) == len(records)
    kinds = {type(record).__name__ for record in records}
    assert {"Gpu", "GpuInfo", "Rank", "RankStat", "Stack", "Finding", "Log"} <= kinds
    seen = [(record.rx // SECOND, record.util_pct) for record in records
            if type(record).__name__ == "Gpu" and record.uuid == "GPU-1"]  # fmt: skip
    assert seen == [(START // SECOND + at, 50.0) for at in range(1, 21)]


def test_live_export_has_a_log_record_marking_it_as_not_recorded(tmp_path):
    content = json.loads(exported(a_watch(a_job()), "json", tmp_path).read_bytes())

    assert "not recorded" in next(record["text"] for record in content["records"] if record["kind"] == "log")


def test_live_gpu_samples_have_the_timestamps_of_their_node(tmp_path):
    store = a_watch(a_job(ticks=20))

    figures = [record for record in live_snapshot(store, "watched").only("gpu") if record.uuid == "GPU-1"]

    assert [round(record.mono / SECOND) for record in figures] == list(range(1, 21))
    assert all(abs(record.t - START - record.mono) < SECOND for record in figures)


def test_live_snapshot_has_past_steps_of_a_rank():
    store = a_watch(a_job(ticks=20))

    steps = [record.step for record in live_snapshot(store, "watched").only("rank_stat")
             if record.rank == 0 and record.step is not None]  # fmt: skip

    assert set(range(2, 21)) <= set(steps)


def test_idle_rank_keeps_its_still_since_time_in_a_live_snapshot(tmp_path):
    records = a_job(ranks=1, ticks=40)
    for record in records:
        if isinstance(record, RankStat) and record.mono > 20 * SECOND:
            record.state, record.cpu_pct, record.step = "idle", 0.0, 20
    store = a_watch(records)
    (live,) = store.ranks.values()

    again = a_watch(live_snapshot(store, "watched").records())

    (replayed,) = again.ranks.values()
    assert live.still_since == 21 * SECOND
    assert replayed.still_since is not None and 0 <= replayed.still_since - live.still_since <= SECOND


def test_secrets_are_redacted_in_a_live_snapshot():
    store = a_watch([
        NodeState(node="n1", state="ok", rx=START),
        Process(node="n1", agent="a", seq=2, rx=START, pid=1, start_ticks=1, ppid=0, comm="p", role="python",
                cmdline="train.py --token hunter2", user="u", uid=1),
    ])  # fmt: skip

    (found,) = live_snapshot(store, "watched").only("process")

    assert "hunter2" not in found.cmdline and "train.py" in found.cmdline


def test_every_export_format_can_be_written_from_a_live_snapshot(tmp_path):
    store = a_watch([*a_job(ticks=20), *a_capture()])
    for form in SESSION_FORMATS.values():
        if form.is_folder:
            folder = tmp_path / form.name
            folder.mkdir()
            assert form.write_folder(live_snapshot(store, "watched"), folder), form.name
        else:
            assert exported(store, form.name, tmp_path).stat().st_size > 100, form.name
    frames = json.loads((tmp_path / "held.gswarm.json").read_bytes())["frames"]
    assert len(frames) == 20 and len(frames[0]["gpu_id"]) == 4


def test_live_perfetto_trace_has_counters_steps_and_captures(tmp_path):
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    trace = pb.Trace()
    trace.ParseFromString(exported(a_watch([*a_job(ticks=20), *a_capture()]), "perfetto", tmp_path).read_bytes())

    tracks = {packet.track_descriptor.name for packet in trace.packet}
    names = {packet.track_event.name for packet in trace.packet}
    assert {"GPU 0 util_pct", "steps", "captures", "findings"} <= tracks
    assert {"step 7", "load data.py:88", "rank_missing: rank 1 is late"} <= names


def test_live_speedscope_export_without_captures_names_the_keys_to_press(tmp_path):
    with pytest.raises(SessionError, match="no stacks were captured; press s or d"):
        exported(a_watch(a_job()), "speedscope", tmp_path)


def test_live_snapshot_of_a_store_without_history_has_current_ranks():
    store = Store()
    for record in a_job():
        store.apply([record])

    assert {record.rank for record in live_snapshot(store, "w").only("rank_stat")} == {0, 1, 2, 3}
    assert re.search("</html>", page_of("w", store)())
