"""Selection of what a session keeps: nodes, kinds, metrics, rate; records needed for context are always kept."""

import tracemalloc

import pytest

from gconsole.core.control import Selection
from gconsole.records import Gpu, GpuEvent, Host, Log, Mark, Node, NodeState, Rank, RankStat
from gconsole.records.kinds import kind_of
from gconsole.session.format.layout import SessionError
from gconsole.session.record.selection import RecordSelector, select

SECOND = 1_000_000_000


def node(name):
    return Node(node=name, hostname=name, boot_id="b", kernel="k", arch="x", python="3", uid=0, pid=1,
                sample_interval_ms=1000)  # fmt: skip


def kinds(selection, *records):
    return [kind_of(record) for record in RecordSelector(selection)(records)]


def test_without_a_selection_everything_is_kept():
    assert kinds(Selection(), Host(node="a"), Log(source="agent", text="x")) == ["host", "log"]


def test_node_selection_keeps_records_of_those_nodes_and_of_the_console():
    selected = RecordSelector(Selection(nodes=("a",)))
    assert selected([Host(node="a"), Host(node="b"), Mark(text="x")]) == [Host(node="a"), Mark(text="x")]


def test_metric_selection_drops_other_metrics_and_keeps_events():
    selection = select(metrics=("gpu",))
    records = (
        Gpu(node="a", index=0, uuid="u"), Host(node="a"), node("a"), NodeState(node="a", state="ok"),
        GpuEvent(node="a", event="xid", severity="error", text="x"),
        RankStat(node="a", job="j", rank=0, pid=1, start_ticks=1, state="moving"),
        Rank(node="a", job="j", rank=0, pid=1, start_ticks=1, source="environ"),
    )  # fmt: skip
    assert kinds(selection, *records) == ["gpu", "node", "node_state", "gpu_event", "rank"]


def test_kind_selection_keeps_those_kinds_and_node_records():
    assert kinds(select(kinds=("gpu",)), Gpu(node="a", index=0, uuid="u"), Log(source="x", text="x"), node("a")) == [
        "gpu", "node"
    ]  # fmt: skip


def test_every_s_keeps_one_sample_per_device_and_interval_and_all_events():
    selected = RecordSelector(select(every_s=10.0))
    kept = []
    for second in range(0, 31):
        mono = second * SECOND
        cards = [Gpu(node="a", index=0, uuid="u", mono=mono), Gpu(node="a", index=1, uuid="v", mono=mono)]
        kept += selected([*cards, Log(source="kernel", text=str(second), mono=mono)])
    cards = [record for record in kept if isinstance(record, Gpu)]
    assert [record.mono // SECOND for record in cards if record.index == 0] == [0, 10, 20, 30]
    assert sum(isinstance(record, Log) for record in kept) == 31


def test_sampling_interval_restarts_after_a_node_reboots():
    selected = RecordSelector(select(every_s=10.0))
    assert selected([Host(node="a", mono=500 * SECOND)])
    assert selected([Host(node="a", mono=1 * SECOND)])


def test_unknown_metric_is_rejected_with_the_valid_metrics():
    with pytest.raises(SessionError, match=r"gpux.*metrics: gpu"):
        select(metrics=("gpux",))


@pytest.mark.slow
def test_sampling_state_of_ended_processes_is_freed():
    selected = RecordSelector(select(every_s=10.0))

    def stat(second, pid):
        at = second * SECOND
        return RankStat(node="a", job="j", rank=0, pid=pid, start_ticks=1, state="moving", mono=at, rx=at)

    kept = [record for second in range(600) for record in selected([stat(second, 1)])]
    assert [record.mono // SECOND for record in kept] == list(range(0, 600, 10)), "a remaining process keeps its rate"
    held = []
    tracemalloc.start()
    for hour in range(1, 4):
        for second in range(hour * 3600, (hour + 1) * 3600):
            selected([stat(second, second)])
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[2] - held[0] < 50_000, "bytes; 7,200 retained processes need half a million"


@pytest.mark.parametrize(
    ("gpus", "kept"),
    [
        (("1",), {("node1", 1), ("node2", 1)}),
        (("node2:0-1",), {("node2", 0), ("node2", 1)}),
        (("0", "node1:2"), {("node1", 0), ("node2", 0), ("node1", 2)}),
    ],
)
def test_chosen_gpus_are_kept_and_all_that_is_not_about_a_gpu(gpus, kept):
    records = [
        *(Gpu(node=node, index=index, uuid=f"GPU-{index}") for node in ("node1", "node2") for index in range(3)),
        Log(node="node1", source="agent", severity="info", text="hello"),
    ]

    selected = RecordSelector(select(gpus=gpus))(records)

    assert {(record.node, record.index) for record in selected if isinstance(record, Gpu)} == kept
    assert [type(record) for record in selected][-1] is Log
