"""Lateness of 20, 5 and 1 ms once a step of 1, 8, 25 and 100 collectives, in recorded arrivals on a busy machine.

The name of a recording is its label: collectives of a step, ms by which rank 2 was late, load. The labels were planted
before any result was seen.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from gconsole.analysis.skew.findings import skew_findings
from gconsole.analysis.skew.lateness import JobSkew, skew_by_job
from gconsole.analysis.skew.sync_points import SyncPoint

from .arrivals import ARRIVALS, read

RECORDED = sorted(ARRIVALS.glob("*.json.xz"))
LATE_RANK, MAX_MS = 2, 0.3
#: Random exchanges of each recording.
SEEDS = 5


def label(path: Path) -> tuple[int, float]:
    """Collectives of a step, and ms."""
    collectives, late_ms, _ = path.name.split("-", 2)
    return int(collectives), float(late_ms)


def named(skew: JobSkew, max_ms: float = MAX_MS) -> list[str]:
    return [culprit for finding in skew_findings([skew], (), (), max_ms) for culprit in finding.culprits]


def exchanged(points: list[SyncPoint], seed: int) -> list[SyncPoint]:
    """The same collectives with arrivals exchanged between ranks at random: no rank is late."""
    chance = random.Random(seed)
    made = []
    for point in points:
        ranks = [(arrival.rank, arrival.node) for arrival in point.arrivals]
        chance.shuffle(ranks)
        arrivals = tuple(
            msgspec.structs.replace(arrival, rank=rank, node=node)
            for arrival, (rank, node) in zip(point.arrivals, ranks, strict=True)
        )
        made.append(msgspec.structs.replace(point, arrivals=arrivals))
    return made


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.xz"))
def test_late_rank_is_found_and_no_other_one_is_a_culprit(path: Path) -> None:
    collectives, late_ms = label(path)
    [skew] = skew_by_job(read(path))
    culprits = [culprit.rank for culprit in skew.culprits]
    if not late_ms:
        assert (culprits, named(skew)) == ([], [])
        return
    assert culprits == [LATE_RANK]
    [culprit] = skew.culprits
    assert culprit.behind_ns is not None and culprit.behind_bound_ns is not None
    assert abs(culprit.behind_ns - late_ms * 1e6) <= max(0.7e6, culprit.behind_bound_ns)
    if collectives > 1:
        assert culprit.per_step is not None
        assert (culprit.per_step.size, culprit.per_step.is_placed) == (collectives, True)
    assert named(skew, late_ms / 4) == [f"rank {LATE_RANK}"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".json.xz"))
def test_nobody_is_named_where_the_same_lateness_is_of_each_rank_in_turn(path: Path) -> None:
    points = read(path)
    for seed in range(SEEDS):
        [skew] = skew_by_job(exchanged(points, seed))
        assert [culprit.rank for culprit in skew.culprits] == [], seed


def test_every_lateness_is_recorded_behind_every_number_of_collectives() -> None:
    labels = {label(path) for path in RECORDED}
    assert labels == {(collectives, late_ms) for collectives in (1, 8, 25, 100) for late_ms in (0.0, 20.0, 5.0, 1.0)}
