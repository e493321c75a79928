"""The two forms of records on the wire, rows and objects: bytes, and CPU of the agent and of the console."""

from __future__ import annotations

import asyncio
import statistics
import time
import zlib
from collections.abc import Callable

import msgspec

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet import record_receiver
from gconsole.fleet.agent_connection import AgentConnection
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.records.rows import column_order
from gconsole_remote.agent.outbox import Outbox
from gconsole_remote.agent.rows import ColumnOrder
from tests.fuzz.conversation import HELLO

from .process import in_new_process
from .result import Outcome, Row, middle
from .stream import EACH_SECOND, GPUS, RANKS, AgentOutput, Fields, record_agent
from .whole_console import calibrate_us

NODES, GATEWAY_NODES = 1024, 64
RUNS = 41
#: Seconds of ticks, more than zlib looks back: those of all nodes are the same ones.
LISTEN_S = 45.0
#: Mbit/s that the goals allow for `NODES` nodes, directly and through gateways.
DIRECT_MBIT, GATEWAY_MBIT = 20.0, 6.0
#: Ticks of different nodes that a gateway sends in one block: it gathers for a tenth of a second.
_GATHERED = 6
#: Ticks until all layouts are declared.
_FIRST = 2
#: Each second as what the samplers post.
Ticks = list[list[list[tuple[str, Fields]]]]


def measure(quick: bool) -> Outcome:
    ticks = _posts(record_agent(LISTEN_S))
    runs = 5 if quick else RUNS
    (objects_us, rows_us), (objects, rows) = _agent(ticks, runs)
    sizes = [statistics.mean(map(len, data[_FIRST:])) for data in (objects, rows)]
    packed = [_packed_bytes(data[_FIRST:]) for data in (objects, rows)]
    console = in_new_process(_console_us, [objects, rows], runs)
    console_objects, console_rows, plain_objects, plain_rows = zip(*console, strict=True)
    ratio, plain_ratio = (statistics.median(pair[at + 1] / pair[at] for pair in console) for at in (0, 2))
    agent_ratio = statistics.median(one / other for other, one in zip(objects_us, rows_us, strict=True))
    decode_us = in_new_process(calibrate_us)
    direct, gateway = (bytes_ * 8 * NODES / 1e6 for bytes_ in (sizes[1], packed[1]))
    return Outcome(
        [
            Row("bytes of a tick, rows", f"{sizes[1]:.0f}", peer=f"objects {sizes[0]:.0f}", ratio=sizes[1] / sizes[0]),
            Row(f"{NODES} nodes directly, rows", f"{direct:.1f} Mbit/s", f"≤ {DIRECT_MBIT:g} Mbit/s",
                direct <= DIRECT_MBIT, f"objects {sizes[0] * 8 * NODES / 1e6:.1f} Mbit/s", sizes[1] / sizes[0]),
            Row(f"{NODES} nodes through gateways, rows", f"{gateway:.1f} Mbit/s", f"≤ {GATEWAY_MBIT:g} Mbit/s",
                gateway <= GATEWAY_MBIT, f"objects {packed[0] * 8 * NODES / 1e6:.1f} Mbit/s", packed[1] / packed[0]),
            Row("agent, encoding of a tick, rows", middle(rows_us, "µs", 0), "no more than objects",
                agent_ratio <= 1, f"objects {middle(objects_us, 'µs', 0)}", agent_ratio),
            Row("console, bytes to store of a tick, rows", middle(console_rows, "µs", 0),
                peer=f"objects {middle(console_objects, 'µs', 0)}", ratio=ratio),
            Row("the same without the store", middle(plain_rows, "µs", 0),
                peer=f"objects {middle(plain_objects, 'µs', 0)}; a gpu record decoded {decode_us:.2f} µs",
                ratio=plain_ratio),
        ],
        [
            f"ticks of {GPUS} gpu, {RANKS} rank_stat, host and agent_cost records of a real agent, posted by kind into"
            " the agent's outbox and taken from it; bytes without SSH's own; layouts are declared before",
            f"through gateways: one zlib stream as theirs (level 3) of {GATEWAY_NODES} nodes, flushed every {_GATHERED}"
            " ticks; their GPUs have different UUIDs",
            "console: thread CPU from the bytes of a connection to store and history; ratios are medians of pairs",
        ],
    )  # fmt: skip


def _posts(output: AgentOutput) -> Ticks:
    head = ("kind", "seq", "t", "mono")
    return [
        [
            [(kind, {name: record[name] for name in record if name not in head})
             for record in second if record["kind"] == kind]
            for kind in EACH_SECOND
        ]
        for second in output.seconds
    ]  # fmt: skip


def _agent(ticks: Ticks, runs: int) -> tuple[list[list[float]], list[list[bytes]]]:
    """µs of a tick in each run, and the bytes of each tick, of objects and of rows."""
    used: list[list[float]] = [[], []]
    sent: list[list[bytes]] = [[], []]
    for _ in range(runs):
        for form, order in enumerate((None, column_order())):
            outbox = Outbox(64 << 20, keep=False)
            turn = outbox.rewind(0, ColumnOrder(order) if order else None)
            sent[form], began = [], time.thread_time()
            for tick in ticks:
                for facts in tick:
                    outbox.post(facts)
                sent[form].append(outbox.next_bytes(turn, 0.0, 0.0) or b"")
            used[form].append((time.thread_time() - began) / len(ticks) * 1e6)
    return used, sent


def _packed_bytes(ticks: list[bytes]) -> float:
    """Bytes of a tick in a gateway's stream."""
    packer, size, seconds = zlib.compressobj(3), 0, 20
    for second in range(seconds):
        for node in range(GATEWAY_NODES):
            data = ticks[(second + node) % len(ticks)].replace(b"GPU-53494d", b"GPU-%06x" % (node * 7919 % (1 << 24)))
            packed = packer.compress(data)
            if node % _GATHERED == 0:
                packed += packer.flush(zlib.Z_SYNC_FLUSH)
            size += len(packed) if second else 0
    return size / (seconds - 1) / GATEWAY_NODES


def _console_us(forms: list[list[bytes]], runs: int) -> list[tuple[float, float, float, float]]:
    """µs of a tick with the store, of objects and rows, and without it."""
    record_receiver.SLICE_S = 60.0  # a machine that stands still does not divide a tick

    async def run() -> list[tuple[float, float, float, float]]:
        pairs = []
        for _ in range(runs):
            stored = [_received_us(data, Store(64 << 20).apply) for data in forms]
            plain = [_received_us(data, lambda records: None) for data in forms]
            pairs.append((stored[0], stored[1], plain[0], plain[1]))
        return pairs

    return asyncio.run(run())


def _received_us(ticks: list[bytes], sink: Callable[..., None]) -> float:
    hub = Hub()
    hub.subscribe(sink)
    receiver = RecordReceiver("node1", hub, print)
    connection = AgentConnection(NodeConfig(name="node1"), hub, receiver, Rpc(print), lambda hello: None, print)
    connection._fair_reader._share = _Endless()  # type: ignore[assignment]
    connection.on_bytes(msgspec.json.encode(HELLO) + b"\n")
    began = time.thread_time()
    for data in ticks:
        connection.on_bytes(data)
    used = time.thread_time() - began
    records = len(ticks) * sum(EACH_SECOND.values())
    if receiver.last_seq != records:
        raise RuntimeError(f"{receiver.last_seq} of {records} records arrived")
    return used / len(ticks) * 1e6


class _Endless:
    is_half_full = True

    def spend(self, amount: float) -> float:
        return 0.0
