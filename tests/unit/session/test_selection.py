"""What a session keeps: nodes, kinds, families of figures, a rate; what makes sense of the rest is always there."""

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


def test_nodes_are_chosen_by_name_and_the_consoles_own_words_stay():
    selected = RecordSelector(Selection(nodes=("a",)))
    assert selected([Host(node="a"), Host(node="b"), Mark(text="x")]) == [Host(node="a"), Mark(text="x")]


def test_metrics_leave_out_other_figures_but_no_event():
    selection = select(metrics=("gpu",))
    records = (
        Gpu(node="a", index=0, uuid="u"), Host(node="a"), node("a"), NodeState(node="a", state="ok"),
        GpuEvent(node="a", event="xid", severity="error", text="x"),
        RankStat(node="a", job="j", rank=0, pid=1, start_ticks=1, state="moving"),
        Rank(node="a", job="j", rank=0, pid=1, start_ticks=1, source="environ"),
    )  # fmt: skip
    assert kinds(selection, *records) == ["gpu", "node", "node_state", "gpu_event", "rank"]


def test_kinds_are_just_those_and_what_says_whose_they_are():
    assert kinds(select(kinds=("gpu",)), Gpu(node="a", index=0, uuid="u"), Log(source="x", text="x"), node("a")) == [
        "gpu", "node"
    ]  # fmt: skip


def test_a_rate_keeps_one_figure_of_each_thing_in_so_long_and_every_event():
    selected = RecordSelector(select(every_s=10.0))
    kept = []
    for second in range(0, 31):
        mono = second * SECOND
        cards = [Gpu(node="a", index=0, uuid="u", mono=mono), Gpu(node="a", index=1, uuid="v", mono=mono)]
        kept += selected([*cards, Log(source="kernel", text=str(second), mono=mono)])
    cards = [record for record in kept if isinstance(record, Gpu)]
    assert [record.mono // SECOND for record in cards if record.index == 0] == [0, 10, 20, 30]
    assert sum(isinstance(record, Log) for record in kept) == 31


def test_a_node_that_booted_anew_begins_anew():
    selected = RecordSelector(select(every_s=10.0))
    assert selected([Host(node="a", mono=500 * SECOND)])
    assert selected([Host(node="a", mono=1 * SECOND)])


def test_a_word_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(SessionError, match=r"gpux.*metrics: gpu"):
        select(metrics=("gpux",))


@pytest.mark.slow
def test_of_processes_that_are_long_gone_no_rate_is_remembered():
    selected = RecordSelector(select(every_s=10.0))

    def stat(second, pid):
        at = second * SECOND
        return RankStat(node="a", job="j", rank=0, pid=pid, start_ticks=1, state="moving", mono=at, rx=at)

    kept = [record for second in range(600) for record in selected([stat(second, 1)])]
    assert [record.mono // SECOND for record in kept] == list(range(0, 600, 10)), "one that stays keeps its rate"
    held = []
    tracemalloc.start()
    for hour in range(1, 4):
        for second in range(hour * 3600, (hour + 1) * 3600):
            selected([stat(second, second)])
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[2] - held[0] < 50_000, "bytes; 7,200 more processes would take half a million"
