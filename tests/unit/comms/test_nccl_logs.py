"""Launched and completed operations from the logs of NCCL and Inspector. Synthetic, after NCCL's sources."""

import pytest
from examples import examples
from fake_proc import check
from hypothesis import given, settings
from hypothesis import strategies as st

from comms.documents import NCCL_LOG, an_inspector_line
from gconsole_remote.comms import nccl_log

HEAD = {"capture": "c", "job": "j", "rank": 0}


def fits(entries, source):
    for entry in entries:
        check("collective", {**{key: value for key, value in entry.items() if key != "host"}, **HEAD, "source": source})
    return True


def test_launch_is_identified_by_the_shared_communicator_hash():
    first, second, *_ = nccl_log.parse_log(NCCL_LOG.encode()).entries
    assert first["process_group"] == ["0x8c1f", ""]
    assert (first["collective_seq_id"], second["collective_seq_id"]) == (9, 10), "opCount is hexadecimal"
    assert (second["profiling_name"], second["input_numel"], second["input_dtypes"]) == (
        "nccl:AllReduce", 2048, ["BFloat16"],
    )  # fmt: skip
    assert (first["host"], first["pid"], first["group_rank"], first["group_size"]) == ("node1", 4711, 0, 2)


def test_launch_has_its_reduction_and_its_stream():
    entries = nccl_log.parse_log(NCCL_LOG.replace("op 0 root 0", "op 4 root 0", 1).encode()).entries
    assert [entry["red_op"] for entry in entries[:3]] == ["avg", "sum", None], "a send reduces nothing"
    assert entries[1]["stream"] == "0x55"
    assert fits(entries, "nccl_log")


def test_send_is_named_as_in_torch_and_has_no_collective_seq_id():
    send = nccl_log.parse_log(NCCL_LOG.encode()).entries[2]
    assert (send["profiling_name"], send["is_p2p"], send["collective_seq_id"]) == ("nccl:send 0->1", True, None)


def test_communicator_without_an_init_line_in_the_log_has_no_process_group():
    parsed = nccl_log.parse_log(NCCL_LOG.encode())
    assert parsed.entries[3]["process_group"] is None
    assert parsed.bad == 1
    assert fits(parsed.entries, "nccl_log")


def test_communicator_created_by_comm_split_is_recognized():
    line = NCCL_LOG.replace("ncclCommInitRank", "[Rank 0] ncclCommSplit").replace("COMPLETE", "START")
    assert nccl_log.parse_log(line.encode()).entries[0]["process_group"] == ["0x8c1f", ""]


def test_only_the_newest_launches_are_kept():
    line = NCCL_LOG.splitlines()[1]
    log = "\n".join(line.replace("opCount 9", f"opCount {seq:x}") for seq in range(100))
    assert [entry["collective_seq_id"] for entry in nccl_log.parse_log(log.encode(), limit=3).entries] == [97, 98, 99]


def test_inspector_log_gives_the_duration_of_completed_operations():
    lines = "\n".join([an_inspector_line(3), "", an_inspector_line(4, took_us=750.0), an_inspector_line(5)[:40]])
    parsed = nccl_log.parse_inspector(lines.encode())
    assert [(entry["collective_seq_id"], entry["duration_ms"]) for entry in parsed.entries] == [(3, 0.5), (4, 0.75)]
    one = parsed.entries[0]
    assert (one["process_group"], one["msg_size_bytes"], one["retired"], one["version"]) == (
        ["0x8c1f", "dp"], 1 << 20, True, "v4.0",
    )  # fmt: skip
    assert parsed.bad == 0, "the last line is still being written"
    assert fits(parsed.entries, "inspector")


def test_malformed_inspector_line_is_counted():
    parsed = nccl_log.parse_inspector("\n".join([an_inspector_line(1), "{]", an_inspector_line(2)]).encode())
    assert (len(parsed.entries), parsed.bad) == (2, 1)


def test_inspector_sends_include_their_peer():
    line = an_inspector_line(1).replace('"coll_perf"', '"p2p_perf"').replace('"coll_', '"p2p_')
    for old, new in (('"coll"', '"p2p"'), ('"AllReduce"', '"Send"'), ('"p2p_sn"', '"p2p_peer": 1, "p2p_sn"')):
        line = line.replace(old, new)
    [one] = nccl_log.parse_inspector(line.encode()).entries
    assert (one["profiling_name"], one["is_p2p"], one["p2p_seq_id"]) == ("nccl:send 0->1", True, 1)


@pytest.mark.slow
@given(st.lists(st.sampled_from([*NCCL_LOG.splitlines(), an_inspector_line(1), "x"]), max_size=6), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_corrupted_logs_give_only_valid_records(lines, data):
    text = bytearray("\n".join(lines).encode())
    for _ in range(data.draw(st.integers(0, 8)) if text else 0):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    assert fits(nccl_log.parse_log(bytes(text)).entries, "nccl_log")
    assert fits(nccl_log.parse_inspector(bytes(text)).entries, "inspector")
