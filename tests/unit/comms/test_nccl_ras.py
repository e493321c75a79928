"""Parsing of NCCL RAS answers in all known formats. Synthetic, after NCCL's sources."""

import json

import pytest
from examples import examples
from fake_proc import check
from hypothesis import given, settings
from hypothesis import strategies as st

from comms.documents import RAS_TEXT, a_missing_ras_rank, a_ras_answer, a_ras_rank
from gconsole_remote.comms import nccl_ras

HEAD = {"capture": "c", "source": "ras", "job": "j", "rank": None}


def fits(reply):
    for line in reply.groups:
        check("pg_status", {**line, **HEAD})
    return True


def test_counts_and_state_of_every_rank_are_read():
    reply = nccl_ras.parse(a_ras_answer([a_ras_rank(0), a_ras_rank(1, count=6)]))
    assert reply.version == "2.30.7"
    assert [(group["group_rank"], group["op_counts"]["AllReduce"], group["group_state"]) for group in reply.groups] == [
        (0, 7, "running"), (1, 6, "running"),
    ]  # fmt: skip
    assert (reply.groups[1]["host"], reply.groups[1]["pid"], reply.groups[1]["group_size"]) == ("10.0.0.2", 101, 2)
    assert not reply.repaired
    assert fits(reply)


@pytest.mark.parametrize("missing", [1, 3])
def test_missing_comma_of_nccl_2_28_9_is_repaired(missing):
    data = a_ras_answer([a_ras_rank(0)], [a_missing_ras_rank(at, dead=True) for at in range(1, 1 + missing)], "2.28.9")
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(data)
    reply = nccl_ras.parse(data)
    assert reply.repaired
    assert [group["group_state"] for group in reply.groups] == ["running"] + ["considered_dead"] * missing


def test_missing_rank_that_is_not_dead_is_unresponsive():
    reply = nccl_ras.parse(a_ras_answer([a_ras_rank(0)], [a_missing_ras_rank(1, dead=False)]))
    assert reply.groups[1]["group_state"] == "unresponsive"


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"async_error": 6}, "error 6"),
        ({"init_state": 2}, "error 2"),
        ({"init_state": 7}, "init"),
        ({"abort_flag": True}, "abort"),
        ({"finalize_called": True}, "finalize"),
        ({}, "running"),
    ],
)
def test_status_flags_map_to_the_state_that_ras_prints(status, state):
    rank = a_ras_rank(0)
    rank["status"].update(status)
    assert nccl_ras.parse(a_ras_answer([rank])).groups[0]["group_state"] == state


def test_process_unknown_to_ras_has_no_host_and_no_pid():
    reply = nccl_ras.parse(a_ras_answer([a_ras_rank(0, host="unknown", pid=-1)]))
    assert (reply.groups[0]["host"], reply.groups[0]["pid"]) == (None, None)


def test_text_before_the_json_is_skipped():
    assert nccl_ras.parse(b"OK\n" + a_ras_answer([a_ras_rank(0)])).groups


def test_text_reply_gives_records_for_outliers_only():
    reply = nccl_ras.parse(RAS_TEXT)
    assert reply.version == "2.24.3"
    silent, behind = reply.groups
    assert (silent["group_rank"], silent["pid"], silent["host"], silent["group_state"]) == (
        3, 203, "10.0.0.2", "unresponsive",
    )  # fmt: skip
    assert (behind["group_rank"], behind["op_counts"]) == (2, {"AllReduce": 11})
    assert behind["process_group"] == ["0x8c1f", ""]
    assert reply.problems == ["AllReduce of 0x8c1f: 3 ranks are at 12"]
    assert fits(reply)


def test_text_with_several_ranks_at_one_count_gives_each_that_count():
    text = RAS_TEXT.replace(
        b"  Rank 2 has launched up to operation 11 -- GPU 0 managed by process 202 on node 10.0.0.2\n",
        b"  2 ranks have not launched any operations\n"
        b"  Rank 1 -- GPU 0 managed by process 201 on node 10.0.0.1\n  Rank 2 -- [process information not found]\n",
    )
    counted = [group for group in nccl_ras.parse(text).groups if group["op_counts"]]
    assert [(one["group_rank"], one["op_counts"], one["pid"]) for one in counted] == [
        (1, {"AllReduce": 0}, 201), (2, {"AllReduce": 0}, None),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"hello", b'{"communicators": ', b"\xff\xfe", b'{"communicators": 3'])
def test_invalid_ras_reply_is_rejected_with_a_reason(data):
    with pytest.raises(nccl_ras.BadRasResponse) as error:
        nccl_ras.parse(data)
    assert str(error.value)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_corrupted_ras_reply_gives_valid_records_or_a_reason(data):
    whole = data.draw(st.sampled_from([
        RAS_TEXT, a_ras_answer([a_ras_rank(0)], [a_missing_ras_rank(1, dead=True)]),
        a_ras_answer([a_ras_rank(0)], [a_missing_ras_rank(1, dead=True)], "2.28.9"),
    ]))  # fmt: skip
    text = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert fits(nccl_ras.parse(bytes(text[: data.draw(st.integers(0, len(text)))])))
    except nccl_ras.BadRasResponse as error:
        assert str(error)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
KEYS = st.sampled_from(["hash", "size", "ranks", "missing_ranks", "rank", "status", "collective_counts", "host", "pid"])
TABLES = st.recursive(
    ANYTHING, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=20
)


@pytest.mark.slow
@given(st.lists(TABLES, max_size=3) | TABLES)
@settings(max_examples=examples(300), deadline=None)
def test_arbitrary_communicators_parse_into_valid_records(communicators):
    assert fits(nccl_ras.parse(json.dumps({"communicators": communicators, "nccl_version": "3.0"}).encode()))
