"""Quotas per node: every limit is enforced, and regular nodes stay below it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet import quotas
from gconsole.fleet.agent_connection import AgentConnection
from gconsole.fleet.quotas import NodeQuota, TokenBucket
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.fleet.wire import MAX_LINE, LineSplitter, MalformedFrame, read_hello, unpack
from gconsole.records import (
    ClockSource,
    ConsoleRecord,
    Gap,
    GpuEvent,
    Host,
    Job,
    JobNode,
    Log,
    Mark,
    NodeState,
    Process,
    RankStat,
    RawRecord,
    Record,
    Stack,
    encode,
    kinds,
)
from gconsole.records import Node as NodeRecord
from gconsole_remote.agent import wire as remote_wire


class Node:
    """A record receiver for one node, with the published records and the complaints."""

    def __init__(self) -> None:
        self.hub, self.records, self.complaints = Hub(), [], []
        self.hub.subscribe(lambda records: self.records.extend(records))
        self.intake = RecordReceiver("node1", self.hub, self.complaints.append)
        self.intake.on_hello("a" * 16)
        self.seq = 0

    def say(self, record: Record, seq: int | None = None) -> Record | None:
        self.seq = self.seq + 1 if seq is None else seq
        record.seq = self.seq
        return self.intake.receive(encode(record), 1)

    def say_unknown(self, text: str) -> RawRecord | None:
        self.seq += 1
        return self.intake.receive(msgspec.json.encode({"kind": "quark", "seq": self.seq, "text": text}), 1)

    @property
    def gaps(self) -> list[Gap]:
        return [record for record in self.records if isinstance(record, Gap)]


def a_stack(capture: str) -> Stack:
    return Stack(capture=capture, sample=0, job="j", rank=0, pid=1, start_ticks=1, status="gone")


def test_a_bucket_gives_its_burst_and_then_its_rate():
    now = [0.0]
    bucket = TokenBucket(2.0, 3.0, lambda: now[0])
    assert [bucket.consume() for _ in range(4)] == [True, True, True, False]
    now[0] = 1.0
    assert [bucket.consume() for _ in range(3)] == [True, True, False]
    now[0] = 1000.0
    assert [bucket.consume() for _ in range(4)] == [True, True, True, False], "idle time accumulates at most one burst"


def test_overdrawn_token_bucket_returns_the_wait_until_it_is_repaid():
    now = [0.0]
    bucket = TokenBucket(0.25, 0.5, lambda: now[0])
    assert bucket.spend(0.5) == 0.0
    assert bucket.spend(0.25) == 1.0
    now[0] = 1.0
    assert bucket.spend(0.0) == 0.0


def test_stack_of_an_unrequested_capture_is_rejected_and_counted():
    node = Node()
    assert node.say(a_stack("invented")) is None
    node.intake.quota.expect("asked")
    assert node.say(a_stack("asked")) is not None
    [gap] = node.gaps
    assert (gap.source, gap.count, gap.node) == ("limit", 1, "node1")
    assert "not requested" in gap.reason


def test_agent_of_a_previous_console_may_finish_one_capture():
    quota = NodeQuota(inherits=True)
    assert [quota.refusal(a_stack(name), 100) is None for name in ("old", "old", "another")] == [True, True, False]


def test_entities_per_node_are_limited_and_ended_ones_free_quota(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(kinds.PER_NODE, "entities", 3)
    quota = NodeQuota()

    def process(pid: int, gone: bool = False) -> Process:
        return Process(pid=pid, ppid=1, start_ticks=1, uid=1, comm="x", role="child", gone=gone)

    assert [quota.refusal(process(pid), 100) is None for pid in range(4)] == [True, True, True, False]
    assert quota.refusal(process(1), 100) is None, "a further record of a known process"
    assert quota.refusal(process(1, gone=True), 100) is None
    assert quota.refusal(process(9), 100) is None


def a_process(pid: int, cmdline: str = "") -> Process:
    return Process(pid=pid, ppid=1, start_ticks=1, uid=1, comm="x", role="child", cmdline=cmdline)


def test_record_longer_than_its_kind_allows_is_rejected():
    node = Node()
    assert node.say(a_process(1, "x" * quotas.MAX_RECORD)) is None
    assert "KiB" in node.gaps[0].reason
    assert node.say(a_process(1, "x" * 512)) is not None
    assert node.say(Log(source="job", text="x" * quotas.MAX_RECORD)) is not None


def test_oversized_record_of_an_unknown_kind_is_rejected():
    node = Node()
    assert node.say_unknown("x" * quotas.MAX_RECORD) is None
    assert node.gaps[0].source == "limit" and "unknown kind" in node.gaps[0].reason
    assert node.say_unknown("x" * 512) is not None


@pytest.mark.slow
@pytest.mark.parametrize("bytes_of_each", [10, 8 << 10])
def test_flood_of_unknown_kinds_is_limited_and_every_dropped_record_is_counted(bytes_of_each: int):
    node, sent, text = Node(), 2 * quotas.UNKNOWN_BURST, "x" * bytes_of_each
    kept = sum(node.say_unknown(text) is not None for _ in range(sent))
    assert kept < 0.75 * sent
    assert kept * bytes_of_each < 2 * quotas.UNKNOWN_BURST * quotas.EVENT_BYTES
    lost = sum(gap.count or 0 for gap in node.gaps) + sum(gap.count or 0 for gap in node.intake._pending.values())
    assert kept + lost == sent


def test_bytes_per_node_are_limited_and_ended_or_smaller_records_free_quota(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas, "MAX_HELD", 1_000)
    quota = NodeQuota()
    assert [quota.refusal(a_process(pid), 400) is None for pid in range(3)] == [True, True, False]
    assert quota.refusal(a_process(1), 300) is None
    assert quota.refusal(a_process(2), 300) is None
    gone = a_process(0)
    gone.gone = True
    assert quota.refusal(gone, 100) is None
    assert [quota.refusal(a_process(pid), 400) is None for pid in (3, 4)] == [True, False]


def test_bytes_of_one_capture_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas, "MAX_CAPTURE_BYTES", 1_000)
    quota = NodeQuota()
    quota.expect("asked")
    assert [quota.refusal(a_stack("asked"), 400) is None for _ in range(3)] == [True, True, False]


def test_long_event_consumes_proportionally_more_quota():
    quota = NodeQuota()
    event = Log(source="agent", text="x")
    most = quotas.EVENTS_BURST * quotas.EVENT_BYTES // quotas.MAX_RECORD
    taken = sum(quota.refusal(event, quotas.MAX_RECORD) is None for _ in range(3 * most))
    assert most <= taken < 2 * most


def test_reconnecting_as_another_agent_does_not_enlarge_the_quota(monkeypatch: pytest.MonkeyPatch):
    """Quota used by earlier agents of a node counts until their entries are removed."""
    for limit in kinds.PER_NODE:
        monkeypatch.setitem(kinds.PER_NODE, limit, 3)
    node = Node()

    def tell_of_three(first: int) -> list[bool]:
        return [node.say(a_process(pid)) is not None for pid in range(first, first + 3)]

    def tell_of_an_error(xid: int) -> bool:
        return node.say(GpuEvent(event="xid", severity="error", uuid="GPU-1", xid=xid, text="x")) is not None

    def who() -> NodeRecord:
        return NodeRecord(hostname="h", boot_id="b", kernel="k", arch="a", python="3", uid=1, pid=1,
                          sample_interval_ms=1000)  # fmt: skip

    node.say(who())
    assert tell_of_three(0) == [True] * 3 and [tell_of_an_error(xid) for xid in range(4)] == [True] * 3 + [False]
    node.intake.on_hello("b" * 16)
    node.seq = 0
    assert tell_of_three(10) == [False] * 3, "the store still has entries of the previous agent"
    node.say(who())
    assert tell_of_three(20) == [True] * 3, "they are dropped with the first record of the new agent"
    assert not tell_of_an_error(9), "GPU errors are kept across agents"


def test_event_flood_is_limited_and_every_dropped_event_is_counted():
    node = Node()
    kept = sum(node.say(Log(source="agent", text="x")) is not None for _ in range(3 * quotas.EVENTS_BURST))
    assert quotas.EVENTS_BURST <= kept < 2 * quotas.EVENTS_BURST
    lost = sum(gap.count or 0 for gap in node.gaps) + sum(gap.count or 0 for gap in node.intake._pending.values())
    assert lost == 3 * quotas.EVENTS_BURST - kept, "every rejected record is counted"
    assert len(node.gaps) <= 2 * quotas.WARNINGS_BURST


def test_many_sequence_gaps_are_summed_in_a_few_gap_records():
    node = Node()
    for seq in range(2, 20_000, 2):
        node.say(Process(pid=1, ppid=1, start_ticks=1, uid=1, comm="x", role="child"), seq)
    assert len(node.gaps) <= 2 * quotas.WARNINGS_BURST
    waiting = sum(gap.count or 0 for gap in node.intake._pending.values())
    assert sum(gap.count or 0 for gap in node.gaps) + waiting == 19_998 // 2


def test_first_gap_reports_its_exact_sequence_range():
    node = Node()
    node.say(Log(source="agent", text="x"), 5)
    [gap] = node.gaps
    assert (gap.first_seq, gap.last_seq, gap.count) == (1, 4, 4)


@pytest.mark.parametrize(
    "record",
    [
        Log(source="console", severity="error", text="all is well"),
        NodeState(state="ok"),
        Mark(text="x"),
        ConsoleRecord(cluster="c", version="0"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_kinds_of_the_console_are_rejected_from_a_node(record: Record):
    node = Node()
    assert node.say(record) is None
    assert node.complaints


def test_a_record_that_is_sent_again_after_a_reconnect_is_dropped_without_a_gap():
    node = Node()
    assert node.say(Log(source="agent", text="first"), 1) is not None
    assert node.say(Log(source="agent", text="second"), 2) is not None
    node.intake.on_hello("a" * 16)
    assert node.say(Log(source="agent", text="second"), 2) is None
    assert node.say(Log(source="agent", text="third"), 3) is not None
    assert not node.gaps


def test_records_of_a_new_agent_count_from_one():
    node = Node()
    node.say(Log(source="agent", text="x"), 1)
    node.intake.on_hello("b" * 16)
    assert node.say(Log(source="agent", text="x"), 1) is not None


def test_node_outside_a_job_cannot_change_its_command():
    def job(node: str, command: str) -> Job:
        return Job(
            node=node,
            job="train-1",
            command=(command,),
            launcher="env",
            nodes=("node1", "node2"),
            procs_per_node=1,
            gpus_per_node=0,
            world_size=2,
            master_addr="a",
            master_port=1,
            created=1,
        )

    store = Store()
    store.apply([job("node1", "true"), job("node9", "lie"), job("node2", "true")])
    assert store.jobs.ordered["train-1"].command == ("true",)


def test_line_length_limit_is_equal_on_both_sides_and_enforced():
    assert remote_wire.MAX_LINE == MAX_LINE
    with pytest.raises(MalformedFrame, match="longer than"):
        LineSplitter().feed(b"x" * (MAX_LINE + 1))


def test_frame_that_decompresses_beyond_the_line_limit_is_rejected():
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(b"0" * (MAX_LINE + 1))).decode()
    with pytest.raises(MalformedFrame, match="too long"):
        unpack(msgspec.json.encode({"z": bomb}))


def test_hello_with_too_many_wanted_binaries_is_rejected():
    hello = {"protocol": [1, 1], "agent": "a", "arch": "x", "wanted": ["psutil"] * 9}
    with pytest.raises(MalformedFrame):
        read_hello(msgspec.json.encode({"gconsole": hello}))


class Channel:
    def __init__(self) -> None:
        self.acts: list[str] = []
        self.resumed = asyncio.Event()

    def write(self, data: bytes) -> None: ...

    def pause(self) -> None:
        self.acts.append("pause")

    def resume(self) -> None:
        self.acts.append("resume")
        self.resumed.set()

    def close(self) -> None: ...


async def test_node_over_its_share_of_time_is_paused_and_then_resumed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quotas, "fair_share", lambda: TokenBucket(0.25, 0.0))
    node, channel = Node(), Channel()
    talk = AgentConnection(NodeConfig(name="node1"), node.hub, node.intake, Rpc(print), print, print)
    talk.channel = channel
    talk.on_bytes(b"noise\n" * 1000)
    assert channel.acts == ["pause"]
    async with asyncio.timeout(10):
        await channel.resumed.wait()
    assert channel.acts == ["pause", "resume"]


async def test_deeply_nested_frames_are_reported_without_closing_the_connection():
    node = Node()
    talk = AgentConnection(NodeConfig(name="node1"), node.hub, node.intake, Rpc(print), lambda hello: None,
                        node.complaints.append)  # fmt: skip
    talk.on_bytes(b'{"gconsole":{"protocol":[1,1],"agent":"a","arch":"x"}}\n')
    for depth in (100, 800, 950, 980, 1000, 5000, 100_000):
        talk.on_bytes(b'{"a":' + b"[" * depth + b"]" * depth + b"}\n")
    async with asyncio.timeout(20):
        while len(node.complaints) < 7:  # noqa: ASYNC110 - a list, no event
            await asyncio.sleep(0.01)
    assert not talk.ended.is_set()


@pytest.mark.parametrize(
    "record",
    [
        Host(cpu_pct=1e300, t=1, mono=1),
        Host(cpu_pct=1.0, t=2**63 - 1, mono=1),
        Host(cpu_pct=1.0, t=1, mono=-1),
        ClockSource(daemon="chrony", synced=True, bound_ns=2**63 - 1, t=1, mono=1),
    ],
)
def test_impossible_values_are_rejected_but_a_diverging_loss_is_accepted(record: Record):
    node = Node()
    assert node.say(record) is None
    assert [(gap.source, gap.first_seq, gap.last_seq) for gap in node.gaps] == [("limit", 1, 1)]
    loss = RankStat(job="j", rank=0, pid=1, start_ticks=1, state="moving", watched={"loss": 1e200}, t=1, mono=1)
    assert node.say(loss) is not None


def test_an_invalid_record_counts_as_lost_once_and_hides_no_lost_records():
    node = Node()
    node.say(Host(cpu_pct=1.0, t=1, mono=1))
    invalid = b'{"kind":"host","seq":4,"t":1,"mono":1,"cpu_pct":"much"}'
    for _ in range(2):  # the second time as after a reconnect
        assert node.intake.receive(invalid, 1) is None
    assert [(gap.source, gap.first_seq, gap.last_seq) for gap in node.gaps] == [("link", 2, 3), ("limit", 4, 4)]
    assert node.say(Host(cpu_pct=1.0, t=2, mono=2), seq=5) is not None
    assert len(node.gaps) == 2


@pytest.mark.parametrize("event", [Log(source="kernel", text="x"), JobNode(job="j", index=0, state="running")])
def test_ten_minutes_of_buffered_events_are_accepted(event: Record):
    quota = NodeQuota()
    assert all(quota.refusal(event, 100) is None for _ in range(600))
