"""Output lines of many ranks merged into one stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gconsole.core.store import Store
from gconsole.launch.output_fold import JobOutput, LineFold, OutputLine, in_order
from gconsole.launch.state import job_status
from gconsole.records import Job, Log


def folded(lines, writers, everything=True):
    fold = LineFold(writers, 1.0)
    for line in in_order([OutputLine(writer, text) for writer, texts in lines.items() for text in texts]):
        fold.add(line.writer, line.text, 0.0)
    return fold.format_due(0.0, everything=everything)


def test_line_written_by_all_ranks_is_printed_once():
    assert folded({rank: ["loss 2.31"] for rank in range(64)}, 64) == ["[0-63] loss 2.31"]


def test_lines_of_one_rank_are_never_reordered_for_folding():
    lines = {0: ["step 1", "step 2"], 1: ["step 1", "a warning", "step 2"]}
    assert folded(lines, 2) == ["[0-1] step 1", "[0] step 2", "[1] a warning", "[1] step 2"]


def test_line_waits_for_other_ranks_only_until_the_timeout():
    fold = LineFold(2, 1.0)
    fold.add(0, "ready", 0.0)
    assert fold.format_due(0.5) == []
    fold.add(1, "ready", 0.6)
    assert fold.format_due(0.6) == ["[0-1] ready"]
    fold.add(0, "alone", 1.0)
    assert fold.format_due(2.1) == ["[0] alone"]


def test_repeated_line_of_one_rank_is_printed_twice():
    assert folded({0: ["x", "x"], 1: ["x"]}, 2) == ["[0-1] x", "[0] x"]


def test_launchers_are_named_by_their_nodes():
    assert folded({"node1": ["bad"], "node2": ["bad"]}, 4) == ["[node[1-2]] bad"]


@pytest.mark.slow
@given(st.dictionaries(st.integers(0, 5), st.lists(st.sampled_from("abc"), max_size=8)))
def test_folding_keeps_every_line_once_and_in_order_per_rank(lines):
    folded_lines = folded(lines, 6)
    for rank, written in lines.items():
        seen = []
        for line in folded_lines:
            who, text = line[1:].split("] ", 1)
            ranks = set()
            for part in who.split(","):
                low, _, high = part.partition("-")
                ranks |= set(range(int(low), int(high or low) + 1))
            if rank in ranks:
                seen.append(text)
        assert seen == written


def test_only_output_of_the_job_from_its_own_nodes_is_collected():
    store = Store()
    store.apply([Job(
        node="n1", job="train", command=("t.py",), launcher="env", nodes=("n1",), procs_per_node=2, gpus_per_node=0,
        world_size=2, master_addr="", master_port=1, created=1,
    )])  # fmt: skip
    view = job_status(store, "train")
    assert view is not None
    logs = [
        Log(node=node, source=source, job=job, rank=rank, text=f"{node} {source} {job}\nend")
        for node, source, job, rank in (
            ("n1", "job", "train", 0), ("n1", "job", "train", 1), ("n1", "job", "train", None),
            ("n2", "job", "train", 0), ("n1", "job", "eval", 0), ("n1", "kernel", "train", 0),
        )
    ]  # fmt: skip
    everything, one_rank = JobOutput(view), JobOutput(view, (1,))
    for output in (everything, one_rank):
        output.collect(logs)
    lines = ["n1 job train", "end"]
    assert everything.pop_lines() == [OutputLine(writer, line) for line in lines for writer in (0, 1)] + [
        OutputLine("n1", line) for line in lines
    ]
    assert one_rank.pop_lines() == [OutputLine(1, line) for line in lines]
    assert one_rank.pop_lines() == []


def test_lines_are_in_the_order_written_and_streams_are_told_apart():
    out = [OutputLine(0, "a", "stdout", 10), OutputLine(0, "c", "stdout", 30)]
    err = [OutputLine(0, "b", "stderr", 20), OutputLine(1, "b", "stderr", 21)]
    fold = LineFold(2, 1.0)
    for line in in_order(out + err):
        fold.add(line.writer, line.text, 0.0, stream=line.stream, at_ns=line.at_ns)
    fold.add(0, "b", 0.0, stream="stdout")
    assert [(line.who, line.text, line.at_ns) for line in fold.lines(0.0, everything=True)] == [
        ("0", "a", 10), ("0-1 stderr", "b", 20), ("0", "c", 30), ("0", "b", None)
    ]  # fmt: skip


def test_clock_that_steps_back_does_not_reorder_the_lines_of_a_stream():
    lines = [OutputLine(0, "first", "stdout", 50), OutputLine(0, "second", "stdout", 40), OutputLine(0, "third")]
    assert in_order(lines[:2]) == lines[:2]


def test_instants_of_a_record_cover_its_lines_and_no_more():
    store = Store()
    store.apply([Job(
        node="n1", job="train", command=("t.py",), launcher="env", nodes=("n1",), procs_per_node=1, gpus_per_node=0,
        world_size=1, master_addr="", master_port=1, created=1,
    )])  # fmt: skip
    output = JobOutput(job_status(store, "train"))
    output.collect([Log(node="n1", source="job", job="train", rank=0, text="a\nb\nc", stream="stdout",
                        written_lines=(2, 10**15), written_at=(5, 7))])  # fmt: skip
    assert [line.at_ns for line in output.pop_lines()] == [5, 5, 7]
