"""Many nodes behind one real sshd: stand-ins that replay the output of a real agent.

One agent is started on one real node with eight simulated GPUs and a real job of eight ranks, digests are ordered as a
console does, and its lines are kept. `stand_in.c` then sends them for one of many nodes: with the times of its own
clock, its own numbers of records, GPUs and ranks, and another second of the recording than most others.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from gateways import give_key
from jobs import start_ring
from rig import Rig

from gconsole.config import load
from gconsole.config.model import Config
from gconsole.core.bus import Hub, Published
from gconsole.fleet.deploy.binaries import Binaries
from gconsole.fleet.deploy.send_binaries import Staging
from gconsole.fleet.digest_orders import DigestOrders
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.row_reader import LAYOUT
from gconsole.monitor.digest_rules import digest_rules
from gconsole.records import GpuInfo

from .stream import GPUS, RANKS, RecordingTransport

#: Seconds until the recorded agent has sent everything once, and sends digests; and length of the loop: whole digests.
SETTLED_S, LOOP_S = 24, 30
#: Seconds of the agent that a stand-in sends when it starts; what else came before the loop goes with its first ticks.
OPENING_S = 2
_SECOND = 1_000_000_000
#: ns. Times in a record that are this close to its tick are times of the tick.
_NEAR = 100 * _SECOND
_SOURCE = Path(__file__).with_name("stand_in.c")
_MARK = "\x01"
_NUMBER_MARK = re.compile(rb'"\\u0001([tmsr]-?[0-9]+;)"')
_NAME = "n%d"


def record_lines() -> list[bytes]:
    """Every line of a real agent: its greeting, its opening, and `LOOP_S` seconds with digests."""
    with (
        Rig(nodes=1, name="bench") as rig,
        start_ring(rig, nproc_per_node=RANKS) as job,
        tempfile.TemporaryDirectory() as scratch,
    ):
        job.wait_ready()
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), agent={"simulate_gpus": GPUS})
        return asyncio.run(_record(load(str(target)))).splitlines()


async def _record(config: Config) -> bytes:
    (node,), hub, recording = config.nodes, Hub(), RecordingTransport()
    staging = Staging(hub, Binaries())
    link = NodeLink(node, recording, hub, staging.send_now)
    orders = DigestOrders(config, lambda: {node.name: link} if link.state == "ok" else {}, digest_rules)

    def follow(records: Sequence[Published]) -> None:
        for record in records:
            if isinstance(record, GpuInfo):
                orders.add_info(record)

    hub.subscribe(follow)
    link.start()
    try:
        await asyncio.sleep(SETTLED_S + LOOP_S + 3)
    finally:
        await orders.stop()
        await link.stop()
        await staging.close()
        await recording.close()
    return bytes(recording.received)


def ticks_of(lines: Sequence[bytes], nodes: int) -> bytes:
    """The lines in the form that stand_in.c reads."""
    greeting = next(line for line in lines if line.startswith(b'{"gconsole":'))
    records = [line for line in lines if line.startswith((b'{"kind":', b"[", LAYOUT))]
    marker = _Marker(nodes)
    layouts = {line: None for line in records if line.startswith(LAYOUT)}
    for line in layouts:
        marker.declare(line)
    times = {line: _t(line) for line in records if not line.startswith(LAYOUT)}
    first_t = min(times.values()) // _SECOND * _SECOND
    loop_t = first_t + SETTLED_S * _SECOND
    hello = {**msgspec.json.decode(greeting)["gconsole"], "agent": f"{_MARK}a0;", "wanted": []}
    out = [b"%d %d" % (LOOP_S, SETTLED_S), b"H\t" + _encode({"gconsole": hello}), *(b"O\t" + line for line in layouts)]
    for line, t in times.items():
        second, number = (t - first_t) // _SECOND, (t - loop_t) // _SECOND
        if second < OPENING_S:
            out.append(b"O\t" + marker.mark(line, first_t + OPENING_S * _SECOND))
        elif number < 0 and line.startswith(b'{"kind":'):  # rows before the loop are of ticks
            out.append(b"P%d\t" % (second - OPENING_S) + marker.mark(line, first_t + second * _SECOND))
        elif 0 <= number < LOOP_S:
            out.append(b"%d\t" % number + marker.mark(line, loop_t + number * _SECOND))
    return b"\n".join(out) + b"\n"


class _Marker:
    """Replaces what differs between nodes and ticks by marks."""

    def __init__(self, nodes: int) -> None:
        self._world_size = nodes * RANKS
        self._layouts: dict[int, list[str]] = {}
        self._tick_t = self._tick_mono = 0

    def declare(self, line: bytes) -> None:
        frame = msgspec.json.decode(line)
        self._layouts[frame["layout"]] = frame["names"]

    def mark(self, line: bytes, tick_t: int) -> bytes:
        """The line with marks relative to the tick that began at `tick_t`."""
        frame = msgspec.json.decode(line)
        t, mono = (frame[3], frame[4]) if isinstance(frame, list) else (frame["t"], frame["mono"])
        self._tick_t, self._tick_mono = tick_t, mono - (t - tick_t)
        if isinstance(frame, list):
            number, _, count, t, mono, rows = frame
            names = self._layouts[number]
            rows = [[self._marked(name, value) for name, value in zip(names, row, strict=True)] for row in rows]
            return _encode([number, f"{_MARK}s{count};", count, self._marked("t", t), self._marked("mono", mono), rows])
        return _encode({**{name: self._marked(name, value) for name, value in frame.items()}, "seq": f"{_MARK}s1;"})

    def _marked(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._marked(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._marked(name, item) for item in value]
        if isinstance(value, str):
            return f"{value[:-4]}{_MARK}n0;" if value.startswith("GPU-") or name in ("boot_id", "hostname") else value
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        if name == "rank":
            return f"{_MARK}r{value};"
        if name == "world_size":
            return self._world_size
        for mark, tick in (("t", self._tick_t), ("m", self._tick_mono)):
            if abs(value - tick) < _NEAR:
                return f"{_MARK}{mark}{value - tick};"
        return value


def _encode(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode("ascii")
    return _NUMBER_MARK.sub(b"\x01\\1", text).replace(b"\\u0001", b"\x01")


def _t(line: bytes) -> int:
    frame = msgspec.json.decode(line)
    return int(frame[3] if isinstance(frame, list) else frame["t"])


@contextmanager
def stand_ins(
    lines: Sequence[bytes], nodes: int, interval_ms: int = 1000, *, has_gateway: bool = False
) -> Iterator[Path]:  # fmt: skip
    """The hosts.toml of so many nodes, each of which is a stand-in behind a real sshd, and behind a gateway."""
    with Rig(nodes=0, name="bench", max_startups="2000") as rig:
        server = rig.add_node("server")
        ssh = {"user": server.user, "identity_file": str(rig.key), "known_hosts": str(rig.known_hosts)}
        if has_gateway:
            gateway = rig.add_bastion("login1")
            give_key(rig, gateway)
            ssh["gateway"] = gateway.address
        folder = server.folder / "stand-ins"
        folder.mkdir()
        (folder / "ticks").write_bytes(ticks_of(lines, nodes))
        program = folder / "stand_in"
        subprocess.run(["cc", "-O2", "-o", program, _SOURCE], check=True)
        hosts = ["[cluster]", 'name = "stand-ins"', "[agent]", f"sample_interval_ms = {interval_ms}"]
        hosts += ["[ssh]", *(f"{name} = {json.dumps(value)}" for name, value in ssh.items())]
        for number in range(nodes):
            (folder / (_NAME % number)).hardlink_to(program)
            hosts += [
                "[[nodes]]", f'hosts = "node{number + 1:04d}"', f'address = "{server.address}"',
                *([] if has_gateway else [f"port = {server.port}"]),
                f'python = "{server.inside}/{folder.name}/{_NAME % number}"',
            ]  # fmt: skip
        path = folder / "hosts.toml"
        path.write_text("\n".join(hosts) + "\n")
        yield path
