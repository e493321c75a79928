"""Parsing of Flight Recorder dumps of all versions, with their irregularities."""

import json
import pickle

import pytest
from examples import examples
from fake_proc import check
from hypothesis import given, settings
from hypothesis import strategies as st

from comms.documents import RECORDED, a_dump, an_entry, waiting
from gconsole_remote.comms import flight_recorder

HEAD = {"capture": "c", "source": "fr_dump", "job": "j", "rank": 0}


def recorded(name):
    return flight_recorder.parse((RECORDED / name).read_bytes())


def fits(parsed):
    """Whether every value in a dump fits into a record."""
    for kind, lines in (("collective", parsed.entries), ("pg_status", parsed.groups)):
        for line in lines:
            check(kind, {**line, **HEAD})
    return True


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.*[ne]")), ids=lambda path: path.name)
def test_every_recorded_dump_becomes_records(path):
    parsed = flight_recorder.parse(path.read_bytes())
    assert parsed.version == "2.10"
    assert parsed.problems == []
    assert parsed.entries
    assert fits(parsed)


@pytest.mark.parametrize("name", ["missing.0", "missing.1", "order.1", "subgroup.0"])
def test_json_and_pickle_dumps_are_equal_except_for_frames(name):
    by_json, by_pickle = recorded(f"{name}.json"), recorded(f"{name}.pickle")
    assert by_json.groups == by_pickle.groups
    assert [{**entry, "frames": None} for entry in by_pickle.entries] == by_json.entries


def test_the_frames_of_a_pickle_are_outermost_first():
    frames = recorded("order.1.pickle").entries[-1]["frames"]
    assert [frame["function"] for frame in frames] == ["<module>", "wrapper", "broadcast"]
    assert frames[0]["file"] == "/job/recorded.py"


def test_gloo_entry_is_scheduled_and_not_retired_while_it_waits():
    last = recorded("missing.0.json").entries[-1]
    assert (last["state"], last["retired"]) == ("scheduled", False)
    assert all(entry["retired"] for entry in recorded("missing.1.json").entries)


def test_numeric_strings_in_json_are_parsed_and_minus_one_is_none():
    [group] = recorded("missing.0.json").groups
    assert group["last_enqueued_collective"] == 3
    assert group["last_started_collective"] is None
    assert recorded("missing.0.pickle").groups == [group]


def test_timestamps_of_events_that_never_occurred_are_none_in_both_formats():
    for name in ("missing.0.json", "missing.0.pickle"):
        assert recorded(name).entries[0]["time_discovered_completed_ns"] is None


def test_unnamed_gloo_group_is_the_default_group():
    [group] = recorded("missing.0.json").groups
    assert (group["process_group"], group["ranks"]) == (["0", "default_pg"], [0, 1, 2])


def test_ranks_of_an_unnamed_gloo_group_are_ignored_with_a_second_group():
    groups = recorded("subgroup.0.json").groups
    assert [(group["process_group"], group["ranks"]) for group in groups] == [
        (["0", "default_pg"], None), (["1", "pairs"], None),
    ]  # fmt: skip


def test_the_ranks_of_a_nameless_group_are_never_given_to_a_subgroup():
    dump = a_dump([waiting(1, process_group=["1", "pairs"], pg_id=1)])
    dump["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[0, 1, 2]"}}
    dump["pg_status"] = {}
    by_name = {group["process_group"][0]: group["ranks"] for group in flight_recorder.parse_document(dump).groups}
    assert by_name == {"1": None}


def test_gloo_records_neither_sends_nor_receives():
    assert {entry["profiling_name"] for entry in recorded("p2p.0.json").entries} == {"gloo:all_reduce"}


def test_wrapped_buffer_is_recognized_by_its_oldest_record_id():
    parsed = recorded("wrapped.0.json")
    assert parsed.groups[0]["oldest_record_id"] == 9
    assert parsed.held == 6


def test_ranks_of_a_group_are_read_as_text_and_as_list():
    for ranks in ("[0, 1, 2]", [0, 1, 2], "[2,1,0]", [2, 0, 1]):
        assert flight_recorder.parse_document(a_dump([], ranks=ranks)).groups[0]["ranks"] == [0, 1, 2]


@pytest.mark.parametrize("version", ["1.0", "1.5", "2.0", "2.4", "2.5", "2.9", "2.10", "3.0", None])
def test_older_and_newer_formats_are_read_by_the_same_rules(version):
    """Synthetic: format 1.x has `seq_id` and only the group's name; later formats may have more fields."""
    old = {
        "id": 4, "pg_id": 0, "seq_id": 5, "profiling_name": "nccl:all_reduce", "state": "started",
        "input_sizes": [[64]], "output_sizes": [[64]], "time_created_ns": 7, "process_group": "0", "novelty": {"x": 1},
    }  # fmt: skip
    parsed = flight_recorder.parse_document({"version": version, "entries": [old]})
    [entry] = parsed.entries
    assert (entry["collective_seq_id"], entry["record_id"], entry["process_group"]) == (5, 4, ["0", ""])
    assert entry["retired"] is None, "unknown in a format without it"
    assert fits(parsed)


def test_unknown_operation_is_kept():
    parsed = flight_recorder.parse_document(a_dump([waiting(1, "hccl:all_shuffle_v2")]))
    assert parsed.entries[0]["profiling_name"] == "hccl:all_shuffle_v2"


def test_group_without_operations_is_listed():
    dump = a_dump([an_entry(1)])
    dump["pg_config"]["7"] = {"name": "7", "desc": "tp", "ranks": "[0, 1]"}
    names = [group["process_group"] for group in flight_recorder.parse_document(dump).groups]
    assert names == [["0", "default_pg"], ["7", "tp"]]


def test_group_without_buffered_operations_gets_its_name_from_pg_config():
    dump = a_dump([an_entry(1)])
    dump["pg_config"]["7"] = {"name": "7", "desc": "tp", "ranks": "[0, 1]"}
    dump["pg_status"]["1"] = {"last_enqueued_collective": 4}
    by_id = {
        group["pg_id"]: (group["process_group"], group["ranks"])
        for group in flight_recorder.parse_document(dump).groups
    }
    assert by_id[1] == (["7", "tp"], [0, 1])


@pytest.mark.slow
def test_pending_operation_is_kept_however_many_operations_follow():
    entries = [waiting(1)] + [an_entry(seq) for seq in range(2, 3000)]
    parsed = flight_recorder.parse_document(a_dump(entries))
    assert parsed.held == 2999
    assert len(parsed.entries) <= 2 * flight_recorder.MAX_ENTRIES
    assert parsed.entries[0]["collective_seq_id"] == 1


def test_each_group_keeps_its_newest_operations_beside_a_busy_one():
    busy = [an_entry(seq, record_id=seq + 1) for seq in range(1, 2000)]
    quiet = [an_entry(1, record_id=0, process_group=["7", "tp"], pg_id=1)]
    kept = flight_recorder.parse_document(a_dump(quiet + busy)).entries
    assert kept[0]["process_group"] == ["7", "tp"]


def test_malformed_parts_are_skipped_and_reported():
    dump = a_dump([an_entry(1)])
    dump["entries"] += ["text", None, {"no": "name"}]
    dump["pg_status"]["x"] = {}
    dump["pg_config"]["y"] = 5
    parsed = flight_recorder.parse_document(dump)
    assert len(parsed.entries) == 1
    assert parsed.problems == [
        "entry 1 is malformed", "3 entries are malformed", "pg_config of y is malformed", "pg_status of x is malformed",
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"   ", b"[]", b"{}", b"{", b"\x80\x02.", b"nonsense", b'{"entries": ', b"null"])
def test_invalid_dump_is_rejected_with_a_reason(data):
    with pytest.raises(flight_recorder.BadDump) as error:
        flight_recorder.parse(data)
    assert str(error.value)


def test_text_of_a_dump_is_printable_and_bounded():
    parsed = flight_recorder.parse_document(a_dump([waiting(1, "nccl:\x1b[31m" + "x" * 9999)]))
    assert parsed.entries[0]["profiling_name"].isprintable()
    assert len(parsed.entries[0]["profiling_name"]) <= 256


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from([*an_entry(1), "frames", "duration_ms", "pg_name", "seq_id"])


@pytest.mark.slow
@given(st.lists(st.dictionaries(FIELDS, ANYTHING) | ANYTHING, max_size=4), ANYTHING, ANYTHING, ANYTHING)
@settings(max_examples=examples(300), deadline=None)
def test_arbitrary_dump_content_parses_into_valid_records(entries, config, status, version):
    entries = [{**an_entry(1), **entry} if isinstance(entry, dict) else entry for entry in entries]
    parsed = flight_recorder.parse_document(
        {"entries": entries, "pg_config": config, "pg_status": status, "version": version}
    )
    assert fits(parsed)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_corrupted_json_dump_gives_valid_records_or_a_reason(data):
    text = bytearray((RECORDED / "mixed.0.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert fits(flight_recorder.parse(bytes(text)))
    except flight_recorder.BadDump as error:
        assert str(error)


def test_dumps_with_pickle_protocol_2_and_4_equal_the_json_dump():
    dump = a_dump([an_entry(1)])
    for protocol in (2, 4):
        assert (
            flight_recorder.parse(pickle.dumps(dump, protocol)).entries
            == flight_recorder.parse(json.dumps(dump).encode()).entries
        )
