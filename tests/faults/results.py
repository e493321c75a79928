"""Injects every fault and writes the measurements to RESULTS.md: `python -m tests.faults.results`, `make faults`.

make faults                          every fault, the long ones included: about 25 minutes; writes RESULTS.md
make faults ARGS="--rounds 3"        all of them three times
make faults ARGS="--keep old.jsonl"  adds the measurements of an earlier run (`--ledger` sets where they are stored)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import pick_mode

from tests.bench.conditions import ROOT, conditions

from . import measurements
from .measurements import Row

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = ("fault", "times", "lost", "doubled", "in a gap", "unhealthy after", "healthy after", "shown after",
        "other nodes", "message, notes")  # fmt: skip


def main() -> int:
    as_it_stands = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("faults", description=__doc__, formatter_class=as_it_stands)
    parser.add_argument("--rounds", type=int, default=1, help="number of runs; 0: only --keep")
    parser.add_argument("--short", action="store_true", help="without the long faults")
    parser.add_argument("--keep", action="append", type=Path, default=[], help="a ledger of an earlier run; repeatable")
    parser.add_argument("--ledger", type=Path, help="file for this run's measurements, NDJSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.ledger or Path(folder, "ledger.jsonl")
        path.touch()
        statuses = [_produce(path, options.short) for _ in range(options.rounds)]
        rows = [row for source in (*options.keep, path) for row in measurements.read(source)]
    about = [*conditions(pick_mode().name), ("runs", f"{options.rounds} of this command; from earlier runs:"
             f" {len(options.keep)}")]  # fmt: skip
    RESULTS.write_text(as_markdown(rows, about))
    print(f"{len(rows)} faults injected; written to {RESULTS.relative_to(ROOT)}")
    return max(statuses, default=0)


def _produce(path: Path, short: bool) -> int:
    env = {**os.environ, measurements.VARIABLE: str(path)}
    argv = [sys.executable, "-m", "pytest", "tests/faults", "-q", *(["-m", "not full"] if short else [])]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


def as_markdown(rows: Sequence[Row], about: Sequence[tuple[str, str]]) -> str:
    faults: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        faults[row.fault].append(row)
    lines = [
        "# Fault injection results", "",
        "Written by `make faults`. Each row is one fault, injected on real OpenSSH nodes in namespaces with jobs",
        "running, at random times. One console records them with `linger_s = 600` unless the row says",
        "otherwise; the screen of a second one without linger is read. Half of a fleet has one console at a",
        "time, unless the row says otherwise. Lost, doubled and in a gap count records by `seq`, over all runs.",
        "Times are in seconds: the median, and the worst of several. *Unhealthy after* counts from the",
        "fault, or from the last tick received, *healthy after* from the end of the fault (goals: 3 s and 2",
        "s), *shown after* from the fault to the message on the screen. *Other nodes* is the median latency of their",
        "ticks during the fault, to that before it (goal: at most 1.10), of nodes with an agent: 17 to 25 ms each.",
        "If half of a fleet fails, or a node violates the protocol, the cores were kept awake: otherwise the wake-up",
        "latency of this virtual machine changes the result by up to 4 ms. A dash: not measured, or it",
        "does not apply.",
        "",
        "| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD),
    ]  # fmt: skip
    lines += ["| " + " | ".join(_cells(fault, fault_rows)) + " |" for fault, fault_rows in faults.items()]
    lines += ["", "## Missed goals", "", *(_missed(faults) or ["none"])]
    lines += ["", "## Conditions", "", *(f"- {name}: {value}" for name, value in about)]
    return "\n".join(lines) + "\n"


#: (name, field, goal), applied to the worst measurement.
GOALS: Sequence[tuple[str, Callable[[Row], float | None], float]] = (
    ("lost", lambda row: row.lost, 0), ("doubled", lambda row: row.doubled, 0),
    ("unhealthy after, s", lambda row: row.unhealthy_s, 3.0), ("healthy after, s", lambda row: row.healthy_s, 2.0),
    ("latency of the other nodes", lambda row: row.others_ratio, 1.10),
)  # fmt: skip


def _missed(faults: Mapping[str, Sequence[Row]]) -> list[str]:
    lines = []
    for fault, rows in faults.items():
        for name, value, goal in GOALS:
            figures = [figure for figure in map(value, rows) if figure is not None]
            over = [figure for figure in figures if figure > goal]
            if over:
                times = f"{len(over)} of {len(figures)} times"
                lines.append(f"- {fault}: {name} {max(over):.4g} at worst, goal {goal:g}; {times}")
    return lines


def _cells(fault: str, rows: Sequence[Row]) -> list[str]:
    message = next((row.screen for row in reversed(rows) if row.screen), "")
    note = next((row.note for row in reversed(rows) if row.note), "")
    notes = "; ".join(part for part in (f"`{message}`" if message else "", note) if part).replace("|", "\\|")
    return [
        fault, str(len(rows)), _sum(rows, lambda row: row.lost), _sum(rows, lambda row: row.doubled),
        _sum(rows, lambda row: row.gap), _times(rows, lambda row: row.unhealthy_s),
        _times(rows, lambda row: row.healthy_s), _times(rows, lambda row: row.shown_s),
        _times(rows, lambda row: row.others_ratio, 2), notes,
    ]  # fmt: skip


def _sum(rows: Sequence[Row], value: Callable[[Row], int | None]) -> str:
    figures = [figure for figure in map(value, rows) if figure is not None]
    return f"{sum(figures):,}" if figures else "–"


def _times(rows: Sequence[Row], value: Callable[[Row], float | None], digits: int = 1) -> str:
    figures = [figure for figure in map(value, rows) if figure is not None]
    if not figures:
        return "–"
    middle = f"{statistics.median(figures):.{digits}f}"
    return middle if len(figures) == 1 else f"{middle} (worst {max(figures):.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
