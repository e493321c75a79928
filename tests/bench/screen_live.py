"""The console with 512 nodes at 1 Hz: CPU of a core, latency of a key press, memory.

Records are decoded from bytes, as from a fleet; every value of every node changes each second.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet.gc_sweep import GcSweep
from gconsole.records import AgentCost, Gpu, GpuInfo, Host, Node, NodeState, Rank, RankStat, Record, decode  # fmt: skip
from gconsole.tui.app import ConsoleApp
from gconsole.tui.widgets.record_grid import RecordGrid

# Makes `from fake_cluster import FakeCluster` work, as in the tests of the screen.
sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

from fake_cluster import FakeCluster

from tests.bench.headless_screen import STYLES, PaintCounter
from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row

NODES, GPUS, RANKS = 512, 8, 8
SIZE = (200, 60)
SECOND = 1_000_000_000
#: Distinct seconds, sent in rotation.
VARIANTS = 4
WARM_UP_S, MEASURED_S, KEYS = 5.0, 20.0, 120
HISTORY_BYTES = 1 << 30
HOUR_S, COARSE_S, FINE_S = 3_600, 10, 60
GOAL_PCT, P95_MS, P99_MS = 35.0, 60.0, 100.0
VIEWS = {"overview": "1", "ranks": "2", "nodes": "n"}


class Console(PaintCounter, ConsoleApp):
    """The console, with its paints rendered as text."""

    CSS_PATH = STYLES


def measure(quick: bool) -> Outcome:
    nodes, measured_s, keys, hour_s = (64, 4.0, 20, 300) if quick else (NODES, MEASURED_S, KEYS, HOUR_S)
    shares, delays, cpu_ms = in_new_process(_live, nodes, measured_s, keys)
    rss, highest = in_new_process(_hour, nodes, hour_s)
    p95, p99 = _rank(delays, 0.95), _rank(delays, 0.99)
    fleet = f"{nodes} nodes × {GPUS} GPUs × {RANKS} ranks at 1 Hz"
    return Outcome(
        [
            *(
                Row(f"{fleet}, {view}", f"{pct:.1f} % of a core", f"≤ {GOAL_PCT:g} %", pct <= GOAL_PCT)
                for view, pct in shares.items()
            ),
            Row("key to paint, p95", f"{p95:.0f} ms ({statistics.median(delays):.0f} median)", f"≤ {P95_MS:g} ms",
                p95 <= P95_MS),
            Row("key to paint, p99", f"{p99:.0f} ms", f"≤ {P99_MS:g} ms", p99 <= P99_MS),
            Row("CPU of a key and its paint", f"{statistics.median(cpu_ms):.1f} ms (p95 {_rank(cpu_ms, 0.95):.1f})"),
            Row(f"the console after {hour_s / 3600:g} h of {nodes} nodes", f"{rss / 1e6:.0f} MB RSS"
                f" ({highest / 1e6:.0f} at its highest)"),
        ],
        [
            f"headless at {SIZE[0]}x{SIZE[1]}, each paint made into text; 18 records a second and node, decoded and"
            f" put into a Store with history_bytes = 1 GiB; nodes spread over the second; CPU of the process"
            f" in {measured_s:g} s of each view, by the seconds that the nodes came to tell in it (fewer on a busy"
            " machine)",
            f"keys: {len(delays)} cursor keys in the ranks at random instants, from the key to the painted text that"
            " has the cursor in its new place; the wait for the screen's 60 Hz timer counts",
            f"memory: an hour told in ticks of {COARSE_S} s and, in its last {FINE_S} s, of one, drawn after each;"
            " history is bounded by history_bytes",
        ],
    )  # fmt: skip


def _rank(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# -- the fleet -------------------------------------------------------------------------------------------------------


def _static_records(node: int, name: str) -> list[Record]:
    """Identity, GPUs, and ranks of one job over all nodes."""
    ranks = [
        Rank(
            node=name, job="llama-70b", rank=node * RANKS + index, local_rank=index, world_size=NODES * RANKS,
            local_world_size=RANKS, pid=4000 + index, start_ticks=index, uid=1000, gpu=str(index), launcher="torchrun",
            source="environ",
        )
        for index in range(RANKS)
    ]  # fmt: skip
    infos = [
        GpuInfo(node=name, index=index, uuid=f"{name}-{index}", name="H100", mem_total_bytes=80 << 30,
                power_limit_w=700.0, pci_bus_id=f"00000000:{index:02X}:00.0")
        for index in range(GPUS)
    ]  # fmt: skip
    node_record = Node(
        node=name, hostname=name, boot_id="b", kernel="5.15", arch="x86_64", python="3.10", os="Ubuntu", cpus=192,
        mem_total_bytes=2 << 40, uid=1000, user="ops", pid=1, sample_interval_ms=1000,
    )  # fmt: skip
    return [NodeState(node=name, state="ok", attempt=1), node_record, *infos, *ranks]


def _second(node: int, name: str, chance: random.Random, step: int) -> bytes:
    """One tick of a node, in wire format."""
    figure = chance.uniform
    records: list[Record] = [
        Host(node=name, cpu_pct=figure(0, 100), load_1m=figure(0, 200), mem_used_bytes=int(figure(0, 2 << 40))),
        AgentCost(node=name, cpu_pct=figure(0, 1), rss_bytes=19 << 20, tx_bytes_s=2e3, sample_interval_ms=1000),
        *(
            Gpu(node=name, index=index, uuid=f"{name}-{index}", util_pct=figure(0, 100), power_w=figure(90, 700),
                mem_used_bytes=int(figure(0, 80 << 30)), temp_c=figure(30, 90), sm_clock_mhz=1980.0)
            for index in range(GPUS)
        ),
        *(
            RankStat(node=name, job="llama-70b", rank=node * RANKS + index, state="moving", step=step, pid=4000 + index,
                     start_ticks=index, proc_state="R", cpu_pct=figure(90, 101),
                     rss_bytes=int(figure(3, 4) * (1 << 30)), threads=41, ctx_switches_s=figure(0, 2e3), wchan="0")
            for index in range(RANKS)
        ),
    ]  # fmt: skip
    return b"\n".join(msgspec.json.encode(record) for record in records)


class Fleet:
    """Nodes that send into a store."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"node{index:03}" for index in range(nodes)]
        self.store, self.hub, self.seq = Store(HISTORY_BYTES), Hub(), 0
        self.sent = 0  # seconds, summed over nodes
        self.hub.subscribe(self.store.apply)
        chance = random.Random(1)
        self._ticks = [
            [_second(index, name, chance, step) for index, name in enumerate(self.names)] for step in range(VARIANTS)
        ]
        for index, name in enumerate(self.names):
            self._publish(_static_records(index, name), name, time.time_ns())

    def send(self, index: int, second: int, now: int) -> None:
        """Send that second of node number `at`."""
        self.sent += 1
        data = self._ticks[second % VARIANTS][index]
        self._publish([decode(line) for line in data.split(b"\n")], self.names[index], now)

    def _publish(self, records: list[Record], name: str, now: int) -> None:
        for record in records:
            self.seq += 1
            record.agent, record.seq = f"agent-{name}", self.seq
            record.t = record.mono = record.rx = now
        self.hub.publish(records)

    def app(self, **changes: object) -> Console:
        control = FakeCluster(*self.names[:1])
        return Console(self.store, control, cluster="bench", expected_nodes=self.names, **changes)  # type: ignore[arg-type]


async def _feed(fleet: Fleet) -> None:
    """Each node once a second, evenly spread."""
    began, second = time.monotonic(), 0
    while True:
        for index in range(len(fleet.names)):
            wait_s = began + second + index / len(fleet.names) - time.monotonic()
            if wait_s > 0.005:
                await asyncio.sleep(wait_s)
            fleet.send(index, second, time.time_ns())
        second += 1
        await asyncio.sleep(0)


# -- measurements ----------------------------------------------------------------------------------------------------


def _live(nodes: int, measured_s: float, keys: int) -> tuple[dict[str, float], list[float], list[float]]:
    return asyncio.run(_watch(Fleet(nodes), measured_s, keys))


async def _watch(fleet: Fleet, measured_s: float, keys: int) -> tuple[dict[str, float], list[float], list[float]]:
    app, shares = fleet.app(), {}
    gc.freeze()  # as the console does at its start
    sweep = GcSweep()  # as a fleet does
    sweep.start()
    async with app.run_test(size=SIZE):
        feeding = asyncio.create_task(_feed(fleet))
        for view, key in VIEWS.items():
            app.simulate_key(key)
            await asyncio.sleep(WARM_UP_S)
            sent, used = fleet.sent, time.process_time()
            await asyncio.sleep(measured_s)
            shares[view] = 100 * (time.process_time() - used) * len(fleet.names) / (fleet.sent - sent)
        app.simulate_key("2")
        await asyncio.sleep(2)
        delays, cpu_ms = [], []
        chance = random.Random(2)
        for number in range(keys):
            await asyncio.sleep(chance.uniform(0.05, 0.15))
            delay, cpu = await _press(app, "j" if number % 40 < 20 else "k")
            delays.append(delay)
            cpu_ms.append(cpu)
        feeding.cancel()
    sweep.close()
    return shares, delays, cpu_ms


async def _press(app: Console, key: str) -> tuple[float, float]:
    """(ms from the key press to the painted cursor, ms of CPU meanwhile)."""
    grid = app.view.initial_focus()
    assert isinstance(grid, RecordGrid)
    before, began, used = grid._cursor, time.perf_counter(), time.process_time()
    app.simulate_key(key)
    while grid._cursor == before:  # noqa: ASYNC110 - the app has no event for it
        await asyncio.sleep(0)
    moved = time.perf_counter()
    while app.painted_at < moved:  # noqa: ASYNC110
        await asyncio.sleep(0.0005)
    return 1000 * (app.painted_at - began), 1000 * (time.process_time() - used)


def _hour(nodes: int, hour_s: int) -> tuple[int, int]:
    return asyncio.run(_memory_after(nodes, hour_s))


async def _memory_after(nodes: int, hour_s: int) -> tuple[int, int]:
    """(RSS, peak RSS) of a console after that many seconds of data."""
    fleet = Fleet(nodes)
    now = start = time.time_ns()
    app = fleet.app(now=lambda: now)
    async with app.run_test(size=SIZE):
        for second in [*range(0, hour_s - FINE_S, COARSE_S), *range(hour_s - FINE_S, hour_s)]:
            now = start + second * SECOND
            for index in range(nodes):
                fleet.send(index, second, now)
            app.frames.draw()
            await asyncio.sleep(0.001)
        return memory_bytes()
