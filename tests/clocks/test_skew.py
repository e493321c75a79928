"""Late ranks with known truth: synthetic nodes, probed clocks, ranks that stamp with their own nodes' REALTIME."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median_low
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from gconsole.analysis.clock.model import ClusterInstant, CommonClock
from gconsole.analysis.collectives.align import ProcessGroup, groups_of
from gconsole.analysis.collectives.period import period_of
from gconsole.analysis.skew.consistency import desyncs, desyncs_of_steps, violations
from gconsole.analysis.skew.findings import RankGpu, skew_findings
from gconsole.analysis.skew.lateness import JobSkew, skew_by_job
from gconsole.analysis.skew.per_step import binomial_tail
from gconsole.analysis.skew.sync_points import (
    StepProgress,
    capture_sync_points,
    first_of_periods,
    step_sync_points,
    sync_points,
)
from gconsole.core.store.steps import KEPT, KEPT_IN_ALL, StepObservation, StepTable
from gconsole.records import Collective, PgStatus, RankStat, Stack

from .synthetic import EPOCH, JITTER, MS, SECOND, US, VETH, Node, Path, make_nodes, probe_records, regular_edges, wire
from .synthetic_fleet import ClockFoldResult

NODES = make_nodes(4, 1)
PER_NODE = 2


def make_clock(path: Path, nodes: Sequence[Node] = NODES) -> CommonClock:
    records = []
    for number in range(3):
        records += probe_records(
            nodes, regular_edges(len(nodes), 1), number, 1.0 + 4 * number, path=lambda _a, _b: path
        )
    return ClockFoldResult(sorted(records, key=lambda record: record.rx)).clock


@pytest.fixture(scope="module")
def good_clock() -> CommonClock:
    """Bounds of about 3 us per edge."""
    return make_clock(VETH)


def entries(
    late_ns: dict[int, int], count: int = 40, seed: int = 1, noise_ns: int = 500, ranks: int = 8
) -> list[Collective]:
    """Flight Recorder entries of each rank: collectives every 100 ms, `late_ns` after the others, all end together."""
    rng = np.random.default_rng(seed)
    records = []
    for seq in range(count):
        begin = 3 * SECOND + seq * 100 * MS
        arrive = [begin + late_ns.get(rank, 0) + int(rng.integers(0, noise_ns + 1)) for rank in range(ranks)]
        over = max(arrive) + 2 * MS
        for rank, true in enumerate(arrive):
            node = NODES[rank // PER_NODE]
            real = EPOCH + node.real_off_ns
            records.append(
                Collective(
                    node=node.name, capture="c1", source="worker_server", job="llama", rank=rank, record_id=seq,
                    process_group=("0", "default_pg"), collective_seq_id=seq, profiling_name="nccl:all_reduce",
                    time_created_ns=real + true, time_discovered_completed_ns=real + over, state="completed",
                )
            )  # fmt: skip
    return records


def skew_of_entries(records: list[Collective], clock: CommonClock) -> JobSkew:
    [skew] = skew_by_job(sync_points(records, clock))
    return skew


@pytest.mark.parametrize("late_ns", [20 * MS, 2 * MS, 200 * US])
def test_a_late_rank_is_ranked_with_its_error_bar(good_clock: CommonClock, late_ns: int) -> None:
    skew = skew_of_entries(entries({5: late_ns}), good_clock)
    worst = skew.ranks[0]
    assert (worst.rank, worst.is_culprit, worst.share_last) == (5, True, 1.0)
    assert worst.behind_ns is not None
    assert worst.behind_bound_ns is not None
    assert abs(worst.behind_ns - late_ns) <= worst.behind_bound_ns + 1_000
    assert [culprit.rank for culprit in skew.culprits] == [5]
    assert skew.unresolved == 0


def test_five_microseconds_between_nodes_are_unresolved() -> None:
    """Over a switch; with smaller bounds (two namespaces of one machine) they may be resolved."""
    switch = Path(wire(6.0), wire(6.0))
    skew = skew_of_entries(entries({5: 5 * US}), make_clock(switch))
    assert skew.resolved == 0
    assert skew.unresolved == 40
    assert skew.culprits == ()
    assert all(not rank.is_resolved for rank in skew.ranks)


def test_coarse_clock_leaves_unresolved_what_a_good_clock_resolves(good_clock: CommonClock) -> None:
    coarse = make_clock(JITTER)
    assert skew_of_entries(entries({5: 60 * US}), good_clock).resolved == 40
    assert skew_of_entries(entries({5: 60 * US}), coarse).resolved == 0
    assert skew_of_entries(entries({5: 2 * MS}), coarse).culprits[0].rank == 5


def test_ranks_of_one_node_need_no_common_clock() -> None:
    records = [entry for entry in entries({1: 50 * US}, noise_ns=100) if entry.node == "node000"]
    skew = skew_of_entries(records, CommonClock({}, {}))
    assert [culprit.rank for culprit in skew.culprits] == [1]


def test_ranks_on_different_nodes_have_no_sync_points_without_a_common_clock() -> None:
    assert sync_points(entries({5: 20 * MS}), CommonClock({}, {})) == []


def test_sync_point_is_whole_only_when_all_possible_group_members_were_read(good_clock: CommonClock) -> None:
    records = [
        structs.replace(entry, process_group=("7", "dp")) for entry in entries({5: 20 * MS}) if entry.rank not in (6, 7)
    ]
    job, world = ("llama", 0), {("llama", 0): 8}
    assert not any(sync_point.is_whole for sync_point in sync_points(records, good_clock, (), world))
    assert all(sync_point.is_whole for sync_point in sync_points(records, good_clock, (), {job: 6}))

    def status(rank: int, ranks: tuple[int, ...] | None) -> PgStatus:
        return PgStatus(
            node="n", capture="c1", source="worker_server", job="llama", rank=rank, process_group=("7", "dp"),
            ranks=ranks,
        )  # fmt: skip

    assert all(
        sync_point.is_whole for sync_point in sync_points(records, good_clock, [status(0, tuple(range(6)))], world)
    )
    assert not any(
        sync_point.is_whole for sync_point in sync_points(records, good_clock, [status(0, tuple(range(8)))], world)
    )
    other_groups = [structs.replace(status(rank, None), process_group=("8", "tp")) for rank in (6, 7)]
    assert all(
        sync_point.is_whole for sync_point in sync_points(records, good_clock, other_groups, world)
    )  # read, but not a participant


def test_late_node_is_named_and_none_of_its_ranks(good_clock: CommonClock) -> None:
    late = dict.fromkeys((4, 5), 5 * MS)
    skew = skew_of_entries(entries(late), good_clock)
    assert skew.culprits == ()
    assert skew.together == ((4, 5),)
    [finding] = skew_findings([skew], [], [], max_ms=1.0)
    assert (finding.id, finding.confidence, finding.culprits) == ("straggler", "possible", (NODES[2].name,))
    assert "ranks 4-5" in finding.text or "ranks 4,5" in finding.text


def in_group(records: list[Collective], group: str, ranks: Sequence[int]) -> list[Collective]:
    return [structs.replace(entry, process_group=(group, group)) for entry in records if entry.rank in ranks]


def test_stages_that_are_late_because_of_one_of_them_are_not_named(good_clock: CommonClock) -> None:
    """Replicas of a pipeline: stage 5 is slow, stages 4 and 6 wait for its messages, which the record lacks."""
    records = [
        entry
        for stage in (0, 1, 2)
        for entry in in_group(entries({stage + 4: 20 * MS + stage * 30 * US}), f"dp{stage}", (stage, stage + 4))
    ]
    skew = skew_of_entries(records, good_clock)
    assert (skew.culprits, skew.together) == ((), ((4, 5, 6),))
    assert [finding.culprits for finding in skew_findings([skew], [], [], max_ms=1.0)] in ([()], [(NODES[1].name,)])


def test_rank_that_the_other_late_ranks_wait_for_is_the_cause(good_clock: CommonClock) -> None:
    """Rank 5 is late in its tensor group, and therefore it and its peer are late in their data groups."""
    late = 20 * MS
    records = [
        *in_group(entries({5: late}), "tp", (4, 5)),
        *in_group(entries({4: late + 50 * US}), "dp0", (0, 4)),
        *in_group(entries({5: late + 50 * US}), "dp1", (1, 5)),
    ]
    skew = skew_of_entries(records, good_clock)
    assert [culprit.rank for culprit in skew.culprits] == [5]
    assert skew.together == ()


def test_rank_that_is_far_later_than_those_that_are_late_with_it_is_the_cause(good_clock: CommonClock) -> None:
    records = [
        *in_group(entries({4: 20 * MS}), "dp0", (0, 4)),
        *in_group(entries({1: 2 * MS}), "dp1", (1, 5)),
    ]
    skew = skew_of_entries(records, good_clock)
    assert ([culprit.rank for culprit in skew.culprits], skew.together) == ([4], ())


def test_ranks_that_are_late_together_are_judged_by_their_lateness_beyond_chance(good_clock: CommonClock) -> None:
    """Two pairs whose second ranks are 12 ms late three of four times, and their first ranks at the fourth."""
    records = []
    for seq in range(80):
        first, second = (0, 1) if seq % 4 == 3 else (4, 5)
        late = [
            record for record in entries({first: 12 * MS, second: 12 * MS}, count=80) if record.collective_seq_id == seq
        ]
        records += [*in_group(late, "dp0", (0, 4)), *in_group(late, "dp1", (1, 5))]
    skew = skew_of_entries(records, good_clock)
    assert skew.together == ((4, 5),)
    assert [finding.text for finding in skew_findings([skew], (), (), 10.0)] == []
    assert [finding.id for finding in skew_findings([skew], (), (), 5.0)] == ["straggler"]


def test_groups_with_one_description_are_analysed_apart(good_clock: CommonClock) -> None:
    """Four neighbouring pairs, two of which meet at the begin of a step and two in its middle; rank 1 is late once."""
    records = []
    for number, group in enumerate("abcd"):
        late = {1: 5 * MS} if group == "a" else {}
        own = in_group(entries(late, seed=number), group, (2 * number, 2 * number + 1))
        after_ns = 50 * MS * (number // 2)
        records += [
            structs.replace(
                record, process_group=(group, "neighbours"), time_created_ns=record.time_created_ns + after_ns,
                time_discovered_completed_ns=record.time_discovered_completed_ns + after_ns,
            )
            for record in own
        ]  # fmt: skip
    skew = skew_of_entries(records, good_clock)
    assert [culprit.rank for culprit in skew.culprits] == [1]
    assert {(share.name, share.ranks) for share in skew.by_group} == {("neighbours", 8)}


def test_time_the_other_ranks_waited_is_attributed_to_the_late_rank(good_clock: CommonClock) -> None:
    skew = skew_of_entries(entries({5: 20 * MS}, count=50), good_clock)
    assert skew.ranks[0].caused_gpu_s == pytest.approx(7 * 50 * 0.020, rel=0.01)
    assert skew.ranks[0].waited_gpu_s == 0.0
    assert sum(rank.waited_gpu_s for rank in skew.ranks) == pytest.approx(skew.ranks[0].caused_gpu_s)


def test_ranks_late_at_random_are_not_culprits(good_clock: CommonClock) -> None:
    rng = np.random.default_rng(7)
    records = []
    for seq in range(60):
        late = int(rng.integers(0, 8))
        records += [entry for entry in entries({late: 2 * MS}, count=60, seed=seq) if entry.collective_seq_id == seq]
    skew = skew_of_entries(records, good_clock)
    assert skew.resolved == 60
    assert skew.culprits == ()


@pytest.mark.parametrize("a_step", [1, 4, 8, 25, 100])
@pytest.mark.parametrize("late_ns", [20 * MS, 5 * MS, MS])
@pytest.mark.parametrize("sizes_differ", [False, True])
def test_rank_late_once_a_step_is_found_behind_other_collectives(
    good_clock: CommonClock, a_step: int, late_ns: int, sizes_differ: bool
) -> None:
    """At the others of a step the ranks arrive within half a millisecond, in random order."""
    records = []
    for record in entries({}, count=12 * a_step, noise_ns=500 * US):
        number = (record.collective_seq_id or 0) % a_step
        assert record.time_created_ns is not None
        if record.rank == 5 and number == 0:
            record.time_created_ns += late_ns
        records.append(structs.replace(record, input_numel=1024 + number if sizes_differ else 1024))
    skew = skew_of_entries(records, good_clock)
    assert [culprit.rank for culprit in skew.culprits] == [5]
    worst = skew.ranks[0]
    assert worst.behind_ns == pytest.approx(late_ns, rel=0.75)
    if a_step == 8 and late_ns == 20 * MS:
        [finding] = skew_findings([skew], (), (), 10.0)
        assert finding.culprits == ("rank 5",)
        expected = "was last in 12 of 12 steps of 8 collectives" if sizes_differ else "caused most of the waiting in"
        assert expected in finding.text


@pytest.mark.parametrize("seed", range(20))
def test_random_delays_of_all_ranks_make_no_straggler_by_steps(good_clock: CommonClock, seed: int) -> None:
    """A busy machine: at one of ten collectives some rank is delayed by up to 60 ms."""
    rng = np.random.default_rng(seed)
    records = entries({}, count=64, noise_ns=500 * US, seed=seed)
    late = {(int(rng.integers(0, 8)), seq): int(rng.integers(0, 60 * MS)) for seq in range(64) if rng.random() < 0.1}
    for record in records:
        assert record.time_created_ns is not None
        record.time_created_ns += late.get((record.rank or 0, record.collective_seq_id or 0), 0)
    assert list(skew_findings([skew_of_entries(records, good_clock)], (), (), 10.0)) == []


def test_growing_lateness_is_reported_as_a_trend(good_clock: CommonClock) -> None:
    records = [
        entry
        for seq in range(40)
        for entry in entries({5: seq * 100 * US}, count=40, seed=seq)
        if entry.collective_seq_id == seq
    ]
    worst = skew_of_entries(records, good_clock).ranks[0]
    assert worst.trend_ns == pytest.approx(2 * MS, rel=0.1)


def test_chance_of_being_last_follows_the_binomial_distribution() -> None:
    assert binomial_tail(10, 0, 0.1) == 1.0
    assert binomial_tail(2, 2, 0.5) == pytest.approx(0.25)
    assert binomial_tail(40, 40, 1 / 8) == pytest.approx(8.0**-40)


def test_collectives_with_a_missing_record_count_as_incomplete(good_clock: CommonClock) -> None:
    records = [entry for entry in entries({5: MS}) if not (entry.rank == 5 and (entry.collective_seq_id or 0) % 2)]
    skew = skew_of_entries(records, good_clock)
    assert skew.incomplete == 20
    assert skew.ranks[0].sync_points == 20


def test_rank_with_two_captures_is_counted_once(good_clock: CommonClock) -> None:
    once = entries({5: MS})
    assert len(sync_points([*once, *entries({5: MS})], good_clock)) == 40


def test_collectives_that_end_before_they_start_are_a_clock_violation(good_clock: CommonClock) -> None:
    assert violations(sync_points(entries({5: MS}), good_clock)) == []
    records = entries({})
    for record in records:
        if record.node == "node003":  # its clock differs from the reported one
            assert record.time_created_ns is not None
            assert record.time_discovered_completed_ns is not None
            record.time_created_ns += 30 * MS
            record.time_discovered_completed_ns += 30 * MS
    points = sync_points(records, good_clock)
    broken = violations(points)
    assert len(broken) == 40
    assert broken[0].entered.node == "node003"
    assert [finding.id for finding in skew_findings(skew_by_job(points), broken, (), 1000.0)] == ["clock_violated"]


def test_a_finding_names_the_culprit_the_victims_and_the_figures(good_clock: CommonClock) -> None:
    points = sync_points(entries({5: 20 * MS}), good_clock)
    gpus = {("llama", 0, rank): RankGpu(f"n:gpu{rank}", 1980.0 if rank != 5 else 1200.0, 600.0) for rank in range(8)}
    [finding] = skew_findings(skew_by_job(points), (), (), 10.0, gpus)
    assert (finding.id, finding.culprits) == ("straggler", ("rank 5",))
    assert finding.victims == tuple(f"rank {rank}" for rank in (0, 1, 2, 3, 4, 6, 7))
    assert "last at 40 of 40 collectives" in finding.text
    assert "1200 MHz, its peers at 1980 MHz" in finding.text
    assert list(skew_findings(skew_by_job(points), (), (), 30.0)) == []


def test_skew_is_broken_down_by_group_and_node_with_rank_percentiles(good_clock: CommonClock) -> None:
    records = entries({5: 20 * MS})
    for record in records:
        record.process_group = ("1", "dp") if (record.collective_seq_id or 0) % 4 else ("2", "tp")
    skew = skew_of_entries(records, good_clock)
    assert [(share.name, share.ranks, share.last) for share in skew.by_group] == [("dp", 8, 30), ("tp", 8, 10)]
    assert sum(share.caused_gpu_s for share in skew.by_group) == pytest.approx(skew.by_node[0].caused_gpu_s)
    worst, *other_ranks = skew.ranks
    assert worst.median_ns <= worst.p99_ns == pytest.approx(20 * MS, rel=0.01)
    assert worst.median_after_median_ns == pytest.approx(20 * MS, rel=0.01)
    assert all(rank.chance == 1.0 for rank in other_ranks) and worst.chance == pytest.approx(8.0**-40)


def test_rank_captured_late_is_found_from_capture_sync_points(good_clock: CommonClock) -> None:
    def stack(rank: int, sample: int) -> Stack:
        node = NODES[rank // PER_NODE]
        began = EPOCH + node.real_off_ns + 5 * SECOND + sample * SECOND + (9 * MS if rank == 6 else 0)
        return Stack(
            node=node.name, capture="c1", sample=sample, at=began, job="llama", rank=rank, pid=rank, start_ticks=1,
            role="rank", status="ok", began=began, ended=began + MS,
        )  # fmt: skip

    [skew] = skew_by_job(
        capture_sync_points([stack(rank, sample) for rank in range(8) for sample in range(10)], good_clock)
    )
    assert [culprit.rank for culprit in skew.culprits] == [6]
    assert skew.culprits[0].behind_ns == pytest.approx(9 * MS, rel=0.01)


def group_read(
    last: dict[int, int],
    began: dict[int, int],
    *,
    took: int = 100,
    op: str = "all_reduce",
    source: str = "worker_server",
) -> list[ProcessGroup]:
    """One group in one capture: `last` collective of each rank, all completed, and when the read of each rank began."""
    entries, statuses = [], []
    for rank, done in last.items():
        about: dict[str, Any] = {
            "node": "n", "capture": "c1", "source": source, "job": "llama", "rank": rank, "process_group": ("1", "dp"),
            "read_at": began[rank],
        }  # fmt: skip
        statuses.append(PgStatus(ranks=tuple(last), took_ns=took, last_enqueued_collective=done, **about))
        entries += [
            Collective(
                record_id=seq, collective_seq_id=seq, profiling_name=f"nccl:{op}", state="completed", retired=True,
                **about,
            )
            for seq in range(done + 1)
        ]  # fmt: skip
    return groups_of(entries, statuses, len(last))


def test_rank_that_has_not_entered_a_completed_collective_is_a_desync() -> None:
    last = {0: 9, 1: 9, 2: 4, 3: 9}
    [desync] = desyncs("llama", 0, [group_read(last, {0: 1_000, 1: 1_200, 2: 1_400, 3: 1_600})])
    assert (desync.behind, desync.furthest, desync.others) == ((2,), 4, 9)
    [finding] = skew_findings((), (), [desync], 10.0)
    assert (finding.id, finding.culprits, finding.confidence) == ("desync", ("rank 2",), "possible")
    assert finding.evidence == ("collective.collective_seq_id rank 2 4",)


def test_desync_that_two_captures_show_is_likely() -> None:
    now = group_read({0: 9, 1: 9, 2: 4, 3: 9}, dict.fromkeys(range(4), 5_000))
    before = group_read({0: 7, 1: 7, 2: 4, 3: 7}, dict.fromkeys(range(4), 1_000))
    [desync] = desyncs("llama", 0, [before, now])
    [finding] = skew_findings((), (), [desync], 10.0)
    assert (desync.behind, finding.confidence) == ((2,), "likely")


def test_rank_read_before_the_others_had_completed_is_not_a_desync() -> None:
    last = {0: 9, 1: 9, 2: 4, 3: 9}
    assert desyncs("llama", 0, [group_read(last, {0: 1_000, 1: 1_000, 2: 1_050, 3: 1_000})]) == []
    assert desyncs("llama", 0, [group_read(last, {0: 2_000, 1: 2_000, 2: 1_000, 3: 2_000})]) == []


def test_collective_that_ranks_may_leave_early_shows_no_desync() -> None:
    began = {0: 1_000, 1: 1_200, 2: 1_400, 3: 1_600}
    assert desyncs("llama", 0, [group_read({0: 9, 1: 9, 2: 4, 3: 9}, began, op="broadcast")]) == []


def test_dump_files_show_no_desync_because_they_may_be_old() -> None:
    began = {0: 1_000, 1: 1_200, 2: 1_400, 3: 1_600}
    assert desyncs("llama", 0, [group_read({0: 9, 1: 9, 2: 4, 3: 9}, began, source="fr_dump")]) == []


# -- steps -------------------------------------------------------------------------------------------------------------


def step_progress(node: Node, step: int, reached: Sequence[tuple[int, float]], every_s: float = 0.05) -> StepProgress:
    """A rank at steps, each first reached at that true second, sampled every `every_s`."""

    def mono(second: float) -> int:
        return int(node.clock.at(np.array([int(second * SECOND)], dtype=np.int64))[0])

    return StepProgress(
        node.name, step, [StepObservation(number, mono(second - every_s), mono(second)) for number, second in reached]
    )


def test_step_lateness_is_resolved_only_as_finely_as_steps_are_sampled(good_clock: CommonClock) -> None:
    steps = range(5, 15)
    ranks = {
        ("llama", 0, rank): step_progress(
            NODES[rank], 14, [(step, step / 2 + (0.2 if rank == 2 else 0.0)) for step in steps]
        )
        for rank in range(4)
    }
    [skew] = skew_by_job(step_sync_points(ranks, good_clock))
    assert [culprit.rank for culprit in skew.culprits] == [2]
    [finding] = skew_findings([skew], (), (), 10.0)
    assert "rank 2 on node002 was last at 10 of 10 steps" in finding.text
    assert finding.evidence[0].startswith("rank_stat.step")
    coarse_progress = {
        ("llama", 0, rank): step_progress(
            NODES[rank], 14, [(number, number / 2 + (0.2 if rank == 2 else 0.0)) for number in steps], 1.0
        )
        for rank in range(4)
    }
    assert skew_by_job(step_sync_points(coarse_progress, good_clock))[0].resolved == 0


def test_steps_are_inferred_from_the_collective_pattern_without_a_step_variable(good_clock: CommonClock) -> None:
    assert period_of(["a", "b", "b"] * 5) == 3
    assert period_of(["a", "b", "c", "d"]) is None
    records = entries({5: MS}, count=30)
    for record in records:
        record.profiling_name = "nccl:all_gather" if (record.collective_seq_id or 0) % 3 else "nccl:all_reduce"
    steps = first_of_periods(sync_points(records, good_clock))
    assert [step.number for step in steps] == list(range(10))
    assert skew_by_job(steps)[0].culprits[0].rank == 5


def read_steps(steps: dict[int, int], read: dict[int, int], seen: int = 0) -> dict[tuple[str, int, int], StepProgress]:
    """Ranks of one node: the step of each, when it was read, and, with `seen`, that it was first read then."""
    return {
        ("llama", 0, rank): StepProgress("n", step, [StepObservation(step, 0, seen)] if seen else (), 1, read[rank])
        for rank, step in steps.items()
    }


def test_rank_two_steps_behind_is_a_desync() -> None:
    read = {rank: 1_000 + rank for rank in range(8)}
    ranks = read_steps({rank: 98 if rank == 7 else 100 for rank in range(8)}, read)
    [desync] = desyncs_of_steps(ranks)
    assert (desync.behind, desync.furthest, desync.others) == ((7,), 98, 100)
    assert [(draft.id, draft.confidence) for draft in skew_findings((), (), [desync], 10.0)] == [("desync", "likely")]
    assert desyncs_of_steps(read_steps({rank: 99 if rank == 7 else 100 for rank in range(8)}, read)) == []


def test_rank_that_was_read_before_the_others_is_not_a_desync() -> None:
    steps = {rank: 900 if rank == 3 else 1000 for rank in range(8)}
    late = {rank: 1_000 if rank == 3 else 2_000 for rank in range(8)}
    assert desyncs_of_steps(read_steps(steps, late)) == []
    assert [desync.behind for desync in desyncs_of_steps(read_steps(steps, late, seen=900))] == [(3,)]


def test_steps_of_several_nodes_are_compared_on_the_common_clock_only(good_clock: CommonClock) -> None:
    def ranks(read_late_s: float) -> dict[tuple[str, int, int], StepProgress]:
        progress = {}
        for rank in range(4):
            second = 5.0 + (read_late_s if rank == 2 else 0.0)
            mono = int(NODES[rank].clock.at(np.array([int(second * SECOND)], dtype=np.int64))[0])
            progress["llama", 0, rank] = StepProgress(NODES[rank].name, 90 if rank == 2 else 100, (), 1, mono)
        return progress

    assert desyncs_of_steps(ranks(1.0)) == []
    assert [desync.behind for desync in desyncs_of_steps(ranks(1.0), good_clock)] == [(2,)]
    assert desyncs_of_steps(ranks(-1.0), good_clock) == []


class OffsetClock:
    """Stands for a common clock: each node's offset and error, ns; unknown for a node without them."""

    def __init__(self, nodes: dict[str, tuple[int, int] | None]) -> None:
        self._nodes = nodes

    def to_cluster(self, node: str, instant: int) -> ClusterInstant | None:
        known = self._nodes[node]
        return None if known is None else ClusterInstant(instant + known[0], known[1])


def behind_by_pairs(own: dict[int, StepProgress], clock: OffsetClock) -> tuple[int, ...]:
    """The ranks behind, where each is compared with each other one."""

    def is_before(other: StepProgress, mono: int, rank: StepProgress) -> bool:
        assert rank.read is not None
        if other.node == rank.node:
            return mono <= rank.read
        first, second = clock.to_cluster(other.node, mono), clock.to_cluster(rank.node, rank.read)
        return bool(first and second and first.ns + first.bound_ns <= second.ns - second.bound_ns)

    behind = []
    for number, rank in own.items():
        steps = []
        for other in (own[each] for each in own if each != number):
            sightings = [(step, mono) for step, _, mono in other.seen] + [(other.step, other.read)]
            passed = [step for step, mono in sightings if None not in (other.read, rank.read)
                      and is_before(other, mono or 0, rank)]  # fmt: skip
            steps += [max(passed)] if passed else []
        if len(steps) * 2 >= len(own) and median_low(steps) - rank.step >= 2:
            behind.append(number)
    return tuple(sorted(behind)) if len(behind) < len(own) / 2 else ()


@pytest.mark.parametrize("seed", range(200))
def test_ranks_behind_are_those_of_comparing_each_with_each_other_one(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randint(1, 6))]
    clock = OffsetClock({
        name: None if chance.random() < 0.15 else (chance.randint(-30, 30), chance.choice((0, 3, 20)))
        for name in names
    })  # fmt: skip
    own = {}
    for rank in range(chance.randint(2, 24)):
        lag = chance.choice((0, 0, 0, 0, 1, 2, 3, 9))
        times = sorted(chance.randint(0, 400) for _ in range(chance.randint(2, 5)))
        *seen, last = [(max(0, mono // 20 - lag + chance.randint(0, 1)), mono) for mono in times]
        read = None if chance.random() < 0.1 else last[1]
        own[rank] = StepProgress(chance.choice(names), last[0], tuple((step, 0, mono) for step, mono in seen), 1, read)
    result = desyncs_of_steps(
        {("llama", 0, rank): progress for rank, progress in own.items()}, cast(CommonClock, clock)
    )
    assert (result[0].behind if result else ()) == behind_by_pairs(own, clock)


def test_each_reading_of_thousands_of_ranks_is_placed_on_the_common_clock_once_or_twice() -> None:
    converted = []

    class Counting(OffsetClock):
        def to_cluster(self, node: str, instant: int) -> ClusterInstant | None:
            converted.append(node)
            return super().to_cluster(node, instant)

    count = 8192
    ranks = {
        ("llama", 0, rank): StepProgress(f"n{rank // 8}", 100 + rank % 5, ((90, 0, 500 + rank),), 1, 1_000 + rank)
        for rank in range(count)
    }
    clock = Counting({f"n{number}": (0, 1) for number in range(count // 8)})
    desyncs_of_steps(ranks, cast(CommonClock, clock))
    assert len(converted) <= 3 * count, "two readings of each rank, one of them as that to which others are compared"


def test_repeated_step_record_does_not_count_as_a_new_reading() -> None:
    table = StepTable()

    def add_reading(second: int, step: int, read: int) -> None:
        identity = {"job": "llama", "rank": 1, "pid": 7, "start_ticks": 7, "state": "moving"}
        jitter = second % 3 * 50  # ns; a node reads its two clocks one after the other
        times = {"t": EPOCH + second * SECOND + jitter, "mono": second * SECOND, "watched_at": EPOCH + read * SECOND}
        table.add(RankStat(node="n", step=step, **identity, **times), second)  # type: ignore[arg-type]

    for second in range(10, 20):
        add_reading(second, 100, 10)
    add_reading(21, 140, 20)
    [rank_steps] = table.ranks().values()
    assert (rank_steps.step, rank_steps.gained, rank_steps.read) == (140, 40, 20 * SECOND)
    assert rank_steps.seen == (StepObservation(140, 10 * SECOND - 50, 20 * SECOND),)


def test_step_table_keeps_only_the_newest_steps_of_many_ranks() -> None:
    def count_kept(ranks: int) -> int:
        table = StepTable()
        for step in range(300):
            for rank in range(ranks):
                table.add(RankStat(
                    node="n", job="llama", rank=rank, pid=rank, start_ticks=1, state="moving", step=step,
                    t=step * SECOND, mono=step * SECOND,
                ), step)  # fmt: skip
        histories = [rank_steps.seen for rank_steps in table.ranks().values()]
        assert all(steps[-1].step == 299 for steps in histories)
        return sum(len(steps) for steps in histories)

    assert count_kept(2) == 2 * KEPT
    assert count_kept(512) == KEPT_IN_ALL
