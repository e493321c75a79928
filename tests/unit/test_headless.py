"""Headless console during a long-running operation."""

import asyncio
import sys
import time
from types import SimpleNamespace
from typing import cast

import pytest

from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.control import CaptureRequest, Control
from gconsole.core.store import Store
from gconsole.monitor import headless as batch
from gconsole.monitor.coverage import is_settled
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import AgentCost, Collective, Failure, Node, NodeState, Rank

DEADLINE_S = 60.0


def a_node(name: str) -> Node:
    return Node(node=name, agent="a", hostname=name, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0,
                pid=1, sample_interval_ms=1000)  # fmt: skip


class HeadlessWatch:
    """A hub, a store and findings, with a fleet that failed to connect, so that there is nothing to wait for."""

    def __init__(self) -> None:
        self.hub, self.store = Hub(), Store()
        self.hub.subscribe(self.store.apply)
        self.findings = FindingTracker(self.hub, HealthConfig())
        self.hub.publish_own(NodeState(node="node1", state="failed"))

    async def watch(self, before, at_stop=lambda: None) -> None:
        """Watch until the fleet has stopped; `at_stop` is called while it stops."""

        async def stop() -> None:
            at_stop()

        control = cast(Control, SimpleNamespace(stop=stop))
        progress = batch.ProgressLine(self.store, None)
        await batch.watch(self.store, self.hub, control, 0.0, progress, before=before, findings=self.findings)


@pytest.mark.slow
async def test_records_arriving_during_a_long_measurement_are_folded_and_released():
    headless = HeadlessWatch()
    first, last = AgentCost(node="node1", sample_interval_ms=1000), AgentCost(node="node1", sample_interval_ms=1000)
    free = sys.getrefcount(first)
    held = []

    async def measure() -> None:
        headless.hub.publish([first])
        headless.hub.publish([last])  # the store keeps the newest record of a node
        held.append(sys.getrefcount(first))
        deadline = time.monotonic() + DEADLINE_S
        while held[-1] > free and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            held.append(sys.getrefcount(first))

    await headless.watch(measure)
    assert (held[0], held[-1]) == (free + 1, free), "folded and released while the work is running"


async def test_failing_work_fails_the_watch_and_cancelled_work_finishes_its_cleanup():
    async def fails() -> None:
        raise RuntimeError("no clock")

    with pytest.raises(RuntimeError, match="no clock"):
        await HeadlessWatch().watch(fails)

    began, let_go = asyncio.Event(), []

    async def waits() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            let_go.append(True)

    watch = asyncio.create_task(HeadlessWatch().watch(waits))
    await began.wait()
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch
    assert let_go == [True]


async def test_reconnecting_nodes_do_not_prolong_the_watch_and_keep_their_failure():
    """Nodes fail in turn, so that they are never all in state `failed` at the same time."""
    headless = HeadlessWatch()
    refused, silent = Failure("refused", "connection refused by node1"), Failure("timeout", "no response")

    def attempt(connecting: str, failed: str, failure: Failure) -> None:
        headless.hub.publish_own(NodeState(node=connecting, state="connecting", attempt=2))
        headless.hub.publish_own(NodeState(node=failed, state="failed", error=failure, attempt=1))

    attempt("node2", "node1", refused)
    assert not is_settled(headless.store)
    attempt("node1", "node2", silent)
    assert is_settled(headless.store)

    async def nothing() -> None:
        pass

    await headless.watch(nothing)
    states = {now.name: (now.state.state, now.state.error) for now in headless.store.nodes.values() if now.state}
    assert states == {"node1": ("failed", refused), "node2": ("failed", silent)}


@pytest.mark.parametrize("late_s, states", [(0.0, ("ok", "failed")), (DEADLINE_S, ("ok", "ok"))])
async def test_node_that_connects_late_is_awaited_and_then_watched(monkeypatch, late_s, states):
    monkeypatch.setattr(batch, "LOGIN_S", 0.0)
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    for name, state in (("node1", "ok"), ("node2", "connecting")):
        hub.publish_own(NodeState(node=name, state=state))
    hub.publish([a_node("node1")])
    ended, began = asyncio.Event(), time.monotonic()

    async def connect_late() -> None:
        await asyncio.sleep(max(0.0, began + 0.4 - time.monotonic()))
        if late_s:
            hub.publish_own(NodeState(node="node2", state="ok"))
            hub.publish([a_node("node2")])
        while not ended.is_set():
            hub.publish([AgentCost(node=name, sample_interval_ms=1000) for name in ("node1", "node2")])
            await asyncio.sleep(0.05)

    async def stop() -> None:
        ended.set()

    late = asyncio.create_task(connect_late())
    control = cast(Control, SimpleNamespace(stop=stop))
    await batch.watch(store, hub, control, 0.2, batch.ProgressLine(store, None), late_s=late_s)
    await late

    now = store.nodes["node2"]
    assert tuple(node.state.state for node in store.nodes.values() if node.state) == states
    assert not late_s or store.newest_rx - now.agent_rx >= 0.2e9


async def test_attempt_that_begins_while_the_fleet_stops_keeps_the_earlier_failure():
    headless = HeadlessWatch()
    refused = Failure("refused", "connection refused by node1")
    headless.hub.publish_own(NodeState(node="node1", state="failed", error=refused, attempt=1))

    async def nothing() -> None:
        pass

    connecting = NodeState(node="node1", state="connecting", attempt=2)
    await headless.watch(nothing, at_stop=lambda: headless.hub.publish_own(connecting))
    state = headless.store.nodes["node1"].state
    assert state is not None and (state.state, state.error) == ("failed", refused)


async def test_failures_are_kept_when_the_fleet_cannot_be_stopped():
    headless = HeadlessWatch()
    refused = Failure("refused", "connection refused by node1")
    headless.hub.publish_own(NodeState(node="node1", state="failed", error=refused, attempt=1))
    headless.hub.publish_own(NodeState(node="node1", state="connecting", attempt=2))

    async def nothing() -> None:
        pass

    def fail() -> None:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        await headless.watch(nothing, at_stop=fail)
    state = headless.store.nodes["node1"].state
    assert state is not None and (state.state, state.error) == ("failed", refused)


def test_successful_connection_clears_the_earlier_failure():
    headless = HeadlessWatch()
    headless.hub.publish_own(NodeState(node="node1", state="failed", error=Failure("timeout", "no response")))
    headless.hub.publish_own(NodeState(node="node1", state="ok"))
    headless.hub.publish_own(NodeState(node="node1", state="connecting", attempt=3))
    assert headless.store.nodes["node1"].failure is None and not is_settled(headless.store)


@pytest.mark.parametrize("has_recorder", [True, False])
async def test_flight_recorders_are_read_again_during_the_watch_where_there_are_any(monkeypatch, has_recorder):
    monkeypatch.setattr(batch, "REREAD_S", 0.0)
    monkeypatch.setattr(batch, "MOST_REREADS", 1e9)
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    hub.publish_own(NodeState(node="node1", state="ok"))
    identity = {"node": "node1", "job": "llama", "rank": 0, "pid": 7, "start_ticks": 7}
    hub.publish([a_node("node1"), Rank(status="present", source="environ", **identity)])
    reads: list[str] = []
    polls = 0

    def is_over() -> bool:
        nonlocal polls
        polls += bool(reads)
        return len(reads) == 3 or (polls == 30 and not has_recorder)

    async def capture(request: CaptureRequest) -> None:
        reads.append(request.id)
        if has_recorder:
            operation = {"capture": request.id, "source": "worker_server", "profiling_name": "gloo:all_reduce"}
            hub.publish([Collective(**operation, **identity)])

    async def stop() -> None:
        pass

    control = cast(Control, SimpleNamespace(stop=stop, capture=capture))
    progress = batch.ProgressLine(store, None)
    findings = FindingTracker(hub, HealthConfig())
    watching = batch.watch(store, hub, control, DEADLINE_S, progress, findings=findings, is_over=is_over, rereads=True)
    await asyncio.wait_for(watching, 2 * DEADLINE_S)
    assert len(set(reads)) == len(reads) == (3 if has_recorder else 1)
