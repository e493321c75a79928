"""(b) Cost of the agent on a node at 1 Hz: eight simulated GPUs, eight ranks, 3,000 other processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from jobs import start_ring
from rig import Node, Rig
from rig.pythons import own_python

from tests.bench.process_usage import CpuShare, memory_bytes

from .result import Outcome, Row

GPUS, RANKS, OTHERS = 8, 8, 3_000
#: Seconds. A scan of all processes takes the agent 60 s; one and a half are measured.
WARM_UP_S, MEASURED_S = 30.0, 90.0
CPU_GOAL_PCT, RSS_GOAL_MB = 0.5, 25.0
#: From the issue that set the goals; nvitop needs a GPU, so it is not measured in this run and has no ratio.
PEER_CPU, PEER_RSS = "nvitop, GPUs only: 1.15 % (not of this run)", "nvitop, GPUs only: 33 MB (not of this run)"
DEADLINE_S = 60.0


def measure(quick: bool) -> Outcome:
    warm_up_s, measured_s, others = (6.0, 8.0, 300) if quick else (WARM_UP_S, MEASURED_S, OTHERS)
    rows = []
    for whose, python in interpreters().items():
        version, pct, rss = _cost(python, others, warm_up_s, measured_s)
        where = f"{whose} Python {version}"
        rows += [
            Row(f"agent's CPU at 1 Hz, {where}", f"{pct:.2f} % of a core", "≤ 0.5 %", pct <= CPU_GOAL_PCT, PEER_CPU),
            Row(f"agent's RSS, {where}", f"{rss / 1e6:.1f} MB", "≤ 25 MB", rss <= RSS_GOAL_MB * 1e6, PEER_RSS),
        ]
    return Outcome(
        rows,
        [
            f"one node of the rig, {GPUS} simulated GPUs, a real job of {RANKS} ranks, {others} sleeping processes; the"
            " node's cache was empty: code was compiled, py-spy received by this very agent",
            f"over {measured_s:g} s after {warm_up_s:g} s; CPU of all the agent's threads as the scheduler counts it,"
            " RSS is VmRSS at the end; 1 MB = 1,000,000 bytes",
        ],
    )


def interpreters() -> dict[str, Path]:
    """The interpreter of this environment, and the system's own if it is another one."""
    interpreters_by_name = {"this": own_python()}
    system = Path("/usr/bin/python3")
    if system.exists() and system.resolve() != interpreters_by_name["this"].resolve():
        interpreters_by_name["the system's"] = system.resolve()
    return interpreters_by_name


def _cost(python: Path, others: int, warm_up_s: float, measured_s: float) -> tuple[str, float, int]:
    """(version, CPU in % of a core, RSS in bytes) of an agent run by this interpreter."""
    with (
        Rig(nodes=1, name="bench", python=python) as rig,
        _sleeping_processes(rig.nodes[0], others),
        start_ring(rig, nproc_per_node=RANKS) as job,
        tempfile.TemporaryDirectory() as scratch,
    ):
        job.wait_ready()
        records = Path(scratch, "records.ndjson")
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), agent={"simulate_gpus": GPUS})
        with _recording_console(target, records):
            node = _first_node_record(records)
            pid = rig.nodes[0].outer_pid(node["pid"])
            time.sleep(warm_up_s)
            with CpuShare(pid) as share:
                time.sleep(measured_s)
            return node["python"], share.pct, memory_bytes(pid)[0]


@contextmanager
def _sleeping_processes(node: Node, count: int) -> Iterator[None]:
    """Idle processes on a node; the rig ends them with the node."""
    script = f"i=0; while [ $i -lt {count} ]; do sleep infinity & i=$((i+1)); done; wait"
    shell = node.run(["sh", "-c", script], stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + DEADLINE_S
    while len(node.processes()) < count:
        if time.monotonic() > deadline or shell.poll() is not None:
            raise RuntimeError(f"{len(node.processes())} of {count} processes started")
        time.sleep(0.2)
    yield


@contextmanager
def _recording_console(target: Path, records: Path) -> Iterator[None]:
    """A console that watches `target` until the block ends."""
    argv = [str(Path(sys.executable).parent / "gconsole"), "batch", str(target), "--for", "1h", "--quiet"]
    process = subprocess.Popen([*argv, "--records", str(records)], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _first_node_record(records: Path) -> dict[str, object]:
    """The agent's first `node` record."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        lines = records.read_bytes().split(b"\n")[:-1] if records.exists() else []
        for line in lines:
            record = msgspec.json.decode(line)
            if record["kind"] == "node":
                return record
        time.sleep(0.2)
    raise RuntimeError(f"no agent record within {DEADLINE_S:g} s")
