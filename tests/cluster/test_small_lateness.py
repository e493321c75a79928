"""The smallest lateness that is resolved, and the largest that is not, from the clocks' bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lateness import (
    LateGroup,
    SkewedFleet,
    check_every_arrival,
    check_nothing_is_ranked_below_its_bound,
    lines_of,
    skewed_fleet,
)
from rig import Rig

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces", "needs_torch")]

RANKED = [
    LateGroup("late_20ms", 2, 20_000_000), LateGroup("late_2ms", 1, 2_000_000),
    LateGroup("late_200us", 3, 200_000, "planned"),
]  # fmt: skip


@pytest.fixture
def a_fleet(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[SkewedFleet]:
    yield from skewed_fleet(rig, tmp_path, request.param)


@pytest.mark.parametrize("a_fleet", RANKED, indirect=True, ids=lambda late: late.group)
def test_late_rank_is_the_culprit_with_an_error_bound(a_fleet: SkewedFleet) -> None:
    [late] = a_fleet.late
    for _ in range(4):  # on a busy machine a window may resolve too little; it never names another rank
        run = a_fleet.run("--skew", "--for", "8s", "--set", "skew.max_ms=0.05", "--fail-on", "straggler")
        assert {culprit["rank"] for culprit in run.report["skew"]["culprits"]} <= {late.rank}
        if run.status == 1:
            break

    assert run.status == 1, run.stderr
    [skew] = a_fleet.skew_snapshot().collectives
    [culprit] = run.report["skew"]["culprits"]
    print(f"\n{late.group}: last at {culprit['last']} of {culprit['resolved']} resolved of {len(skew.analysed)},"
          f" {culprit['behind_ns'] / 1e3:.1f} ± {culprit['behind_bound_ns'] / 1e3:.1f} µs behind")  # fmt: skip
    assert culprit["rank"] == late.rank
    assert culprit["behind_bound_ns"] < culprit["behind_ns"]
    if late.timing == "planned":
        assert abs(culprit["behind_ns"] - late.ns) <= culprit["behind_bound_ns"]
    assert check_every_arrival(a_fleet.skew_snapshot(), a_fleet.clock_errors) > 100


@pytest.mark.parametrize(
    "a_fleet", [LateGroup("late_5us", 1, 5_000, "planned")], indirect=True, ids=lambda late: late.group
)
def test_lateness_below_the_clock_bound_is_not_ranked(a_fleet: SkewedFleet) -> None:
    [late] = a_fleet.late
    run = a_fleet.run("--skew", "--for", "8s", "--set", "skew.max_ms=0.001", "--fail-on", "straggler")

    [skew] = a_fleet.skew_snapshot().collectives
    bounds = sorted(lateness.bound_ns for lateness in skew.analysed)
    print(f"\n{skew.unresolved} of {len(skew.analysed)} unresolved, bounds {bounds[0] / 1e3:.1f} to"
          f" {bounds[-1] / 1e3:.1f} µs")  # fmt: skip
    check_nothing_is_ranked_below_its_bound(lines_of(run, late), late)
    if skew.unresolved == len(skew.analysed):
        assert run.status == 0 and run.report["skew"]["culprits"] == []
    assert check_every_arrival(a_fleet.skew_snapshot(), a_fleet.clock_errors) > 100


@pytest.mark.parametrize("a_fleet", RANKED[:1], indirect=True, ids=lambda late: late.group)
def test_bound_wider_than_the_limit_fails_the_run(a_fleet: SkewedFleet) -> None:
    run = a_fleet.run("--skew", "--set", "clock.max_bound_us=1", "--fail-on", "clock_unsynced")

    assert run.status == 1, run.stdout
    assert {finding["id"] for finding in run.report["findings"]} >= {"clock_unsynced", "straggler"}
