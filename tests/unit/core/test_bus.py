"""Sinks get the records of their kinds, in order, and no batch without any."""

from __future__ import annotations

import logging

from gconsole.core.bus import LOGGED, Hub, log_records
from gconsole.records import ConsoleRecord, Finding, Gap, Gpu, Log, NodeState, RawRecord

BATCH = [
    NodeState(node="n1", state="ok"), Gpu(index=0, uuid="GPU-1"), Gpu(index=1, uuid="GPU-2"),
    RawRecord("of_a_later_version"), NodeState(node="n2", state="ok"),
]  # fmt: skip


def received(*batches, kinds=None):
    hub, got = Hub(), []
    hub.subscribe(got.append, kinds)
    for batch in batches:
        hub.publish(batch)
    return got


def test_sink_without_kinds_gets_every_batch_as_it_is():
    assert received(BATCH, []) == [BATCH, []]


def test_sink_with_kinds_gets_only_these_in_order():
    assert received(BATCH, BATCH[1:3], [], kinds=frozenset({NodeState, Gap})) == [[BATCH[0], BATCH[4]]]


def test_ended_subscription_gets_nothing_more_also_beside_one_of_the_same_sink():
    hub, got = Hub(), []
    kinds = frozenset({Gpu})
    end = hub.subscribe(got.append, kinds)
    hub.subscribe(got.append, None)
    end()
    hub.publish(BATCH)
    assert got == [BATCH]


def test_every_kind_that_is_logged_is_among_those_that_the_log_is_given(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("gconsole"), "propagate", True)  # a test of the log file may have ended it
    caplog.set_level("DEBUG", "gconsole.records")
    for record in (
        NodeState(node="n1", state="ok"), Gap(node="n1", source="link", reason="r"),
        ConsoleRecord(cluster="c", version="1", state="ended"),
        Finding(id="f", text="f", severity="info", confidence="certain", first_seen=1), Log(source="agent", text="t"),
    ):  # fmt: skip
        caplog.clear()
        log_records([record])
        assert caplog.records, record
        assert type(record) in LOGGED
