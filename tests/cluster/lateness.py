"""A fleet with known clock errors, and a job in which one rank is late.

Timestamps of ranks and agents have the error of their node's clock, so the true time of every event is known.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import skewed_clocks
from jobs import find_torch_python, gloo_environment, start_plain
from jobs.launch import FOLDER
from program import Run, run_program
from rig import Rig
from skewed_clocks import ClockError, ClockErrors, copy_with_wrong_clock

from gconsole.analysis.skew.findings import SkewSnapshot
from gconsole.cli.output import folded
from gconsole.monitor.skew import skew_of

#: Offsets of milliseconds, and drift: without measured clock lines no late rank could be identified.
ERRORS = {
    "node1": ClockError(), "node2": ClockError(300_000_000, 20_000), "node3": ClockError(-150_000_000, -30_000),
    "node4": ClockError(70_000_000, 10_000),
}  # fmt: skip
#: Error of reading one clock after another, on both sides of a difference, ns.
READING_NS = 2_000


@dataclass(frozen=True)
class LateGroup:
    """A process group in which one rank is late. Lateness below the machine's jitter uses planned arrival times."""

    group: str
    rank: int
    ns: int
    timing: str = "stamped"


@dataclass(frozen=True)
class SkewedFleet:
    """Nodes with clock errors and a job on them; `run` is the program, with agents that read those clocks."""

    hosts: Path
    clock_errors: ClockErrors
    late: tuple[LateGroup, ...]
    argv: tuple[str, ...]

    def run(self, *args: object) -> Run:
        report, records = self.hosts.with_suffix(".json"), self.hosts.with_suffix(".ndjson")
        for path in (report, records):
            path.unlink(missing_ok=True)
        run = run_program([*self.argv, "batch", self.hosts, *args, "-o", report, "--records", records])
        return Run(run.status, run.stdout, run.stderr, json.loads(report.read_text()))

    def skew_snapshot(self) -> SkewSnapshot:
        """The lateness result of the last run, with its evidence."""
        return skew_of(folded(self.hosts.with_suffix(".ndjson")))


def skewed_fleet(rig: Rig, folder: Path, *late: LateGroup) -> Iterator[SkewedFleet]:
    clock_errors = copy_with_wrong_clock(folder / "gconsole_remote", ERRORS)
    plan = json.dumps([[group.group, group.rank, group.ns, group.timing] for group in late])
    env = {"LATE": plan, **clock_errors.variables(), **gloo_environment(rig)}
    hosts = rig.write_hosts_toml(folder / "hosts.toml")
    # No launchers: they would be four more processes that import torch.
    script, python = FOLDER / "gloo_late_ranks.py", str(find_torch_python())
    with start_plain(rig, script, nproc_per_node=1, env=env, python=python) as job:
        job.wait_ready()
        yield SkewedFleet(
            hosts, clock_errors, late, (sys.executable, skewed_clocks.__file__, str(folder / "gconsole_remote"))
        )


def check_every_arrival(snapshot: SkewSnapshot, clock_errors: ClockErrors) -> int:
    """Assert that pairwise arrival differences are within their bounds; the number of pairs."""
    pairs = 0
    for pair in (arrivals for skew in snapshot.collectives for lateness in skew.analysed
                for arrivals in combinations(lateness.sync_point.arrivals, 2)):  # fmt: skip
        near, far = pair
        true = clock_errors.true_realtime_ns(far.node, far.stamp) - clock_errors.true_realtime_ns(near.node, near.stamp)
        error, bound = (
            abs(far.instant.ns - near.instant.ns - true),
            far.instant.bound_ns + near.instant.bound_ns + READING_NS,
        )
        assert error <= bound, (near, far, true)
        pairs += 1
    return pairs


def lines_of(run: Run, late: LateGroup) -> list[dict[str, Any]]:
    """The collectives of that group in a report."""
    return [line for line in run.report["skew"]["sync_points"] if line["group"] == late.group]


def check_nothing_is_ranked_below_its_bound(lines: Sequence[dict[str, Any]], late: LateGroup) -> None:
    """Two namespaces of an idle machine may have such small bounds that even this is resolved, which is correct."""
    for line in lines:
        assert line["last"] == [] if line["bound_ns"] >= late.ns else line["last"] in ([], [late.rank]), line
