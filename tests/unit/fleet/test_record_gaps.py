"""Gaps in the records of a node: a new agent after a cut leaves a counted one."""

import pytest

from gconsole.core.bus import Hub
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.records import Gap, Log, Node, encode

SECOND = 1_000_000_000


def gaps_after(away_s, agents=("a", "b")):
    """The gaps that are published when the second agent begins so long after the last record of the first one."""
    hub, published = Hub(), []
    hub.subscribe(published.extend)
    receiver = RecordReceiver("node1", hub, lambda text: None)
    for place, agent in enumerate(agents):
        receiver.on_hello(agent)
        node = Node(hostname="node1", boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1,
                    seq=place + 1 if agents[0] == agents[1] else 1, sample_interval_ms=1000)  # fmt: skip
        assert receiver.receive(encode(node), int((100 + place * away_s) * SECOND))
    return [record for record in published if isinstance(record, Gap)]


def test_cut_of_twelve_seconds_without_linger_is_a_counted_gap():
    (gap,) = gaps_after(12.4)

    assert (gap.node, gap.source, gap.count, gap.first_seq) == ("node1", "link", 11, 2)
    assert gap.reason == "no agent for 12 s: the one before ended"


@pytest.mark.parametrize(("away_s", "agents"), [(1.2, ("a", "b")), (12.0, ("a", "a"))])
def test_no_gap_if_no_tick_is_missing_or_the_agent_lingered(away_s, agents):
    assert gaps_after(away_s, agents) == []


def test_records_that_a_gateway_kept_of_an_earlier_agent_are_taken_once_and_are_no_gap():
    hub, published = Hub(), []
    hub.subscribe(published.extend)
    receiver = RecordReceiver("node1", hub, lambda text: None)

    def send(*numbers):
        lines = [encode(Log(source="agent", severity="info", text="x", seq=number)) for number in numbers]
        return [record.seq for record in (receiver.receive(line, 1) for line in lines) if record is not None]

    receiver.on_hello("a")
    assert send(1, 2) == [1, 2]
    receiver.on_hello("b")  # the node's agent now
    receiver.on_hello("a")  # what the gateway kept of the one before
    assert send(2, 3, 4) == [3, 4]
    receiver.on_hello("b")
    assert send(1, 2) == [1, 2]
    receiver.on_hello("a")
    assert send(4, 5) == [5]
    assert [record for record in published if isinstance(record, Gap)] == []
