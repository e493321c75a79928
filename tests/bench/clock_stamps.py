"""Accuracy gain and cost of kernel transmit stamps over user space stamps: why probes do not use them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rig import Rig

from .result import Outcome, Row, middle

RUNS, COUNT, PAUSE_S = 5, 2000, 0.001
_PROGRAM = Path(__file__).with_name("udp_stamps.py")


@dataclass(frozen=True)
class _Run:
    """Half of the minimum RTT, and the error of the midpoint of both floors, by stamps (us); CPU per packet (us)."""

    half_m_us: float
    half_k_us: float | None
    error_m_us: float
    error_k_us: float | None
    ask_us: float
    answer_us: float


def measure(quick: bool) -> Outcome:
    count, runs = (200, 1) if quick else (COUNT, RUNS)
    with Rig(nodes=2, name="bench", mode="namespaces") as rig:
        pairs = [(_run(rig, False, count), _run(rig, True, count)) for _ in range(runs)]
    plain, kernel = zip(*pairs, strict=True)
    m, k = [run.half_m_us for run in kernel], [run.half_k_us or 0.0 for run in kernel]
    error_m, error_k = [run.error_m_us for run in kernel], [run.error_k_us or 0.0 for run in kernel]
    return Outcome(
        [
            Row("half of the minimum RTT, veth, kernel transmit stamps (k)", middle(k, "µs"),
                peer=f"user space's (m) {middle(m, 'µs')}", ratio=statistics.median(k) / statistics.median(m)),
            Row("error of the midpoint of both floors, k, true offset 0", middle(error_k, "µs"),
                peer=f"m {middle(error_m, 'µs')}", ratio=statistics.median(error_k) / statistics.median(error_m)),
            *(_cost(role, [getattr(run, field) for run in kernel], [getattr(run, field) for run in plain])
              for role, field in (("asks", "ask_us"), ("answers", "answer_us"))),
        ],
        [
            f"two namespaces, {count} packets one after the other, {runs} runs; k reads each stamp of sending from the"
            " socket's error queue, an answer carries that of the answer before it; m and k of the same packets",
            "so k makes an edge's bound narrower by the way through the sending call, 2 to 5 µs, whatever the network's"
            " own round trip is, and costs each node that CPU for every packet: the product probes with m",
            f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores",
        ],
    )  # fmt: skip


def _cost(role: str, kernel: list[float], plain: list[float]) -> Row:
    return Row(f"CPU a packet of who {role}, k", middle(kernel, "µs", 1), peer=f"m {middle(plain, 'µs', 1)}",
               ratio=statistics.median(kernel) / statistics.median(plain))  # fmt: skip


def _run(rig: Rig, kernel: bool, count: int) -> _Run:
    near, far = rig.nodes
    argv, pipes = [sys.executable, "-I", str(_PROGRAM)], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with far.run([*argv, "answer", str(int(kernel))], text=True, **pipes) as answering:
        assert answering.stdin is not None and answering.stdout is not None
        port = answering.stdout.readline().strip()
        answer = json.loads(
            near.output([*argv, "ask", far.address, port, str(int(kernel)), str(count), str(PAUSE_S)], 60.0)
        )
        answering.stdin.close()
        answer_s = float(answering.stdout.readline())
    rows = answer["rows"]
    half_m, error_m = _floors([(t1, t2, t3, t4) for t1, _, t2, t3, t4, _ in rows])
    half_k = error_k = None
    if kernel:
        half_k, error_k = _floors([(k1, t2, k3, t4) for _, k1, t2, _, t4, k3 in rows if k1 and k3])
    return _Run(half_m, half_k, error_m, error_k, answer["cpu_s"] / count * 1e6, answer_s / count * 1e6)


def _floors(exchanges: list[tuple[int, int, int, int]]) -> tuple[float, float]:
    """(half of the minimum RTT, offset of the midpoint between the floors of both directions from 0), us."""
    half = min((t4 - t1) - (t3 - t2) for t1, t2, t3, t4 in exchanges) / 2000
    forward, backward = min(t2 - t1 for t1, t2, _, _ in exchanges), min(t4 - t3 for _, _, t3, t4 in exchanges)
    return half, abs(forward - backward) / 2000
