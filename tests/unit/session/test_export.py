"""Exports of a session: each format is read back by its target program, complete and free of active content."""

import csv
import io
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import click
import duckdb
import msgspec
import pandas as pd
import pytest
from click.testing import CliRunner
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_builders import START, a_job, a_session, any_record, gpu

from gconsole.cli.export import export as command
from gconsole.cli.sessions import sessions
from gconsole.records import (
    KINDS,
    Collective,
    Finding,
    Gap,
    GpuClock,
    GpuInfo,
    Mark,
    Node,
    RankStat,
    Stack,
    StackFrame,
    encode,
)
from gconsole.session.export import document
from gconsole.session.export.formats import SESSION_FORMATS
from gconsole.session.export.slice import slice_session
from gconsole.session.format import reader
from gconsole.session.format.layout import SessionError
from gconsole.session.manage.catalog import import_file
from gconsole.session.manage.compact import compact

SECOND = 1_000_000_000


def exported(session, how, tmp_path, **part):
    """Export the session to a file in this format."""
    path = tmp_path / f"out{SESSION_FORMATS[how].suffix}"
    with path.open("wb") as out:
        SESSION_FORMATS[how].write(slice_session(session.path, **part), out)
    return path


def run(*args):
    result = CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


# -- json --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_json_export_and_import_round_trip_byte_for_byte(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    records = [data.draw(any_record(kind)) for kind in kinds]
    session = a_session(folder, records)
    first = exported(session, "json", folder)

    again, _ = import_file(first, "again", folder)
    second = exported(again, "json", folder / "again").read_bytes()

    assert [*map(encode, reader.records(again.path))] == [*map(encode, records)]
    assert second.replace(b'"name":"again"', b'"name":"night"') == first.read_bytes()


def test_records_of_unknown_kinds_survive_json_export_and_import(tmp_path):
    path = tmp_path / "night.ndjson"
    path.write_bytes(b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":9,"t":7,"charm":[1,{"x":"} ]"}]}\n')
    session, _ = import_file(path, None, tmp_path)
    again, _ = import_file(exported(session, "json", tmp_path), "again", tmp_path)

    assert [*map(encode, reader.records(again.path))] == [*map(encode, reader.records(path))]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 3])
def test_json_import_does_not_depend_on_indentation_or_chunk_size(tmp_path, monkeypatch, chunk, indent):
    texts = ['a "quoted" } ] text', "back\\slash\\", "{[", "né\n", ""]
    session = a_session(tmp_path, [Mark(text=text, seq=n) for n, text in enumerate(texts)])
    path = exported(session, "json", tmp_path)
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=indent))
    monkeypatch.setattr(document, "_CHUNK", chunk)

    _, records = document.read(path)

    assert [record.text for record in records] == texts


def test_json_export_has_schema_session_name_and_all_records(tmp_path):
    content = json.loads(exported(a_session(tmp_path, a_job()), "json", tmp_path).read_bytes())

    assert (content["schema"], content["session"]["name"]) == ("gconsole.session/1", "night")
    assert len(content["records"]) == len(a_job())
    assert {"kind", "node", "seq", "t"} <= content["records"][0].keys()
    msgspec.convert(content, document.SessionDocument)


def test_json_file_truncated_at_any_length_is_rejected(tmp_path):
    session = a_session(tmp_path, [Mark(text="one"), Mark(text="two")])
    whole = exported(session, "json", tmp_path).read_bytes()
    path = tmp_path / "cut.json"
    for length in range(len(whole) - 4):
        path.write_bytes(whole[:length])
        with pytest.raises(Exception) as caught:
            _, records = document.read(path)
            list(records)
        assert isinstance(caught.value, SessionError), (length, caught.value)


def test_file_with_a_newer_schema_is_rejected_with_advice_to_update(tmp_path):
    path = tmp_path / "new.json"
    path.write_bytes(b'{"schema": "gconsole.session/9", "session": {}, "records": []}')
    with pytest.raises(SessionError, match="update gconsole"):
        document.read(path)


def test_failed_import_leaves_no_session_behind(tmp_path):
    path = exported(a_session(tmp_path, [Mark(text="one")]), "json", tmp_path)
    path.write_bytes(path.read_bytes()[:-6])

    with pytest.raises(SessionError, match="cut off"):
        import_file(path, "again", tmp_path)

    assert not (tmp_path / "again").exists()


def test_export_and_import_on_the_command_line(tmp_path):
    a_session(tmp_path, a_job())
    out = tmp_path / "night.json"
    assert run("night", "--folder", tmp_path, "-o", out).return_value == 0

    result = CliRunner().invoke(sessions, ["import", str(out), "--name", "again", "--folder", str(tmp_path)])

    assert result.output == f"again: {len(a_job())} records\n"


# -- selection ---------------------------------------------------------------------------------------------------------


def test_slice_selects_records_by_time_nodes_and_kinds(tmp_path):
    session = a_session(tmp_path, a_job())

    part = slice_session(session.path, begin="2s", end="3s", nodes=frozenset({"n0"}), kinds=frozenset({"gpu"}))

    assert [(record.node, record.uuid, record.t - START) for record in part.records()] == [
        ("n0", "GPU-0", 2 * SECOND), ("n0", "GPU-1", 2 * SECOND),
    ]  # fmt: skip


def test_slice_starts_with_the_state_known_at_its_begin(tmp_path):
    head = {"node": "n1", "agent": "a"}
    session = a_session(tmp_path, [
        GpuInfo(**head, seq=1, rx=START, index=0, uuid="GPU-a", name="NVIDIA H100", mem_total_bytes=80 << 30),
        gpu(2, at=1, mem_used_bytes=20 << 30), gpu(3, at=9, mem_used_bytes=40 << 30),
        Mark(rx=START + SECOND, text="over", seq=1, agent="c"),
        Finding(seq=2, agent="c", rx=START + SECOND, id="x", severity="error", confidence="certain", text="still so",
                first_seen=START), gpu(4, at=10),
    ])  # fmt: skip

    part = slice_session(session.path, begin="5s")

    assert [type(record).__name__ for record in part.records()] == ["GpuInfo", "Finding", "Gpu", "Gpu"]
    (item,) = [frame for frame in json.loads(exported(session, "gswarm", tmp_path, begin="5s").read_bytes())["frames"]
               if frame["gpu_memory"] == [50.0]]  # fmt: skip
    assert item["gpu_id"] == ["n1:0:NVIDIA H100"]
    page = exported(session, "html", tmp_path, begin="5s").read_text()
    assert "<th>lasted<td>5 s" in page and "still so" in page
    assert b"still so" not in exported(session, "perfetto", tmp_path, begin="5s").read_bytes(), "before the slice"
    only = slice_session(session.path, begin="5s", kinds=frozenset({"gpu"}))
    assert [record.rx - START for record in only.records()] == [9 * SECOND + 1000, 10 * SECOND + 1000]


@pytest.mark.parametrize(
    ("part", "words"),
    [(["--nodes", "n[0-"], 'unclosed "["'), (["--nodes", "n0,elsewhere"], "no records of elsewhere"),
     (["--from", "-1s", "--to", "-2s"], "empty range"), (["--kinds", "gpus"], "unknown kind: gpus")],
)  # fmt: skip
def test_invalid_slice_is_an_error_and_creates_no_output_file(tmp_path, part, words):
    a_session(tmp_path, a_job())

    result = CliRunner().invoke(command, ["night", "--folder", str(tmp_path), "-o", str(tmp_path / "x"), *part])

    assert result.exit_code == 2 and words in result.output, result.output
    assert not (tmp_path / "x").exists()


def test_nodes_without_records_in_a_file_are_an_error(tmp_path):
    recording = tmp_path / "night.ndjson"
    recording.write_bytes(b"".join(encode(record) + b"\n" for record in a_job()))

    result = CliRunner().invoke(command, [str(recording), "-o", str(tmp_path / "x"), "--nodes", "n0,elsewhere"])

    assert result.exit_code == 2 and "no records of elsewhere; recorded nodes: n" in result.output
    assert not (tmp_path / "x").exists()


def test_a_full_disk_is_reported_with_the_name_of_the_output(tmp_path):
    a_session(tmp_path, a_job(), name="night")

    result = CliRunner().invoke(command, ["night", "--folder", str(tmp_path), "-o", "/dev/full"])

    assert "'/dev/full': No space left on device" in result.output


@pytest.mark.parametrize(
    ("part", "seqs"),
    [({"begin": "08:00:05"}, [5, 10]), ({"end": "08:00:05"}, [0]), ({"begin": "50%"}, [5, 10]),
     ({"begin": "-5s"}, [5, 10]), ({"begin": "+10s"}, [10]),
     ({"begin": "2026-11-21T09:00:05+01:00"}, [5, 10]), ({"end": "12:00"}, [0, 5, 10])],
)  # fmt: skip
def test_each_accepted_time_format_selects_the_expected_records(tmp_path, utc, part, seqs):
    start = 1_795_248_000 * SECOND  # 2026-11-21 08:00:00 UTC
    marks = [Mark(agent="c", seq=second + 1, rx=start + second * SECOND, text=str(second)) for second in (0, 5, 10)]
    session = a_session(tmp_path, marks)

    assert [
        int(record.text) for record in slice_session(session.path, kinds=frozenset({"mark"}), **part).records()
    ] == seqs


@pytest.mark.parametrize(
    "part", [{"begin": "09:00"}, {"end": "07:59:59"}, {"begin": "2027-01-01"}, {"end": "2026-11-21"}]
)
def test_time_outside_the_session_is_an_error_with_the_covered_range(tmp_path, utc, part):
    start = 1_795_248_000 * SECOND
    session = a_session(tmp_path, [Mark(agent="c", seq=1, rx=start, text="x")])

    with pytest.raises(SessionError, match="the session covers 2026-11-21 08:00:00 to 2026-11-21 08:00:00"):
        slice_session(session.path, **part)


def test_unparsable_time_is_an_error_with_the_accepted_formats(tmp_path):
    session = a_session(tmp_path, [Mark(agent="c", seq=1, rx=SECOND, text="x")])

    with pytest.raises(SessionError, match="'noon' is not a time; use 14:02:30, 90s"):
        slice_session(session.path, begin="noon")


# -- tables ------------------------------------------------------------------------------------------------------------


def test_pandas_reads_the_parquet_export_of_selected_kinds(tmp_path):
    a_session(tmp_path, a_job())
    run("night", "--folder", tmp_path, "--format", "parquet", "--kinds", "gpu", "-o", tmp_path / "out")

    frame = pd.read_parquet(tmp_path / "out" / "gpu")

    assert len(frame) == 12 and set(frame["uuid"]) == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["gpu"]


def test_csv_export_writes_one_file_per_kind_with_formulas_escaped(tmp_path):
    a_session(tmp_path, [*a_job(), Mark(text="=HYPERLINK(1)", node="+n1"), Mark(text="fine\nline")])
    run("night", "--folder", tmp_path, "--format", "csv", "-o", tmp_path / "out")

    with (tmp_path / "out" / "mark.csv").open(newline="") as file:
        marks = list(csv.DictReader(file))
    assert [(mark["node"], mark["text"]) for mark in marks] == [("'+n1", "'=HYPERLINK(1)"), ("", "fine\nline")]
    assert len(pd.read_csv(tmp_path / "out" / "rank_stat.csv")) == 12


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=30))
def test_escaped_csv_cell_never_starts_a_spreadsheet_formula(text, tmp_path_factory):
    from gconsole.text.sanitize import cell

    assert not cell(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_export_into_a_non_empty_folder_is_rejected_and_changes_nothing(tmp_path):
    a_session(tmp_path, a_job())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("kept")

    argv = ["night", "--folder", str(tmp_path), "--format", "csv", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(command, argv)

    assert result.exit_code == 2 and "is not empty" in result.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]


# -- gswarm ------------------------------------------------------------------------------------------------------------


def test_gswarm_export_has_the_documented_units(tmp_path):
    head = {"node": "n1", "agent": "a", "rx": START}
    figures = {"util_pct": 97.0, "mem_used_bytes": 20 << 30, "pcie_rx_bytes_s": 12e9, "pcie_tx_bytes_s": 3e9}
    session = a_session(tmp_path, [
        GpuInfo(**head, index=0, uuid="GPU-a", name="NVIDIA H100", mem_total_bytes=80 << 30), gpu(2, **figures),
        gpu(3, uuid="GPU-b", node="n2", at=0), gpu(4, at=1, util_pct=0.0),
    ])  # fmt: skip

    dataset = json.loads(exported(session, "gswarm", tmp_path).read_bytes())

    first, second = dataset["frames"]
    assert first["gpu_id"] == ["n1:0:NVIDIA H100", "n2:0:GPU"]
    assert first["gpu_util"] == [97.0, None] and second["gpu_util"] == [0.0]
    assert first["gpu_memory"] == [25.0, None]
    assert (first["dram_bandwidth_rx"], first["dram_bandwidth_tx"]) == ([12.0, None], [3.0, None])
    assert first["dram_bandwidth"] == [15.0, None]
    assert "gpu_bandwidth" not in first, "NVLink was not measured"
    assert [frame["frame_id"] for frame in dataset["frames"]] == [1, 2]
    assert dataset["start_time"] == first["time"] == "2026-09-21T14:13:20+00:00"
    assert dataset["summary_by_device"]["n1:0:NVIDIA H100"]["avg_gpu_util"] == 48.5
    assert dataset["session_name"] == "night"


# -- perfetto ----------------------------------------------------------------------------------------------------------


def a_story():
    """Two ranks: steps, a collective that rank 1 never leaves, a capture, a finding."""
    both = {"job": "llama", "start_ticks": 7, "agent": "a"}
    made = list(a_job(ranks=2))
    for rank in (0, 1):
        made.append(Collective(
            **both, node="n0", seq=500 + rank, t=START, rx=START, capture="c", source="worker_server", rank=rank,
            pid=100 + rank, process_group=("0", "dp"), collective_seq_id=17, profiling_name="nccl:all_reduce",
            retired=rank == 0, time_created_ns=START + SECOND, time_discovered_started_ns=START + SECOND + 5,
            time_discovered_completed_ns=START + 2 * SECOND if rank == 0 else None,
        ))  # fmt: skip
    frames = (StackFrame("main", "train.py", 3), StackFrame("load", "data.py", 88))
    made.append(Stack(
        **both, node="n0", seq=502, t=START, rx=START, capture="c", sample=0, rank=1, pid=101, status="ok",
        began=START + SECOND, ended=START + SECOND + 900, os_thread_id=101, frames=frames,
    ))  # fmt: skip
    made.append(Finding(seq=503, agent="c", t=START + SECOND, rx=START, id="rank_missing", severity="error",
                        confidence="certain", text="rank 1 is late", first_seen=START))  # fmt: skip
    return made


@pytest.fixture
def trace(tmp_path):
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    found = perfetto.Trace()
    found.ParseFromString(exported(a_session(tmp_path, a_story()), "perfetto", tmp_path).read_bytes())
    return found


def named(trace):
    """Track uuid → (name of its parent, its name)."""
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet
              if packet.HasField("track_descriptor")}  # fmt: skip
    return {uuid: (tracks[one.parent_uuid].name if one.parent_uuid else "", one.name) for uuid, one in tracks.items()}


def test_perfetto_trace_is_valid_and_has_no_unknown_fields(trace):
    assert not trace.FindInitializationErrors()
    assert {packet.trusted_packet_sequence_id for packet in trace.packet} == {1}
    size = trace.ByteSize()
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == size, "every field is in Perfetto's schema"


def test_perfetto_trace_has_tracks_per_rank_and_counters_per_gpu(trace):
    tracks = set(named(trace).values())
    rank = "rank 1 of llama (n0, its own clock)"
    assert {(rank, "steps"), (rank, "collectives of dp"), (rank, "captures")} <= tracks
    assert ("n0 (its own clock)", "GPU 1 util_pct") in tracks and ("gconsole", "findings") in tracks
    units = {packet.track_descriptor.name: packet.track_descriptor.counter.unit_name for packet in trace.packet}
    assert units["GPU 0 power_w"] == "W"


def test_perfetto_trace_marks_simulated_nodes_and_has_gpu_timer_offsets(tmp_path):
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")
    head = {"node": "n1", "agent": "a", "rx": START, "t": START}
    node = Node(**head, seq=1, hostname="n1", boot_id="b", kernel="6", arch="x86_64", python="3.11", uid=1, pid=1,
                sample_interval_ms=1000, simulated=True)  # fmt: skip
    timer = GpuClock(**head, seq=2, index=0, uuid="GPU-a", ahead_ns=1234, bound_ns=900, drift_ppm=None)
    found = perfetto.Trace()
    found.ParseFromString(exported(a_session(tmp_path, [gpu(3), node, timer]), "perfetto", tmp_path).read_bytes())

    tracks = named(found)

    assert {parent for parent, _ in tracks.values() if parent} == {"SIM n1 (its own clock)"}
    values = {tracks[packet.track_event.track_uuid][1]: packet.track_event.double_counter_value
              for packet in found.packet if packet.track_event.type == 4}  # fmt: skip
    assert values["GPU 0 timer ahead_ns"] == 1234.0 and "GPU 0 timer drift_ppm" not in values


def test_collective_slices_share_a_flow_and_an_unfinished_one_stays_open(trace):
    begins = [packet for packet in trace.packet if packet.track_event.name == "nccl:all_reduce #17"]
    flows = {tuple(packet.track_event.flow_ids) for packet in begins}
    assert len(begins) == 2 and len(flows) == 1 and flows != {()}
    ends = {packet.track_event.track_uuid: packet.timestamp for packet in trace.packet if packet.track_event.type == 2}
    names = named(trace)
    ended = [names[track][0] for track in ends if names[track][1] == "collectives of dp"]
    assert ended == ["rank 0 of llama (n0, its own clock)"]


def test_perfetto_trace_has_a_slice_for_each_step(trace):
    steps = [(packet.track_event.name, packet.timestamp - START) for packet in trace.packet
             if packet.track_event.name.startswith("step ")]  # fmt: skip
    assert steps[:2] == [("step 1", SECOND), ("step 2", 2 * SECOND)] or ("step 1", SECOND) in steps


def test_several_steps_between_two_samples_are_one_named_slice(tmp_path):
    samples = [RankStat(job="j", rank=0, pid=1, start_ticks=1, state="moving", node="n", step=step, seq=step + 1,
                        t=START + at * SECOND, rx=START + at * SECOND)
               for at, step in ((0, 5), (4, 22), (8, 23))]  # fmt: skip
    data = exported(a_session(tmp_path, samples), "perfetto", tmp_path).read_bytes()

    assert b"steps 5 to 21" in data and b"step 22" in data and b"step 5" not in data.replace(b"steps 5 to 21", b"")


def test_range_without_records_is_an_error_that_names_it(tmp_path):
    session = a_session(tmp_path, [gpu(1), gpu(2, at=100)])

    with pytest.raises(click.UsageError, match=r"nothing was recorded from .* to .* \(local time\)"):
        run(session.path, "--from", "10s", "--to", "20s", "-o", tmp_path / "out.json")

    assert not (tmp_path / "out.json").exists()


def test_findings_are_instant_events_in_the_perfetto_trace(trace):
    (found,) = [packet for packet in trace.packet if packet.track_event.name == "rank_missing: rank 1 is late"]
    assert found.track_event.type == 3 and found.timestamp == START + SECOND


# -- html --------------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Collects the tags and attributes of an HTML page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def test_html_page_has_no_external_resources_and_no_active_content(tmp_path):
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    found = Finding(seq=1, rx=START, id="x", severity="error", confidence="certain", text=hostile, first_seen=START)
    session = a_session(tmp_path, [*a_job(), found])

    page = Tags()
    page.feed(exported(session, "html", tmp_path).read_text())

    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert hostile in page.text, "it is present as text"
    assert "svg" in page.tags and "4 GPUs" in page.text


def test_html_page_has_the_verdict_and_stacks_of_a_recorded_hang(tmp_path):
    import lzma
    from pathlib import Path

    packed = Path(__file__).parents[2] / "hangs/recordings/asynchronous.ndjson.xz"
    (tmp_path / "hang.ndjson").write_bytes(lzma.decompress(packed.read_bytes()))
    run(tmp_path / "hang.ndjson", "--format", "html", "-o", tmp_path / "hang.html")

    page = Tags()
    page.feed((tmp_path / "hang.html").read_text())

    assert "rank_missing" in page.text and "asynchronous.py:11" in page.text
    assert re.search(r"rank 2 [^\n]*asynchronous\.py:11[^\n]*\n\s*11 │ time\.sleep\(36000\)", page.text)


def test_gpu_curves_of_a_long_session_use_a_bounded_table():
    from gconsole.session.export.gpu_curves import SLOTS, Curves

    curves = Curves(["util_pct"])
    for second in range(3000):
        record = gpu(second + 1, at=second, util_pct=float(second >= 1500) * 100)
        curves.add(record, record.t)

    names, table = curves.table("util_pct")

    assert names == ["n1 GPU 0"] and table.shape[1] <= SLOTS and curves.seconds >= 3000
    assert table[0, 0] == 0 and table[0, -1] == 100


def test_samples_delivered_after_a_lost_connection_are_exported_in_the_second_they_were_taken(tmp_path):
    on_time = [gpu(n + 1, at=n, node="n2", uuid="GPU-b", util_pct=50.0) for n in range(60)]
    late = [gpu(n + 1, at=n, util_pct=float(n)) for n in range(60)]
    for record in late[20:40]:
        record.rx = gpu(1, at=40).rx
    session = a_session(tmp_path, sorted([*on_time, *late], key=lambda record: record.rx))

    frames = json.loads(exported(session, "gswarm", tmp_path).read_bytes())["frames"]

    assert [frame["gpu_util"] for frame in frames] == [[float(n), 50.0] for n in range(60)]
    page = exported(session, "html", tmp_path).read_text()
    assert page.count("<h2>util_pct") == 1


def test_samples_of_a_node_whose_clock_is_wrong_are_exported_by_arrival(tmp_path):
    records = [gpu(n + 1, at=n, util_pct=float(n)) for n in range(10)]
    for record in records:
        record.t -= 3 * 86_400 * SECOND
    frames = json.loads(exported(a_session(tmp_path, records), "gswarm", tmp_path).read_bytes())["frames"]

    assert frames[0]["time"] == datetime.fromtimestamp(START // SECOND, UTC).isoformat()
    assert len(frames) == 10


def test_curves_of_samples_sparser_than_their_columns_have_no_holes_but_keep_gaps():
    from gconsole.session.export.gpu_curves import Curves

    curves = Curves(["power_w"])
    for second in (*range(0, 60, 4), *range(100, 140, 4)):
        record = gpu(second + 1, at=second, power_w=100.0 + second)
        curves.add(record, record.t)

    [values] = curves.table("power_w")[1]

    unknown = [second for second, value in enumerate(values) if value != value]
    assert unknown == list(range(60, 100))
    assert values[5] == 104.0 and values[103] == 200.0


def test_plots_of_a_page_have_room_for_their_labels_and_a_key():
    import numpy as np

    from gconsole.session.export.html_page import heat_svg, line_svg

    name = "gpu-worker-0123.eu-central.example.org GPU 7"
    heat = heat_svg([name], np.array([[1e9, 5e9]]), "bytes/s")
    lines = [np.array([np.nan, 8.583e8, np.nan])] * 3
    curve = line_svg(lines, ("min", "median", "max"), 3, "bytes/s")

    place = float(re.search(rf'x="([\d.]+)"[^>]*>{re.escape(name)}<', heat)[1])
    assert place >= len(name) * 9 * 0.55, "the label ends there"
    assert ">1000M bytes/s<" in heat and ">5000M bytes/s<" in heat
    assert float(re.search(r'x="([\d.]+)"[^>]*>858M bytes/s<', curve)[1]) >= len("858M bytes/s") * 11 * 0.55
    assert re.search(r'd="M[\d.]+ [\d.]+h[\d.]+"', curve), "a single sample is visible"


def test_every_export_format_has_a_description():
    assert all(form.description for form in SESSION_FORMATS.values())


def test_rank_stat_without_a_step_adds_no_step_slices_to_the_trace(tmp_path):
    session = a_session(tmp_path, [RankStat(job="j", rank=0, pid=1, start_ticks=1, state="idle", node="n", rx=START)])
    assert b"step" not in exported(session, "perfetto", tmp_path).read_bytes()


def test_speedscope_export_has_the_frames_of_the_capture(tmp_path):
    profile = json.loads(exported(a_session(tmp_path, a_story()), "speedscope", tmp_path).read_bytes())

    assert {"load", "main"} <= {frame["name"] for frame in profile["shared"]["frames"]}


def test_speedscope_export_without_captured_stacks_is_an_error(tmp_path):
    with pytest.raises(SessionError, match="no stacks were captured"):
        exported(a_session(tmp_path, a_job()), "speedscope", tmp_path)


def test_export_command_offers_every_format():
    from gconsole.cli.export import _FORMATS

    assert sorted(_FORMATS) == sorted(SESSION_FORMATS)


def test_parquet_export_of_a_compacted_session_copies_its_files_and_refuses_damage(tmp_path):
    session = a_session(tmp_path, [*a_job(), gpu(999, node="late")])
    SESSION_FORMATS["parquet"].write_folder(slice_session(session.path), tmp_path / "before")
    done = compact(session)
    files = SESSION_FORMATS["parquet"].write_folder(slice_session(session.path), tmp_path / "after")

    assert {path.relative_to(tmp_path / "after").as_posix() for path in files} == {part.path for part in done.parts}
    before, after = (
        duckdb.sql(
            f"SELECT * EXCLUDE (hour, t_utc, rx_utc) FROM '{tmp_path / name}/gpu/*/*.parquet' ORDER BY ALL"
        ).fetchall()
        for name in ("before", "after")
    )
    assert before == after and len(after) == sum(part.rows for part in done.parts if part.table == "gpu")

    (session.parquet_folder / done.parts[0].path).write_bytes(b"broken")
    (again, *_) = SESSION_FORMATS["parquet"].write_folder(slice_session(session.path), tmp_path / "again")
    assert again.read_bytes()[:4] == b"PAR1", "its segment answers instead"
    session.segments()[0].unlink()
    with pytest.raises(SessionError, match="damaged"):
        SESSION_FORMATS["parquet"].write_folder(slice_session(session.path), tmp_path / "never")


def test_html_page_lists_gaps_with_their_counts(tmp_path):
    gaps = [Gap(node="n1", source="link", reason="no agent for 12 s: <b>", count=11, rx=START + n) for n in range(2)]
    session = a_session(tmp_path, [*a_job(), *gaps])

    with io.BytesIO() as out:
        SESSION_FORMATS["html"].write(slice_session(session.path), out)
        page = out.getvalue().decode()

    assert "Gaps: 22 records or ticks are missing" in page
    assert "<td>n1<td>22<td>link<td>no agent for 12 s: &lt;b&gt;" in page
