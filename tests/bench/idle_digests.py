"""What the console saves if figures that nothing shows come as digests (docs/architecture.md), and what digests cost.

The records of a real agent are replayed for 64 and for 128 nodes, with figures that move, as samples and as the digests
that the agent's own digester makes of them; the findings are evaluated as in a console.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import replace

import msgspec

from gconsole.analysis.health.conditions import REASONS, thresholds
from gconsole.analysis.health.state import HealthState
from gconsole.config.sections import HealthConfig
from gconsole.core.store import Store
from gconsole.core.wants import DIGESTED
from gconsole.records import GpuInfo, decode
from gconsole_remote.agent import wire
from gconsole_remote.agent.digests import Digester, Order

from .process import in_new_process
from .result import Outcome, Row, middle
from .stream import AgentOutput, Fields, record_agent
from .throughput import replayed_share

NODES, RUNS, ATTEMPTS = (64, 128), 3, 3
WARM_UP_S, MEASURED_S = 5, 20
#: Seconds of one digest, and of the stream, which is not repeated.
PERIOD_S, STREAM_S = 5, 32
#: Nodes whose records are folded in one thread.
CONSOLE_NODES = 16
#: Relative noise of figures, as of GPUs that train.
NOISE = 0.03
_MOVING = ("power_w", "power_instant_w", "sm_clock_mhz", "mem_util_pct", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s",
           "pcie_rx_bytes_s", "pcie_tx_bytes_s", "cpu_pct", "net_rx_bytes_s", "net_tx_bytes_s")  # fmt: skip
_SECOND = 1_000_000_000


def measure(quick: bool) -> Outcome:
    sizes, runs, measured_s = ((8,), 1, 5) if quick else (NODES, RUNS, MEASURED_S)
    samples = moving(record_agent())
    digests = digested(samples)
    rows = []
    for nodes in sizes:
        shares: dict[str, list[float]] = {"samples": [], "digests": []}
        for _ in range(runs):  # alternately: the machine is not equally fast all the time
            for name, output in (("samples", samples), ("digests", digests)):
                shares[name] += _share(output, nodes, measured_s)
        if min(map(len, shares.values())) < runs:
            rows.append(Row(f"{nodes} nodes", "not measured: the machine stood still in some runs"))
            continue
        ratio = statistics.median(one / other for one, other in zip(shares["digests"], shares["samples"], strict=True))
        rows.append(Row(f"{nodes} nodes, every sample", middle(shares["samples"], "% of a core", 2)))
        rows.append(Row(f"{nodes} nodes, digests of {', '.join(sorted(DIGESTED))}",
                        f"{middle(shares['digests'], '% of a core', 2)}; {ratio:.2f} of samples"))  # fmt: skip
    rows.append(Row("records and bytes a node and second, samples", _volume(samples)))
    rows.append(Row("records and bytes a node and second, digests", _volume(digests)))
    console_us = [statistics.median(_console_us(output) for _ in range(runs)) for output in (samples, digests)]
    rows.append(Row("console, decode, store and fold per node and second, samples", f"{console_us[0]:.0f} µs"))
    rows.append(Row("console, the same of digests", f"{console_us[1]:.0f} µs"))
    encoding, digesting = _agent_us(samples, 2 if quick else 10)
    rows.append(Row("agent, per node and second: JSON of samples", f"{encoding:.0f} µs"))
    rows.append(Row("agent, per node and second: digester and JSON of digests", f"{digesting:.0f} µs"))
    return Outcome(rows, [
        f"as throughput, with findings evaluated each second and history kept; digests of {PERIOD_S} s by the agent's"
        f" own digester with the thresholds of the health checks; {', '.join(_MOVING)} move by {NOISE:.0%} each second;"
        " ratio: median of the pairs of runs",
    ])  # fmt: skip


def _share(output: AgentOutput, nodes: int, measured_s: int) -> list[float]:
    """CPU of one run, or nothing: runs in which the machine stands still, so that nodes exceed their quota, fail."""
    for _ in range(ATTEMPTS):
        try:
            return [in_new_process(replayed_share, output, nodes, WARM_UP_S, measured_s, has_findings=True)]
        except RuntimeError as error:
            print(str(error)[:80], file=sys.stderr)
    return []


def moving(output: AgentOutput) -> AgentOutput:
    """The output for `STREAM_S` seconds, with figures that move."""
    draw = random.Random(1)
    seconds = []
    for number in range(STREAM_S):
        records = [dict(record) for record in output.seconds[number % len(output.seconds)]]
        for record in (record for record in records if record["kind"] in DIGESTED):
            for name in _MOVING:
                if isinstance(record.get(name), int | float):
                    record[name] = round(record[name] * (1 + draw.uniform(-NOISE, NOISE)), 1)
        seconds.append(records)
    return replace(output, seconds=seconds)


def digested(output: AgentOutput) -> AgentOutput:
    """What the agent sends in place of these samples; the first ones in which the store meets the GPUs stay."""
    now = [0]
    digester = _digester(output, now)
    seconds = []
    for number, records in enumerate(output.seconds):
        now[0] = number * _SECOND
        facts = digester.digest([(record["kind"], _fields(record)) for record in records], 1.0)
        seconds.append([{"kind": kind, **fields} for kind, fields in facts])
    return replace(output, seconds=seconds)


def _digester(output: AgentOutput, now: list[int]) -> Digester:
    fields = [{name: value for name, value in record.items() if name in GpuInfo.__struct_fields__}
              for record in output.once if record["kind"] == "gpu_info"]  # fmt: skip
    limits = thresholds(msgspec.convert(fields, list[GpuInfo]), HealthConfig().busy_pct)
    order = {
        "kinds": sorted(DIGESTED), "period_s": PERIOD_S, "reasons": list(REASONS),
        "thresholds": {name: list(values) for name, values in limits.items()},
    }  # fmt: skip
    return Digester(Order(order), lambda: now[0], lambda: now[0])


def _fields(record: Fields) -> Fields:
    return {name: value for name, value in record.items() if name not in ("kind", "seq", "t", "mono")}


def _volume(output: AgentOutput) -> str:
    steady = output.seconds[PERIOD_S : PERIOD_S * (len(output.seconds) // PERIOD_S)]
    records = sum(len(second) for second in steady) / len(steady)
    size = sum(len(msgspec.json.encode(record)) + 1 for second in steady for record in second) / len(steady)
    return f"{records:.1f} records, {size / 1000:.1f} kB"


def _console_us(output: AgentOutput) -> float:
    """CPU of this thread per second of a node, µs: records decoded, stored with history and folded for the checks."""
    store, state = Store(1 << 30), HealthState(HealthConfig().window_s, HealthConfig().busy_pct)
    used = 0.0
    for number, second in enumerate([output.once, *output.seconds]):
        now = {"t": number * _SECOND, "mono": number * _SECOND}
        lines = [msgspec.json.encode({**record, **now}) for record in second]
        for node in range(CONSOLE_NODES):
            began = time.thread_time()
            records = [decode(line) for line in lines]
            for record in records:
                record.node, record.agent, record.rx = f"node{node}", "a", number * _SECOND
            store.apply(records)
            state.add(records)
            used += time.thread_time() - began if number > PERIOD_S else 0.0
    return used / CONSOLE_NODES / (len(output.seconds) - PERIOD_S) * 1e6


def _agent_us(output: AgentOutput, turns: int) -> tuple[float, float]:
    """CPU of this thread per second of a node, µs: encoding all samples, and digesting with encoding the rest."""
    facts = [[(record["kind"], _fields(record)) for record in records] for records in output.seconds]
    plain, digesting = [], []
    for _ in range(turns):
        began = time.thread_time()
        for second in facts:
            for _, fields in second:
                wire.encode(fields)
        plain.append((time.thread_time() - began) / len(facts) * 1e6)
        now = [0]
        digester = _digester(output, now)
        began = time.thread_time()
        for number, second in enumerate(facts):
            now[0] = number * _SECOND
            for _, fields in digester.digest(second, 1.0):
                wire.encode(fields)
        digesting.append((time.thread_time() - began) / len(facts) * 1e6)
    return statistics.median(plain), statistics.median(digesting)
