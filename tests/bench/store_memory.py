"""(d) Memory of one hour of data from 1,024 nodes with eight GPUs, hosts and ranks included."""

from __future__ import annotations

import time

from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.records import decode
from gconsole.records.base import Record
from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row
from .stream import GPUS, RANKS, AgentOutput, ReplayedAgent, record_agent

NODES, HOUR_S = 1_024, 3_600
#: Every second would be 66 million records. History older than 5 min has slots of 10 s, which one tick per 10 s
#: fills as well; the last 5 min, with slots of 1 s, get every tick.
COARSE_S, FINE_S = 10, 300
HISTORY_BYTES = 1 << 30
GOAL_BYTES = 1_500_000_000


def measure(quick: bool) -> Outcome:
    nodes, hour_s, fine_s = (64, 600, 60) if quick else (NODES, HOUR_S, FINE_S)
    rss, highest, history, reach_s, took_s = in_new_process(_memory_after, record_agent(), nodes, hour_s, fine_s)
    return Outcome(
        [
            Row(f"the store's process after 1 h of {nodes:,} nodes × {GPUS} GPUs", f"{rss / 1e9:.2f} GB RSS",
                "≤ 1.5 GB", rss <= GOAL_BYTES),
            Row("peak RSS of the same process", f"{highest / 1e9:.2f} GB RSS", "≤ 1.5 GB", highest <= GOAL_BYTES),
        ],
        [
            f"RSS of a whole process with {nodes} hosts, {nodes * GPUS} GPUs and {nodes * RANKS} ranks in one Store,"
            f" history_bytes = 1 GiB; its history holds {history / 1e6:.0f} MB and reaches back {reach_s // 60} min",
            "records as a real agent said them, decoded each time; time is told by their stamps: a tick each"
            f" {COARSE_S} s, in the last {fine_s} s each second ({took_s:.0f} s of real time)",
        ],
    )  # fmt: skip


def _memory_after(agent_output: AgentOutput, nodes: int, hour_s: int, fine_s: int) -> tuple[int, int, int, int, float]:
    """(RSS, peak RSS, bytes of history, its length in s, duration in s) after an hour of records."""
    hub, store = Hub(), Store(HISTORY_BYTES)
    hub.subscribe(store.apply)
    began = time.monotonic()
    start_ns = time.time_ns()
    replayed_agents = [ReplayedAgent(agent_output, start_ns) for _ in range(nodes)]
    for index, replayed in enumerate(replayed_agents):
        hub.publish(arrived(replayed.once(), f"node{index}", index, start_ns))
    seconds = [*range(0, hour_s - fine_s, COARSE_S), *range(hour_s - fine_s, hour_s)]
    for second in seconds:
        for index, replayed in enumerate(replayed_agents):
            hub.publish(arrived(replayed.second(second), f"node{index}", index, start_ns + second * 1_000_000_000))
    assert store.history is not None
    if len(store.gpus) != nodes * GPUS or len(store.ranks) != nodes * RANKS:
        raise RuntimeError(f"{len(store.gpus)} GPUs and {len(store.ranks)} ranks are in the store")
    return *memory_bytes(), store.history.nbytes, store.history.hour_s, time.monotonic() - began


def arrived(data: bytes, node: str, agent: int, rx: int) -> list[Record]:
    """The records of a node's bytes, by its agent of that number, stamped as its link stamps them."""
    records = []
    for line in data.splitlines():
        record = decode(line)
        record.node, record.agent, record.rx = node, f"{agent:016x}", rx
        records.append(record)
    return records
