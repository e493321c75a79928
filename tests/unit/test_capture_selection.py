"""Jobs, ranks and processes that a user selects for a capture."""

import pytest

from gconsole.core.control import CaptureRequest, PeerProcess
from gconsole.core.store import Store
from gconsole.monitor.capture_selection import CaptureSelection, NothingSelected, parse_process
from gconsole.monitor.hang import Diagnosis
from gconsole.records import NodeState, Rank

ORDER = CaptureRequest("c")


@pytest.fixture
def store():
    store = Store()
    store.apply([NodeState(node=f"node{number}", state="ok", rx=1) for number in (1, 2)])
    store.apply([
        Rank(node=f"node{rank % 2 + 1}", agent="a", seq=1, t=1, mono=1, rx=1, job=job, rank=rank, pid=first + rank,
             start_ticks=7, world_size=4, source="environ", status="exited" if rank == 3 else "present")
        for job, first in (("llama@10.0.0.1:29500", 100), ("eval-17", 200))
        for rank in range(4)
        if (job, rank) != ("eval-17", 2)
    ])  # fmt: skip
    return store


def test_without_a_selection_everything_is_captured(store):
    assert CaptureSelection().apply(ORDER, store) == ORDER


def test_job_is_selected_by_a_part_of_its_name(store):
    assert CaptureSelection(jobs=("llama",)).apply(ORDER, store).jobs == ("llama@10.0.0.1:29500",)
    order = CaptureSelection(jobs=("llama", "eval")).apply(Diagnosis(), store)
    assert order.jobs == ("eval-17", "llama@10.0.0.1:29500")


def test_ranks_are_selected_by_number_within_the_selected_jobs(store):
    order = CaptureSelection(jobs=("llama",), ranks=frozenset({0, 2})).apply(ORDER, store)
    assert order.only == (("node1", 100), ("node1", 102))


def test_process_is_captured_alone_or_with_ranks(store):
    alone = CaptureSelection(processes=(("node2", 4242),)).apply(ORDER, store)
    assert (alone.only, alone.peers) == ((), (PeerProcess("node2", 4242, "node2:4242", 0),))
    beside = CaptureSelection(ranks=frozenset({1}), processes=(("node2", 4242),)).apply(ORDER, store)
    assert beside.only and beside.peers


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (CaptureSelection(jobs=("gpt",)), "no job has gpt in its name; jobs: eval-17, llama@10.0.0.1:29500"),
        (CaptureSelection(ranks=frozenset({3})), "no live rank 3"),
        (CaptureSelection(processes=(("node9", 1),)), "no node node9; nodes: node1, node2"),
    ],
    ids=["job", "rank that has exited", "node"],
)
def test_what_does_not_exist_is_an_error_that_names_what_does(store, selection, words):
    with pytest.raises(NothingSelected, match=words):
        selection.apply(ORDER, store)


@pytest.mark.parametrize("text", ["", "node1", "node1:", ":7", "node1:x", "node1:²", "node1:-1", "node1:99999999"])
def test_process_without_node_and_pid_is_refused(text):
    with pytest.raises(ValueError, match="NODE:PID"):
        parse_process(text)


def test_process_on_a_node_with_an_ipv6_address_is_accepted():
    assert parse_process("fd00::1:77") == ("fd00::1", 77)
