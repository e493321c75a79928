"""Cost of a metrics scrape of a large fleet, and the server's response to generated requests."""

from __future__ import annotations

import asyncio
import http.client
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rig import Rig

from gconsole.config import Config, load
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet.fleet import Fleet
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import AgentCost, GpuInfo, GpuProcess, Host, Node, NodeState, Rank, RankStat
from gconsole.web.app import make_app
from gconsole.web.auth import TokenAuth
from gconsole.web.exposition import OPENMETRICS
from gconsole.web.operation import WebContext
from gconsole.web.resources import OPERATIONS
from gconsole.web.resources.metrics import exposition, take_snapshot
from gconsole.web.server import listen_at, open_socket, serving
from gconsole.web.tokens import ApiToken
from tests.bench.process_usage import memory_bytes

from .noisy_gpus import NoisyGpu
from .process import in_new_process
from .result import Outcome, Row, middle

sys.path.insert(0, str(Path(__file__).parents[1] / "http"))

NODES, GPUS, RUNS = 1024, 8, 7
GOAL_S, GOAL_BYTES = 1.0, 300_000_000
TOKEN = "a-token-of-the-bench"


def measure(quick: bool) -> Outcome:
    nodes, runs = (32, 2) if quick else (NODES, RUNS)
    took, cpu, size, series, rss, highest = in_new_process(_scraped, nodes, runs)
    own, peer = in_new_process(_library_seconds, nodes, 1 if quick else 3)
    requests, status = _schemathesis_requests(examples=2 if quick else 20)
    setup = f"/metrics of {nodes * GPUS:,} GPUs and as many ranks"
    return Outcome(
        [
            Row(f"{setup}, wall", middle(took, "s"), "≤ 1 s", max(took) <= GOAL_S),
            Row("the same, CPU of server and client together", middle(cpu, "s")),
            Row("peak RSS of the server process", f"{highest / 1e6:.0f} MB RSS ({rss / 1e6:.0f} after it)",
                "≤ 300 MB", highest <= GOAL_BYTES),
            Row("size of the text", middle(own, "s"), peer=f"prometheus_client {middle(peer, 's')}",
                ratio=statistics.median(own) / statistics.median(peer)),
            Row("requests generated from the OpenAPI document", f"{requests:,}, "
                f"{'all' if not status else 'not all'} answered as documented", "all", not status),
        ],
        [
            f"a store with current records of {nodes} nodes: host, agent, {GPUS} GPUs with every figure, {GPUS} ranks; "
            f"{series:,} series, {size / 1e6:.1f} MB of OpenMetrics over loopback; the worst run decides",
            "server, store and the client that reads (and drops) the text are one process; its RSS has all of them",
            "peer: prometheus_client.openmetrics.exposition, given existing samples; gconsole's time is from records",
            "requests: schemathesis over a real server on two rig nodes, 20 examples of each sort and operation beside "
            "its fixed ones; captures, diagnoses and nodes that would be reached only with ill-formed bodies",
        ],
    )  # fmt: skip


def _scraped(nodes: int, runs: int) -> tuple[list[float], list[float], int, int, int, int]:
    """(seconds of each scrape on the clock, and of CPU, bytes of the text, series, RSS, peak RSS)."""
    store = a_store(nodes)
    with tempfile.TemporaryDirectory() as scratch:
        hosts = Path(scratch, "hosts.toml")
        hosts.write_text('[[nodes]]\nhosts = "nobody"\ntransport = "local"\n')
        scrapes = asyncio.run(_scrape(load(str(hosts), environ={}), store, runs))
    return *scrapes, *memory_bytes()


async def _scrape(config: Config, store: Store, runs: int) -> tuple[list[float], list[float], int, int]:
    hub = Hub()
    fleet = Fleet(config, hub)
    served = WebContext(config, hub, store, fleet, FindingTracker(hub, config.health), Path())
    listen = listen_at("127.0.0.1:0")
    listener = open_socket(listen)
    app = make_app(served, OPERATIONS, TokenAuth((ApiToken(TOKEN),), frozenset({"localhost"})), 10_000)
    took, cpu, size, series = [], [], 0, 0
    async with serving(app, listen, listener, print):
        for _ in range(runs):
            _refresh(store)
            served.scrapes.texts.clear()
            began, spent = time.perf_counter(), time.process_time()
            size, series = await asyncio.to_thread(_read, listener.getsockname()[1])
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
    await fleet.stop()
    return took, cpu, size, series


def _read(port: int) -> tuple[int, int]:
    """(bytes, series) of one scrape, discarded while it is read."""
    talk = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    talk.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Accept": OPENMETRICS})
    answer = talk.getresponse()
    size = series = 0
    while part := answer.read(1 << 20):
        size, series = size + len(part), series + part.count(b"\n")
    talk.close()
    if answer.status != 200 or size == 0:
        raise RuntimeError(f"a scrape was answered {answer.status}")
    return size, series


def _library_seconds(nodes: int, runs: int) -> tuple[list[float], list[float]]:
    """Seconds for the same text: gconsole from records, the library from existing samples."""
    from prometheus_client.metrics_core import Metric
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

    store = a_store(nodes)
    snapshot = take_snapshot(store, (), time.time_ns())
    text = b"".join(exposition(snapshot, OPENMETRICS)).decode()

    class Ready:
        """A registry with existing samples."""

        metrics: list[Metric] = list(parsed(text))  # noqa: RUF012

        def collect(self) -> list[Any]:
            return self.metrics

    registry, own, peer = Ready(), [], []
    for _ in range(runs):
        began = time.perf_counter()
        exposition(take_snapshot(store, (), time.time_ns()), OPENMETRICS)
        own.append(time.perf_counter() - began)
        began = time.perf_counter()
        generate_latest(registry)  # type: ignore[no-untyped-call]
        peer.append(time.perf_counter() - began)
    return own, peer


def _schemathesis_requests(examples: int) -> tuple[int, int]:
    """(requests, exit status of schemathesis)."""
    from api_client import running_api as api_process
    from schemathesis_run import run_schemathesis

    with Rig(nodes=2, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        hosts = rig.write_hosts_toml(Path(scratch, "hosts.toml"), agent={"simulate_gpus": 4})
        with api_process(hosts, Path(scratch), "--rate", "10000") as api:
            api.until_connected(2)
            summary = run_schemathesis(api, Path(scratch), examples)
    return summary.requests, summary.status


def a_store(nodes: int) -> Store:
    """Current records of that many nodes with all kinds of devices."""
    store, chance, now = Store(), random.Random(7), time.time_ns()
    for number in range(nodes):
        name, head = f"node{number:04}", {"agent": f"{number:016x}", "rx": now, "t": now}
        records: list[Any] = [
            NodeState(node=name, state="ok", rx=now),
            Node(node=name, hostname=name, boot_id="b", kernel="6.1", arch="x86_64", python="3.11", uid=0, pid=1,
                 sample_interval_ms=1000, mem_total_bytes=2 << 40, **head),
            Host(node=name, cpu_pct=42.5, load_1m=3.1, mem_used_bytes=1 << 40, mem_available_bytes=1 << 40,
                 swap_used_bytes=0, cpu_stall_pct=0.1, mem_stall_pct=0.0, io_stall_pct=0.2, disk_read_bytes_s=1e6,
                 disk_write_bytes_s=1e6, net_rx_bytes_s=1e9, net_tx_bytes_s=1e9, uptime_s=1e6, unreadable=0, **head),
            AgentCost(node=name, cpu_pct=0.4, rss_bytes=21 << 20, tx_bytes_s=9e3, sample_interval_ms=1000, **head),
        ]  # fmt: skip
        for index in range(GPUS):
            gpu, rank = NoisyGpu(chance, name, index).record(head["agent"], 1, now, 1, now), number * GPUS + index
            process = {"pid": 1000 + index, "start_ticks": 5, **head}
            records += [
                GpuInfo(node=name, index=index, uuid=gpu.uuid, name="NVIDIA H100 80GB HBM3", driver="570.1",
                        mem_total_bytes=80 << 30, power_limit_w=700.0, max_sm_clock_mhz=1980.0, **head),
                gpu,
                GpuProcess(node=name, index=index, uuid=gpu.uuid, pid=1000 + index, type="compute", job="train-1",
                           attempt=0, rank=rank, **head),
                Rank(node=name, job="train-1", rank=rank, world_size=nodes * GPUS, source="environ", **process),
                RankStat(node=name, job="train-1", rank=rank, state="moving", cpu_pct=99.0, rss_bytes=9 << 30,
                         step=12_345, **process),
            ]  # fmt: skip
        store.apply(records)
    return store


def _refresh(store: Store) -> None:
    """Refresh all records, so that none becomes stale however long the machine takes."""
    now = time.time_ns()
    for node in store.nodes.values():
        for record in (node.host, node.cost):
            if record is not None:
                record.rx = now
    for gpu in store.gpus.values():
        if gpu.gpu is not None:
            gpu.gpu.rx = now
    for rank in store.ranks.values():
        if rank.stat is not None:
            rank.stat.rx = now
