"""Memory of `gconsole record` is bounded over hours, however many records pass through."""

from __future__ import annotations

import math
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from gconsole import records
from gconsole.cli.live import HeadlessRecording, run_batch
from gconsole.config import load
from gconsole.records import AgentCost, ClockSnapshot, Gpu, GpuInfo, Host, Node, Record, encode
from gconsole.session.format.layout import Session, named
from gconsole.session.manage.catalog import entry_of
from gconsole.session.record import recording

#: An hour of a node, with this many agents one after the other.
TICKS, AGENTS = 1_200, 3
#: Memory blocks of records that may remain: 720 clock samples by design (`clockbook`), some blocks each.
MOST_HELD = 10_000
#: A fake agent that sends its ticks, lines of two files, as fast as possible; after the last one it stays silent.
NODE = """
import json, os, sys, time
ticks, agents, folder = int(sys.argv[1]), int(sys.argv[2]), os.path.dirname(sys.argv[0])
once, tick = (open(os.path.join(folder, name)).read().splitlines() for name in ("once", "tick"))
with open(os.path.join(folder, "begun"), "a") as begun:
    begun.write("x")
    is_last = begun.tell() > agents
seq = 0

def say(lines):
    global seq
    said = []
    for line in lines:
        seq += 1
        said.append(line[:-1] + ',"seq":%d,"t":%d,"mono":%d}' % (seq, time.time_ns(), time.monotonic_ns()))
    sys.stdout.write("\\n".join(said) + "\\n")
    sys.stdout.flush()

hello = {"protocol": [1, 1], "agent": os.urandom(8).hex(), "arch": os.uname().machine, "wanted": []}
print(json.dumps({"gconsole": hello}, separators=(",", ":")))
say(once)
for _ in range(0 if is_last else ticks):
    say(tick)
if is_last:
    sys.stdin.read()  # until its console is gone
"""
DEADLINE_S = 300.0


def fast_node(folder: Path) -> Path:
    """A hosts.toml with one node, whose agents each end after `TICKS` ticks and are replaced."""
    once = [
        Node(hostname="n", boot_id="b", kernel="k", arch="x", python="3.11", uid=0, pid=1, sample_interval_ms=1000),
        GpuInfo(index=0, uuid="GPU-1", name="a card"),
    ]
    tick = [
        Host(cpu_pct=3.0), Gpu(index=0, uuid="GPU-1", util_pct=90.0), AgentCost(sample_interval_ms=1000),
        ClockSnapshot(real=1, monotonic=1, raw=1, boot=1, width_ns=1, reads=1),
    ]  # fmt: skip
    for name, templates in (("once", once), ("tick", tick)):
        (folder / name).write_bytes(b"\n".join(_unstamped(record) for record in templates))
    (folder / "node.py").write_text(NODE)
    (folder / "node").write_text(f"#!/bin/sh\nexec {sys.executable} {folder}/node.py {TICKS} {AGENTS}\n")
    (folder / "node").chmod(0o755)
    hosts = folder / "hosts.toml"
    hosts.write_text(f'[ssh]\ntransport = "local"\n[agent]\npython = "{folder}/node"\n[[nodes]]\nhosts = "here"\n')
    return hosts


def _unstamped(record: Record) -> bytes:
    fields = msgspec.json.decode(encode(record))
    return msgspec.json.encode({name: value for name, value in fields.items() if name not in ("seq", "t", "mono")})


def _record_blocks() -> int:
    """Number of live memory blocks of records that came from nodes."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, records.__file__)])
    return sum(block.count for block in snapshot.statistics("filename"))


@pytest.mark.timeout(400)
def test_hours_of_recording_keep_only_current_records_in_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("GCONSOLE_SESSIONS_FOLDER", str(tmp_path / "sessions"))
    config, session = load(str(fast_node(tmp_path))), named("night", tmp_path / "sessions")
    held = [TICKS * AGENTS * 99]

    def look() -> None:
        """Runs once all records are on the disk and the periodic tasks have run."""
        deadline = time.monotonic() + DEADLINE_S
        try:
            while held[-1] > MOST_HELD and time.monotonic() < deadline:
                time.sleep(0.5)
                if session.path.is_dir() and _on_disk(session) >= TICKS * AGENTS:
                    held.append(_record_blocks())
        finally:
            recording.request_stop(session)

    looking = threading.Thread(target=look)
    tracemalloc.start()
    try:
        looking.start()
        run_batch(config, for_s=math.inf, quiet=True, recording=HeadlessRecording("night", None))
        looking.join()
    finally:
        tracemalloc.stop()

    assert held[-1] <= MOST_HELD, f"records of past ticks are still in memory: {held}"


def _on_disk(session: Session) -> int:
    meta = entry_of(session).meta
    return meta.counts.get("agent_cost", 0) if meta is not None else 0
