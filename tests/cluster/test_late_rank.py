"""Identifying late ranks on real nodes with known clock errors: real probes, real torch, the real program.

One rank is 20 ms late in one process group, another rank 5 µs late in another group.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from lateness import (
    ERRORS,
    LateGroup,
    SkewedFleet,
    check_every_arrival,
    check_nothing_is_ranked_below_its_bound,
    lines_of,
    skewed_fleet,
)
from rig import Rig
from tmux import Tmux

MUCH = LateGroup("late_20ms", 2, 20_000_000)
NOTHING = LateGroup("late_5us", 1, 5_000, "planned")


@pytest.fixture(scope="module")
def late_fleet(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory, needs_namespaces: None, needs_torch: None
) -> Iterator[SkewedFleet]:
    yield from skewed_fleet(rig, tmp_path_factory.mktemp("late"), MUCH, NOTHING)


def test_batch_reports_the_late_rank_and_nothing_below_the_clock_bound(
    late_fleet: SkewedFleet,
) -> None:
    run = late_fleet.run("--clocks", "--skew", "--fail-on", "straggler,desync")

    assert run.status == 1, run.stderr
    assert run.report["clocks"]["reference"] in ERRORS
    culprit, *others = run.report["skew"]["culprits"]
    assert (culprit["rank"], culprit["node"]) == (MUCH.rank, "node3")
    assert culprit["behind_bound_ns"] < 1_000_000 < 10_000_000 < culprit["behind_ns"]
    assert all(other["behind_ns"] < 100_000 for other in others)  # a smaller bound than 5 µs is better than required
    [finding] = [line for line in run.report["findings"] if line["id"] in ("straggler", "desync", "clock_violated")]
    assert (finding["id"], finding["culprits"]) == ("straggler", [f"rank {MUCH.rank}"])
    assert f"✖ {MUCH.rank:<4}  node3" in run.stdout

    lines = lines_of(run, NOTHING)
    assert len(lines) >= 32
    check_nothing_is_ranked_below_its_bound(lines, NOTHING)
    assert check_every_arrival(late_fleet.skew_snapshot(), late_fleet.clock_errors) > 300


@pytest.mark.full  # tui/test_skew_and_clocks draws lanes from records
def test_the_screen_shows_the_late_rank_in_its_lane_with_its_error_bar(late_fleet: SkewedFleet) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(" ".join(map(str, (*late_fleet.argv, late_fleet.hosts))), columns=140)
    try:
        terminal.until("4/4 nodes", "4/4 ranks")
        terminal.press("4")
        terminal.until("clock ±")
        terminal.press("s")
        terminal.until(" 0 node1 ", " 1 node2 ", f" {MUCH.rank} node3 ", " 3 node4 ", f"✖ {MUCH.rank} ")
        lanes = [line for line in terminal.screen().splitlines() if re.match(r" \d node\d .* ±", line)]
        assert len(lanes) == 4
        assert re.match(rf" {MUCH.rank} node3 +\d+\.\d+ ±0\.\d+ .*├?✖", lanes[0]), lanes[0]
        assert all("✖" not in lane.partition(" ✖ ")[0] for lane in lanes[1:])
        terminal.press("q")
        terminal.until_gone()
    finally:
        terminal.close()
