"""Recorded arrivals of real gloo jobs in which one rank was late once a step: four ranks on two nodes, busy machine.

`python -m tests.collectives.arrivals RECORDS NAME` packs the records of `gconsole batch --skew --records` of the job
`late_in_step.py`: of each collective its number, the first arrival, and by rank the ns after it.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

from gconsole.analysis.clock.model import ClusterInstant
from gconsole.analysis.skew.sync_points import Arrival, SyncPoint, sync_points
from gconsole.cli.output import folded
from gconsole.monitor.skew import clock_of

ARRIVALS = Path(__file__).parent / "arrivals"
RANKS = 4


def read(path: Path) -> list[SyncPoint]:
    """The collectives of a recording."""
    recorded: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    points, first_ns = [], 0
    for number, after_ns, *late_ns in recorded["points"]:
        first_ns += after_ns
        arrivals = [
            Arrival(rank, recorded["nodes"][rank], ClusterInstant(first_ns + ns, recorded["bounds_ns"][rank]))
            for rank, ns in enumerate(late_ns)
        ]
        arrivals.sort(key=lambda arrival: arrival.instant.ns)
        points.append(
            SyncPoint(
                "collective", "late", 0, "default_pg", "all_reduce", number, tuple(arrivals), is_whole=True,
                is_binding=True, numel=256,
            )
        )  # fmt: skip
    return points


def packed(records: Path) -> bytes:
    """The arrivals in a recording of `gconsole batch --skew --records`."""
    store = folded(records)
    entries = [entry for capture in store.captures.values() for entry in (*capture.earlier, *capture.collectives)]
    nodes, bounds_ns, points, before_ns = [""] * RANKS, [0] * RANKS, [], 0
    for point in sync_points(entries, clock_of(store)):
        if len(point.arrivals) < RANKS:
            continue
        by_rank = sorted(point.arrivals, key=lambda arrival: arrival.rank)
        for arrival in by_rank:
            nodes[arrival.rank] = arrival.node
            bounds_ns[arrival.rank] = max(bounds_ns[arrival.rank], arrival.instant.bound_ns)
        first_ns = point.arrivals[0].instant.ns
        points.append([point.number, first_ns - before_ns, *(arrival.instant.ns - first_ns for arrival in by_rank)])
        before_ns = first_ns
    points[0][1] = 0
    recorded = {"nodes": nodes, "bounds_ns": bounds_ns, "points": points}
    return lzma.compress(json.dumps(recorded, separators=(",", ":")).encode(), preset=9)


if __name__ == "__main__":
    ARRIVALS.mkdir(exist_ok=True)
    (ARRIVALS / f"{sys.argv[2]}.json.xz").write_bytes(packed(Path(sys.argv[1])))
