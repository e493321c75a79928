"""What the console would save if figures that no view or recording needs came as 5 s digests (docs/architecture.md).

The records of a real agent are replayed for 64 nodes in four ways; the findings are evaluated as in a console.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .process import in_new_process
from .result import Outcome, Row, middle
from .stream import AgentOutput, Fields, record_agent
from .throughput import replayed_share

NODES, RUNS = 64, 3
WARM_UP_S, MEASURED_S = 5, 20
#: Seconds of one digest.
PERIOD_S = 5
#: What comes as digests, and by what each record is replaced; everything else keeps its rate.
WAYS: Mapping[str, tuple[str, ...]] = {
    "all at 1 Hz": (),
    "what no finding reads (host)": ("host",),
    "also gpu, if findings read digests": ("host", "gpu"),
    "all but agent_cost": ("host", "gpu", "rank_stat"),
}
_STATISTICS = ("util_pct", "mem_used_bytes", "power_w", "temp_c", "sm_clock_mhz")


def measure(quick: bool) -> Outcome:
    nodes, runs, measured_s = (8, 1, 5) if quick else (NODES, RUNS, MEASURED_S)
    output = record_agent()
    shares: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(runs):  # alternately: the machine is not equally fast all the time
        for name, kinds in WAYS.items():
            thinned = digested(output, kinds)
            shares[name].append(
                in_new_process(replayed_share, thinned, nodes, WARM_UP_S, measured_s, has_findings=True)
            )
    full = statistics.median(shares["all at 1 Hz"])
    rows = []
    for name in WAYS:
        pct = statistics.median(shares[name])
        saved = f", {100 * (1 - pct / full):.0f} % less" if name != "all at 1 Hz" else ""
        rows.append(Row(f"{nodes} nodes, digests of: {name}", middle(shares[name], "% of a core", 2) + saved))
    return Outcome(rows, [
        f"as throughput, with findings evaluated each second; a digest each {PERIOD_S} s has min, mean, max and last of"
        f" {', '.join(_STATISTICS)} for a gpu, and the last record for other kinds; agent_cost stays as sign of life",
    ])  # fmt: skip


def digested(output: AgentOutput, kinds: tuple[str, ...]) -> AgentOutput:
    """The output with these kinds as digests. A `gpu` stays in the first second, in which the store meets the GPUs."""
    seconds = []
    for number in range(PERIOD_S):
        records = output.seconds[number % len(output.seconds)]
        kept = [record for record in records if record["kind"] not in kinds]
        if number == 0:
            kept += [_digest(record) for record in records if record["kind"] in kinds]
        seconds.append(kept)
    first = [record for record in output.seconds[0] if record["kind"] in kinds]
    return replace(output, once=[*output.once, *first], seconds=seconds)


def _digest(record: Fields) -> Fields:
    """The record that stands for several seconds."""
    if record["kind"] != "gpu":
        return record
    figures = {name: record[name] for name in _STATISTICS if record.get(name) is not None}
    digests = {name: {"min": figure, "mean": figure, "max": figure, "last": figure} for name, figure in figures.items()}
    plain = {name: record[name] for name in ("index", "uuid", "simulated") if name in record}
    return {"kind": "gpu_digest", **plain, "samples": PERIOD_S, **digests}
