"""Contract between agent and records: every kind, field and number that the real agent sends, on every Python."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

import msgspec
import pytest

from gconsole.config.model import NodeConfig
from gconsole.config.sections import AgentConfig, SshConfig, WatchConfig
from gconsole.core.bus import Hub
from gconsole.fleet.deploy.binaries import Binaries
from gconsole.fleet.deploy.send_binaries import Staging
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.wire import LineSplitter, unpack
from gconsole.records import KINDS, Log, Record
from gconsole.records.rows import Layout
from gconsole.transport.openssh import LocalTransport

#: The oldest supported Python, the console's, and the newest; versions in between run in `make full`.
FEW_VERSIONS = {"3.6", f"3.{sys.version_info.minor}", "3.13", "3.14"}
VERSIONS = [
    pytest.param(version, marks=[] if version in FEW_VERSIONS else [pytest.mark.full])
    for version in (f"3.{minor}" for minor in range(6, 15))
]
EXPECTED = {"node", "host", "setting", "capacity", "rank_setting",
            "agent_cost", "gpu_info", "gpu", "gpu_digest", "link", "process", "rank", "rank_stat",
            "clock_snapshot", "clock_source", "gpu_clock"}  # fmt: skip
MARK = "GCONSOLE_CONTRACT"
PROBE_TIMEOUT_S = 20.0
WORK = """
import time

def train():
    step, loss, secret = 0, 0.5, "nobody asked for this"
    while True:
        step += 1
        sum(range(1000))
        time.sleep(0.005)
train()
"""

STRICT = {
    kind: msgspec.defstruct(f"Strict{struct.__name__}", [], bases=(struct,), forbid_unknown_fields=True, tag=kind)
    for kind, struct in KINDS.items()
}
strictly = msgspec.json.Decoder(Union[tuple(STRICT.values())])  # noqa: UP007 - built from a tuple

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")


def the_python(version: str) -> str:
    """An interpreter of that version, of pyenv or the system; skips the test if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    folders = [home / "bin" for home in sorted(pyenv.glob(f"{version}.*"))]
    folders += [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if "shims" not in part]
    for folder in folders:
        if (folder / f"python{version}").exists():
            return str(folder / f"python{version}")
    pytest.skip(f"no Python {version} on this machine")


class Tap:
    """A transport that records all bytes."""

    def __init__(self) -> None:
        self.received, self.errors = b"", b""
        self.rows = 0
        self._local = LocalTransport()

    async def open(self, node, command, receiver):
        self.receiver = receiver
        return await self._local.open(node, command, self)

    def on_bytes(self, data: bytes) -> None:
        self.received += data
        self.receiver.on_bytes(data)

    def on_error_bytes(self, data: bytes) -> None:
        self.errors += data
        self.receiver.on_error_bytes(data)

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        self.exit_status = exit_status
        self.receiver.on_end(exit_status, error)

    def lines(self) -> list[bytes]:
        """The lines as the console unpacks them, each row as the object that it stands for."""
        lines: list[bytes] = []
        layouts: dict[int, Layout] = {}
        for line in map(unpack, LineSplitter().feed(self.received)):
            frame = json.loads(line) if line.startswith((b"[", b'{"layout":')) else None
            if isinstance(frame, dict):
                layouts[frame["layout"]] = Layout(frame["kind"], tuple(frame["names"]))
            elif isinstance(frame, list):
                number, first, _, t, mono, rows = frame
                self.rows += len(rows)
                raws = [msgspec.Raw(json.dumps(row).encode()) for row in rows]
                lines += [layouts[number].readable(row, seq, t, mono) or b"" for seq, row in enumerate(raws, first)]
            else:
                lines.append(line)
        return lines


@contextmanager
def a_rank(token: str) -> Iterator[subprocess.Popen]:
    """A Python process that acts as rank 1 of 2 and updates its step."""
    env = {**os.environ, MARK: token, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
    process = subprocess.Popen([sys.executable, "-c", WORK], env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PROBE_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - the condition is in another process
            await asyncio.sleep(0.02)


async def listen(python: str) -> tuple[Tap, list[Record], int]:
    """Run an agent beside a rank for a few ticks; returns the transport, the records and the pid of the rank."""
    token = secrets.token_hex(8)
    node = NodeConfig(
        name="here", process_filter=(MARK, token), ssh=SshConfig(transport="local"),
        agent=AgentConfig(python=python, ephemeral=True, simulate_gpus=2, sample_interval_ms=100, cpu_budget_pct=100.0),
        watch=WatchConfig(locals=("step", "loss"), every_s=1.0),
    )  # fmt: skip
    hub, tap, records = Hub(), Tap(), []
    hub.subscribe(records.extend)
    staging = Staging(hub, Binaries())
    link = NodeLink(node, tap, hub, staging.send_now, snapshot_period_ms=50, gpu_clock=True)
    with a_rank(token) as rank:
        link.start()
        try:
            await wait_until(lambda: enough(records))
            await probe_itself(link, records)
            staging.stage_py_spy(link)
            await wait_until(lambda: any(getattr(record, "watched", None) for record in records))
        finally:
            await link.stop()
            await staging.close()
    return tap, records, rank.pid


def enough(records: list[Record]) -> bool:
    kinds = [record.__struct_config__.tag for record in records]
    return set(kinds) >= EXPECTED and kinds.count("agent_cost") > 1 and kinds.count("rank_stat") > 1


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_agent_record_decodes_strictly_on_each_python_version(version):
    tap, records, pid = await listen(the_python(version))

    asks, hello, *lines = tap.lines()  # without a cache it asks for its modules first
    assert b'"gconsole"' not in asks
    sent = [line for line in lines if line.startswith(b'{"kind":')]
    others = [json.loads(line) for line in lines if not line.startswith(b'{"kind":')]
    strict = [strictly.decode(line) for line in sent]
    assert json.loads(hello)["gconsole"]["python"].startswith(version)
    assert all("pong" in frame or frame.get("ok") or "re" in frame for frame in others)
    assert {json.loads(line)["kind"] for line in sent} >= EXPECTED | PROBES
    assert tap.rows > len(strict) / 4
    assert [record.seq for record in strict] == list(range(1, len(strict) + 1))
    for line, record in zip(sent, strict, strict=True):
        understood = msgspec.to_builtins(record)
        assert json.loads(line).items() <= understood.items() or holds(understood, json.loads(line)), line
    assert [record for record in strict if isinstance(record, Log)] == []
    assert [record.text for record in records if isinstance(record, Log)] == []
    assert {record.pid for record in strict if isinstance(record, KINDS["rank"])} == {pid}
    watched = [record for record in strict if isinstance(record, KINDS["rank_stat"]) and record.watched]
    assert {(tuple(record.watched), record.watched["loss"], record.step > 0) for record in watched} == {
        (("step", "loss"), 0.5, True)
    }
    assert len({record.uuid for record in strict if isinstance(record, KINDS["gpu"])}) == 2
    assert (tap.exit_status, tap.errors) == (0, b"")


PROBES = {"clock_bins", "clock_cost"}


async def probe_itself(link: NodeLink, records: list[Record]) -> None:
    """Let an agent probe its own port, with itself as the peer."""
    port = await link.request("clock_listen", {"interface": "127.0.0.1", "for_s": 60.0})
    row = {"name": "here", "address": port["address"], "port": port["port"], "key": secrets.token_hex(16)}
    pace = {"cadence_us": 5000, "spacing_us": 100, "bin_ms": 100, "cpu_cap_pct": 60, "for_s": 60.0}
    peers = [{**row, "edge": 1, "probes": True}]
    assert await link.request("clock_probe", {"session": "s", "peers": peers, **pace}) == {"probing": True}
    await wait_until(lambda: {record.__struct_config__.tag for record in records} >= PROBES)
    assert await link.request("clock_stop", {}) == {"probing": False}


def holds(decoded: object, sent: object) -> bool:
    """Whether the decoded record contains everything in the sent JSON."""
    if isinstance(sent, dict):
        same = isinstance(decoded, dict)
        return same and all(key in decoded and holds(decoded[key], sent[key]) for key in sent)
    if isinstance(sent, list):
        same = isinstance(decoded, list | tuple) and len(decoded) == len(sent)
        return same and all(map(holds, decoded, sent))
    return decoded == sent
