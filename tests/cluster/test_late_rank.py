"""Who is late, of real nodes whose clocks are wrong by known amounts: real probes, real torch, the real program.

The ranks of the job are late by 20 ms, 2 ms, 200 µs and 5 µs, in process groups of their own. What ranks and agents
stamp is as wrong as the clock of their node, so the truth is known of every instant.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest
import shifted
from jobs import start_torchrun
from jobs.launch import FOLDER
from program import Run, run_program
from rig import Rig
from shifted import Truth, Wrong, copy_with_wrong_clock
from tmux import Tmux

from gconsole.cli.offline import folded
from gconsole.skewing import SkewSeen, skew_of

#: Milliseconds apart, and drifting: without the probes' lines nobody could say who was late.
ERRORS = {
    "node1": Wrong(), "node2": Wrong(300_000_000, 20_000), "node3": Wrong(-150_000_000, -30_000),
    "node4": Wrong(70_000_000, 10_000),
}  # fmt: skip
#: Reading one clock after another, on both sides of a difference, ns.
READING_NS = 2_000


@dataclass(frozen=True)
class Late:
    """A process group in which one rank is late. Below what a busy machine adds, ranks tell when they meant to come."""

    group: str
    rank: int
    ns: int
    told: str = "stamped"


MUCH = Late("late_20ms", 2, 20_000_000)
LESS = Late("late_2ms", 1, 2_000_000)
LITTLE = Late("late_200us", 3, 200_000, "planned")
NOTHING = Late("late_5us", 1, 5_000, "planned")


@dataclass(frozen=True)
class Fleet:
    """Nodes with wrong clocks and a job on them; `run` is the program, with agents that read those clocks."""

    hosts: Path
    truth: Truth
    argv: tuple[str, ...]

    def run(self, *args: object) -> Run:
        report, records = self.hosts.with_suffix(".json"), self.hosts.with_suffix(".ndjson")
        for path in (report, records):
            path.unlink(missing_ok=True)
        run = run_program([*self.argv, "batch", self.hosts, *args, "-o", report, "--records", records])
        return Run(run.status, run.stdout, run.stderr, json.loads(report.read_text()))

    def seen(self) -> SkewSeen:
        """The lateness that the last run told, with everything that it is made of."""
        return skew_of(folded(self.hosts.with_suffix(".ndjson")))


def fleet(rig: Rig, folder: Path, *late: Late) -> Iterator[Fleet]:
    truth = copy_with_wrong_clock(folder / "gconsole_remote", ERRORS)
    env = {"LATE": json.dumps([[one.group, one.rank, one.ns, one.told] for one in late]), **truth.variables()}
    hosts = rig.write_hosts_toml(folder / "hosts.toml")
    with start_torchrun(rig, rig.nodes, nproc_per_node=1, script=FOLDER / "gloo_beat.py", env=env) as job:
        job.wait_ready()
        yield Fleet(hosts, truth, (sys.executable, shifted.__file__, str(folder / "gconsole_remote")))


@pytest.fixture(scope="module")
def of_20_ms_and_5_us(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory, needs_namespaces: None, needs_torch: None
) -> Iterator[Fleet]:
    yield from fleet(rig, tmp_path_factory.mktemp("late"), MUCH, NOTHING)


def check_every_arrival(seen: SkewSeen, truth: Truth) -> int:
    """No two arrivals are further from where they truly were than their bounds; how many pairs there were."""
    pairs = 0
    for one in (arrivals for skew in seen.collectives for lateness in skew.judged
                for arrivals in combinations(lateness.meeting.arrivals, 2)):  # fmt: skip
        near, far = one
        true = truth.real(far.node, far.stamp) - truth.real(near.node, near.stamp)
        error, bound = abs(far.at.ns - near.at.ns - true), far.at.bound_ns + near.at.bound_ns + READING_NS
        assert error <= bound, (near, far, true)
        pairs += 1
    return pairs


def lines_of(run: Run, late: Late) -> list[dict[str, object]]:
    return [line for line in run.report["skew"]["meetings"] if line["group"] == late.group]


def test_batch_names_the_late_rank_with_its_bound_and_does_not_rank_what_the_clocks_cannot_tell(
    of_20_ms_and_5_us: Fleet,
) -> None:
    run = of_20_ms_and_5_us.run("--clocks", "--skew", "--fail-on", "straggler,desync")

    assert run.status == 1, run.stderr
    assert run.report["clocks"]["reference"] in ERRORS
    [culprit] = run.report["skew"]["culprits"]
    assert (culprit["rank"], culprit["node"]) == (MUCH.rank, "node3")
    assert culprit["behind_bound_ns"] < 1_000_000 < 10_000_000 < culprit["behind_ns"]
    [found] = [one for one in run.report["findings"] if one["id"] in ("straggler", "desync", "clock_violated")]
    assert (found["id"], found["culprits"]) == ("straggler", [f"rank {MUCH.rank}"])
    assert f"rank {MUCH.rank} on node3: last at" in run.stdout

    unresolved = lines_of(run, NOTHING)
    assert len(unresolved) >= 32 and all(line["last"] == [] for line in unresolved)
    assert run.report["skew"]["unresolved"][0]["unresolved"] >= len(unresolved)
    assert check_every_arrival(of_20_ms_and_5_us.seen(), of_20_ms_and_5_us.truth) > 300


def test_the_screen_shows_the_late_rank_in_its_lane_with_its_error_bar(of_20_ms_and_5_us: Fleet) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(" ".join(map(str, (*of_20_ms_and_5_us.argv, of_20_ms_and_5_us.hosts))), columns=140)
    try:
        terminal.until("4/4 nodes", "4/4 ranks")
        terminal.press("4")
        terminal.until("clock ±")
        terminal.press("s")
        terminal.until("SKEW", "LAST", f"✖ {MUCH.rank} ")
        lanes = [line for line in terminal.screen().splitlines() if "±" in line and " node" in line]
        first = next(line for line in lanes if line.strip().split()[0] == str(MUCH.rank))
        assert lanes.index(first) == 0 and "✖" in first and "node3" in first
        terminal.press("q")
        terminal.until_gone()
    finally:
        terminal.close()


def culprits(seen: SkewSeen, of: Late) -> Sequence[int]:
    [skew] = seen.collectives
    own = [one for one in skew.judged if one.meeting.group == of.group]
    return sorted({rank for one in own for rank in one.last})


@pytest.mark.full
@pytest.mark.parametrize("late", [MUCH, LESS, LITTLE, NOTHING], ids=lambda late: late.group)
def test_a_late_rank_is_ranked_down_to_what_the_clocks_are_good_for(
    rig: Rig, tmp_path: Path, needs_namespaces: None, needs_torch: None, late: Late
) -> None:
    for one in fleet(rig, tmp_path, late):
        run = one.run("--skew", "--for", "8s", "--set", "skew.max_ms=0.001")
        seen = one.seen()
        [skew] = seen.collectives
        ranks = {line["rank"]: line for line in run.report["skew"]["ranks"]}
        print(f"\n{late.group}: {len(skew.judged)} judged, {skew.unresolved} unresolved; "
              f"rank {late.rank} {ranks[late.rank]}")  # fmt: skip
        assert check_every_arrival(seen, one.truth) > 100
        if late is NOTHING:
            assert run.report["skew"]["culprits"] == [] and skew.unresolved == len(skew.judged)
        else:
            assert [line["rank"] for line in run.report["skew"]["culprits"]] == [late.rank]
