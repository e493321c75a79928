"""The smallest lateness of one rank that is found, behind 1, 8, 25 and 100 collectives a step; real gloo jobs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from jobs import find_torch_python, gloo_environment, start_plain
from jobs.launch import FOLDER
from program import GCONSOLE, run_program
from rig import Rig

from .result import Outcome, Row

SCRIPT = FOLDER / "late_in_step.py"
#: Milliseconds, the planted lateness; 0 is a healthy job. Collectives of one step.
LATE_MS = (0.0, 20.0, 5.0, 1.0)
A_STEP = (1, 8, 25, 100)
LATE_RANK = 2
#: For how long the recorders of a job are read. 100 collectives take a third of a second, or more on a busy machine.
ARGUMENTS = ("--skew", "--set", "skew.max_ms=0.3", "--for")
FOR_S, FOR_100_S = "10s", "30s"


def measure(quick: bool) -> Outcome:
    rows = []
    with Rig(nodes=2, name="late") as rig, tempfile.TemporaryDirectory() as scratch:
        for collectives in A_STEP[1:2] if quick else A_STEP:
            for late_ms in LATE_MS[:2] if quick else LATE_MS:
                rows.append(_measured(rig, Path(scratch), collectives, late_ms))
    return Outcome(
        rows,
        [
            f"four gloo ranks on two nodes, steps of 20 ms; rank {LATE_RANK} sleeps longer before the first collective"
            f" of each step; Flight Recorder of 2,000 entries, read every 5 s for {FOR_S}, with 100 collectives for"
            f" {FOR_100_S}; late per step ± its error bar",
            "found: that rank, and no other one; healthy: no rank. A sleep ends late by as much as the machine is busy",
            f"console, SSH, agents and job share one machine; load average {os.getloadavg()[0]:.1f} at the end",
        ],
        ["the others arrive within the jitter of the machine: lateness below it is not resolved, and no rank is named"],
    )


def _measured(rig: Rig, folder: Path, collectives: int, late_ms: float) -> Row:
    """One job of its own, so that its record has no steps of another lateness."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml")
    for node in rig.nodes:
        (node.folder / "late").write_text(f"{late_ms}")
    env = {
        **gloo_environment(rig), "COLLECTIVES": str(collectives), "LATE_RANK": str(LATE_RANK),
        "LATE_FILE": f"{rig.nodes[0].inside}/late",
    }  # fmt: skip
    with start_plain(rig, SCRIPT, rig.nodes, 2, env, python=str(find_torch_python())) as job:
        job.wait_ready(300.0)
        return _row(hosts, folder / "report.json", collectives, late_ms)


def _row(hosts: Path, report: Path, collectives: int, late_ms: float) -> Row:
    report.unlink(missing_ok=True)
    for_s = FOR_100_S if collectives == A_STEP[-1] else FOR_S
    run_program([GCONSOLE, "batch", hosts, "-q", *ARGUMENTS, for_s, "-o", report], deadline_s=180.0)
    skew: dict[str, Any] = json.loads(report.read_text())["skew"]
    named = {culprit["rank"]: culprit for culprit in skew["culprits"]}
    words = [
        f"rank {rank}: {culprit['behind_ns'] / 1e6:.2f} ± {culprit['behind_bound_ns'] / 1e6:.2f} ms"
        for rank, culprit in named.items()
    ]
    what = f"{late_ms:g} ms late, {collectives} a step" if late_ms else f"healthy, {collectives} a step"
    goal = f"rank {LATE_RANK}" if late_ms else "no rank"
    return Row(what, ", ".join(words) or "no rank", goal, set(named) == ({LATE_RANK} if late_ms else set()))
