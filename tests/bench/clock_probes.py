"""Cost of clock probes for a node and its SSH channel, and their accuracy between namespaces of one machine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rig import Rig

from .result import Outcome, Row, middle

#: Seven nodes, each compared with each: three own and three answered edges, as in any larger fleet at default settings.
NODES, PEERS = 7, 6
#: `high` probes 8 peers: the smallest fleet with that many.
HIGH_NODES, HIGH_PEERS, HIGH_S = 9, 8, 20.0
SSH_GOAL_US = 100
MEASURED_S = 30.0
CPU_GOAL_PCT, HIGH_CAP_PCT, BYTES_GOAL = 15.0, 60.0, 8000.0
#: Added by the console on arrival; not on the wire.
_OURS = ("node", "agent", "rx")


def measure(quick: bool) -> Outcome:
    long_s = 6.0 if quick else MEASURED_S
    default = _run(3 if quick else NODES, long_s, "default")
    pair = _run(2, long_s, "default")
    high = _run(2, long_s, "high")
    ssh = _run(2, min(long_s, HIGH_S), "default", method="ssh")
    crowd = _run(3 if quick else HIGH_NODES, min(long_s, HIGH_S), "high", HIGH_PEERS)
    cpu, sent = default.cpu_pct, default.bytes_s
    return Outcome(
        [
            Row(f"probing's CPU at default, {default.nodes} nodes", middle(cpu, "% of a core"), "≤ 15 %",
                statistics.median(cpu) <= CPU_GOAL_PCT),
            Row(f"clock records over SSH at default, {default.nodes} nodes", middle(sent, "B/s a node", 0),
                "≤ 8 kB/s", max(sent) <= BYTES_GOAL),
            Row("probing's CPU at default, one edge, both ends", middle(pair.cpu_pct, "% of a core")),
            Row("probing's CPU at high, one edge, both ends", middle(high.cpu_pct, "% of a core"), peer="at default",
                ratio=statistics.median(high.cpu_pct) / statistics.median(pair.cpu_pct)),
            Row("cadence in force at high, one edge", middle([us / 1000 for us in high.cadence_us], "ms")),
            Row("bound of an edge at default", middle(default.bounds_us, "µs", 1)),
            Row("error of an edge at default, the truth being 0", middle(default.errors_us, "µs")),
            Row("windows whose error is beyond the bound", f"{default.misses} of {len(default.bounds_us)}", "0",
                default.misses == 0),
            Row("error of an edge over SSH, the truth being 0", middle(ssh.errors_us, "µs", 1), f"≤ {SSH_GOAL_US} µs",
                statistics.median(ssh.errors_us) <= SSH_GOAL_US),
            Row("bound of an edge over SSH", middle(ssh.bounds_us, "µs", 1)),
            Row("windows over SSH whose error is beyond the bound", f"{ssh.misses} of {len(ssh.bounds_us)}", "0",
                ssh.misses == 0),
            Row(f"probing's CPU at high, {crowd.nodes} nodes, {HIGH_PEERS} peers each",
                middle(crowd.cpu_pct, "% of a core"), "≤ 60 % (cpu_cap_pct)",
                statistics.median(crowd.cpu_pct) <= HIGH_CAP_PCT),
            Row(f"cadence in force at high, {crowd.nodes} nodes", middle([us / 1000 for us in crowd.cadence_us], "ms")),
            Row(f"ticks missed on two cores, high, {crowd.nodes} nodes", f"{crowd.missed_pct:.0f} %"),
            Row(f"bound of an edge at high, {crowd.nodes} nodes", middle(crowd.bounds_us, "µs", 1)),
            Row(f"error of an edge at high, {crowd.nodes} nodes", middle(crowd.errors_us, "µs")),
            Row(f"windows whose error is beyond the bound, high, {crowd.nodes} nodes",
                f"{crowd.misses} of {len(crowd.bounds_us)}", "0", crowd.misses == 0),
        ],
        [
            f"gconsole batch --clocks --for {long_s:g}s on namespaces of one machine, which share its clock: every true"
            " offset is 0; the figures of each second after the first, of every node",
            "CPU is that of the probing thread alone (`clock_cost`); bytes are those of bins, cost and snapshots as the"
            " agent wrote them; kernel stamps on arrival",
            f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores",
        ],
    )  # fmt: skip


class _Found:
    """The records of one run."""

    def __init__(self, nodes: int, records: Iterable[dict[str, Any]]) -> None:
        self.nodes = nodes
        costs: dict[str, list[dict[str, Any]]] = {}
        sizes: dict[str, int] = {}
        self.bounds_us: list[float] = []
        self.errors_us: list[float] = []
        first, last, ticks, missed = 0, 0, 0, 0
        for record in records:
            kind = record["kind"]
            if kind == "clock_cost":
                costs.setdefault(record["node"], []).append(record)
            if kind in ("clock_bins", "clock_cost", "clock_snapshot"):
                wire = {name: value for name, value in record.items() if name not in _OURS}
                sizes[record["node"]] = sizes.get(record["node"], 0) + len(msgspec.json.encode(wire)) + 1
            if kind == "clock_bins":
                first, last = first or record["rx"], record["rx"]
                ticks, missed = ticks + record["ticks"], missed + record["missed"]
            if kind == "clock_window" and record["bound_ns"] is not None:
                self.bounds_us.append(record["bound_ns"] / 1000)
                self.errors_us.append(abs(record["beta_ns"]) / 1000)
        steady = [row for rows in costs.values() for row in rows[1:-1]]
        self.cpu_pct = [record["cpu_pct"] for record in steady]
        self.cadence_us = [record["cadence_us"] for record in steady if record["cadence_us"]]
        took_s = max(1.0, (last - first) / 1e9 + 1.0)
        self.bytes_s = [size / took_s for size in sizes.values()]
        self.missed_pct = 100.0 * missed / ticks if ticks else 0.0
        self.misses = sum(error > bound for error, bound in zip(self.errors_us, self.bounds_us, strict=True))


def _run(nodes: int, long_s: float, preset: str, peers: int = PEERS, method: str = "auto") -> _Found:
    with Rig(nodes=nodes, name="bench", mode="namespaces") as rig, tempfile.TemporaryDirectory() as scratch:
        records = Path(scratch, "records.ndjson")
        clock = {"preset": preset, "peers": peers, "method": method}
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"), clock=clock)
        argv = [str(Path(sys.executable).parent / "gconsole"), "batch", str(target), "--clocks", "--for", f"{long_s}s"]
        subprocess.run([*argv, "--quiet", "--records", str(records)], check=False, timeout=long_s + 120)
        lines = records.read_bytes().splitlines()
        return _Found(nodes, (msgspec.json.decode(line) for line in lines))
