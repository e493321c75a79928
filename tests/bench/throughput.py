"""(d) 512 nodes of eight GPUs at 1 Hz: CPU of link, decoder and store; also a real fleet over SSH."""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rig import Rig

from gconsole.config import load
from gconsole.config.model import NodeConfig
from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.tick_offsets import tick_offset_s
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import Gap, Log
from gconsole.transport.transport import Channel, Receiver
from tests.bench.process_usage import CpuShare

from .process import in_new_process
from .result import Outcome, Row, middle
from .stream import GPUS, RANKS, AgentOutput, ReplayedAgent, record_agent

NODES, RUNS = 512, 3
WARM_UP_S, MEASURED_S = 5, 25
HISTORY_BYTES = 1 << 30
GOAL_PCT = 15.0
#: Seconds by which a node's records come later than those of the first one of its group, at most.
JITTER_S = 0.01
#: Real nodes, to measure the cost of SSH: as many agents as two cores can run without delaying the console.
SSH_NODES, SSH_WARM_UP_S, SSH_MEASURED_S = 16, 15.0, 30.0


def measure(quick: bool) -> Outcome:
    nodes, runs, measured_s = (64, 1, 6) if quick else (NODES, RUNS, MEASURED_S)
    agent_output = record_agent()
    shares = [in_new_process(replayed_share, agent_output, nodes, WARM_UP_S, measured_s) for _ in range(runs)]
    ssh_nodes, ssh_warm_up_s, ssh_measured_s = (4, 5.0, 6.0) if quick else (SSH_NODES, SSH_WARM_UP_S, SSH_MEASURED_S)
    ssh_pct = share_over_ssh(ssh_nodes, ssh_warm_up_s, ssh_measured_s)
    records = sum(map(len, agent_output.seconds)) / len(agent_output.seconds)
    return Outcome(
        [
            Row(f"link, decode, store: {nodes} nodes × {GPUS} GPUs at 1 Hz", middle(shares, "% of a core", 1),
                "≤ 15 % of a core", statistics.median(shares) <= GOAL_PCT),
            Row("the same with SSH (asyncssh, real sshd), for each node", f"{ssh_pct:.3f} % of a core"),
        ],
        [
            f"{records:g} records a second and node ({GPUS} gpu, {RANKS} rank_stat, host, agent_cost), as a real agent"
            " said them, with new stamps and numbers each second; groups of 16 nodes spread evenly over the second, as"
            f" agents are, and each node up to {JITTER_S * 1e3:g} ms later",
            "real Link (with its pings, answered), Hub and Store with history_bytes = 1 GiB, in a process of its own;"
            " the bytes are prepared beforehand; all CPU of the process counts",
            f"with SSH: `gconsole batch` on {ssh_nodes} real nodes with agents of {GPUS} simulated GPUs and no ranks,"
            " CPU of the whole process in its steady state, divided by the nodes; asyncio and asyncssh are most of it",
        ],
        [
            "rules of quotas found once per kind: 26.3 to 23.8 %",
            "figures for the history read in one call, and no generator for each record: to 22.0 %",
            "left: of what remains the history takes 28 %, quotas and intake 20 %, decoding 5 %",
        ],
    )  # fmt: skip


class _RemoteEnd(Channel):
    """The remote end of a link: answers pings, and ends on request."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        if data.startswith(b'{"ping":'):
            pong = {"pong": msgspec.json.decode(data)["ping"], "t": time.time_ns(), "mono": time.monotonic_ns()}
            self._loop.call_soon(self._receiver.on_bytes, msgspec.json.encode(pong) + b"\n")
        elif data.startswith(b'{"stop":'):
            self._loop.call_soon(self._receiver.on_end, 0, None)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass


class _LocalTransport:
    """A transport to a `ReplayedAgent` in this process: its bytes arrive as if from a node."""

    def __init__(self, replayed: ReplayedAgent) -> None:
        self._replayed = replayed
        self._receiver: Receiver | None = None
        self.delivered = 0

    def deliver(self, data: bytes) -> None:
        assert self._receiver is not None
        self.delivered += 1
        self._receiver.on_bytes(data)

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        self._receiver = receiver
        asyncio.get_running_loop().call_soon(receiver.on_bytes, self._replayed.hello())
        return _RemoteEnd(receiver)

    async def close(self) -> None:
        pass


def replayed_share(
    agent_output: AgentOutput, nodes: int, warm_up_s: int, measured_s: int, *, has_findings: bool = False
) -> float:
    """CPU of this process, in % of a core, with that many nodes sending; also of the findings, if wanted."""
    return asyncio.run(_listen_to_all(agent_output, nodes, warm_up_s, measured_s, has_findings=has_findings))


async def _listen_to_all(
    agent_output: AgentOutput, nodes: int, warm_up_s: int, measured_s: int, *, has_findings: bool
) -> float:
    hub, store = Hub(), Store(HISTORY_BYTES)
    hub.subscribe(store.apply)
    evaluating = asyncio.create_task(_evaluate(FindingTracker(hub, HealthConfig()))) if has_findings else None
    replayed_agents = [ReplayedAgent(agent_output, time.time_ns()) for _ in range(nodes)]
    transports = [_LocalTransport(replayed) for replayed in replayed_agents]
    links = [
        NodeLink(node, transport, hub, lambda link, name: None)
        for node, transport in zip(load(f"node[1-{nodes}]").nodes, transports, strict=True)
    ]
    ready = _all_ok(hub, links)
    for link in links:
        link.start()
    opening = [replayed.once() for replayed in replayed_agents]
    seconds = [
        [replayed.second(number) for replayed in replayed_agents] for number in range(warm_up_s + measured_s + 2)
    ]
    async with asyncio.timeout(20):
        await ready.wait()
    for transport, batch in zip(transports, opening, strict=True):
        transport.deliver(batch)
    feeding = asyncio.create_task(_feed(transports, seconds))
    await asyncio.sleep(warm_up_s)
    before, used = sum(transport.delivered for transport in transports), time.process_time()
    await asyncio.sleep(measured_s)
    seconds_of_all = (sum(transport.delivered for transport in transports) - before) / nodes  # fewer on a busy machine
    pct = 100 * (time.process_time() - used) / seconds_of_all
    feeding.cancel()
    if evaluating is not None:
        evaluating.cancel()
    for link in links:
        await link.stop()
    _check(store, nodes)
    return pct


async def _evaluate(findings: FindingTracker) -> None:
    """Evaluate whenever it is due, as a console does."""
    while True:
        if findings.is_due:
            await findings.evaluate()
        await asyncio.sleep(0.1)


def _all_ok(hub: Hub, links: list[NodeLink]) -> asyncio.Event:
    """Set once every link has received its agent's hello."""
    ready = asyncio.Event()

    def look(_: object) -> None:
        if not ready.is_set() and all(link.state == "ok" for link in links):
            ready.set()

    hub.subscribe(look)
    return ready


async def _feed(transports: list[_LocalTransport], seconds: list[list[bytes]]) -> None:
    """Each node sends once a second, at the offset of its group and up to `JITTER_S` later."""
    began, drawn = time.monotonic(), random.Random(1)
    for number, batch in enumerate(seconds):
        offsets = [tick_offset_s(index) + drawn.uniform(0.0, JITTER_S) for index in range(len(transports))]
        for offset_s, transport, data in sorted(zip(offsets, transports, batch, strict=True), key=lambda node: node[0]):
            wait_s = began + number + offset_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            transport.deliver(data)


def _check(store: Store, nodes: int) -> None:
    """Assert that no records were lost, which would invalidate the figure."""
    logs = [record for _, record in store.events if isinstance(record, Gap | Log)]
    lost = [record for record in logs if not (isinstance(record, Log) and record.fault == "console_late")]
    if lost or len(store.gpus) != nodes * GPUS or len(store.ranks) != nodes * RANKS:
        raise RuntimeError(f"{len(store.gpus)} GPUs and {len(store.ranks)} ranks arrived, and {lost[:1]}")


def share_over_ssh(nodes: int, warm_up_s: float, measured_s: float) -> float:
    """CPU of a whole console over real SSH, in % of a core, per node."""
    with Rig(nodes=nodes, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), agent={"simulate_gpus": GPUS})
        argv = [str(Path(sys.executable).parent / "gconsole"), "batch", str(target), "--for", "1h", "--quiet"]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            time.sleep(warm_up_s)
            with CpuShare(process.pid) as share:
                time.sleep(measured_s)
        finally:
            process.terminate()
            process.wait(30)
    return share.pct / nodes
