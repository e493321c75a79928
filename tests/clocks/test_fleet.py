"""Clock lines of a fleet: every line is within its bound, and no bound is claimed without data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from gconsole.analysis.clock.windows import ClockFold, ClockLimits
from gconsole.records import ClockBins, ClockSnapshot, ClockSource

from .synthetic import (
    ASYM_FIXED,
    EPOCH,
    JITTER,
    MS,
    SECOND,
    US,
    VETH,
    Path,
    make_nodes,
    probe_records,
    regular_edges,
    snapshot,
    uniform,
)
from .synthetic_fleet import ClockFoldResult, cluster_time_of, common_clock_at


def fold(count: int, windows: int = 3, path: Path = VETH, limits: ClockLimits | None = None, path_of=None, edges=None):
    nodes = make_nodes(count, 1)
    edges = edges or regular_edges(count, 1)
    records = []
    for number in range(windows):
        paths = path_of or (lambda _a, _b: path)
        records += probe_records(nodes, edges, 100 + number, 1.0 + 4.0 * number, path=paths)
    return nodes, ClockFoldResult(sorted(records, key=lambda record: record.rx), limits)


@cache
def six_nodes():
    """Three windows of six nodes; the result is read-only."""
    return fold(6)


@pytest.mark.parametrize("path", [VETH, JITTER, ASYM_FIXED])
@pytest.mark.parametrize("count", [2, 3, 6, 16])
def test_every_node_estimate_is_within_its_bound(count: int, path: Path) -> None:
    nodes, result = fold(count, path=path)
    assert len(result.last) == count
    assert {line.status for line in result.lines} == {"ok"}
    assert result.misses(nodes) == []


def test_reference_node_is_the_same_in_every_window_and_has_zero_bound() -> None:
    _, result = fold(8)
    assert len({line.reference for line in result.lines}) == 1
    reference = result.last[result.lines[0].reference]
    assert (reference.bound_ns, reference.alpha) == (0, 1.0)


def test_the_drift_of_a_node_is_measured_with_a_bound() -> None:
    nodes, result = fold(6)
    ppm = {node.name: node.clock.ppm for node in nodes}
    for line in result.lines:
        assert line.drift_ppm is not None
        assert line.drift_bound_ppm is not None
        truth = ((1 + ppm[line.node] * 1e-6) / (1 + ppm[line.reference] * 1e-6) - 1) * 1e6
        assert abs(line.drift_ppm - truth) <= line.drift_bound_ppm + 1e-3


@pytest.mark.parametrize("clock", ["raw", "real", "monotonic", "boot"])
@pytest.mark.parametrize("second", [2.0, 4.9, 9.3, 12.5, 14.0, 30.0, 300.0])
def test_timestamp_of_any_clock_converts_within_a_bound_that_grows_with_age(clock, second) -> None:
    nodes, result = six_nodes()
    truth = common_clock_at(result, nodes, second)
    for node in nodes:
        instant = cluster_time_of(result, node, second, clock)
        assert instant is not None
        assert abs(instant.ns - truth) <= instant.bound_ns + 2
    worst = {
        when: max(cluster_time_of(result, node, when, clock).bound_ns for node in nodes) for when in (9.3, 14.0, 300.0)
    }
    assert worst[9.3] < worst[14.0] < worst[300.0]


def test_asymmetric_edge_is_flagged_and_barely_shifts_node_offsets() -> None:
    asymmetric = Path(uniform(300.0, 300.1), uniform(0.2, 0.3))
    symmetric_nodes, symmetric_result = fold(16, path=VETH)
    bad = regular_edges(16, 1)[5]
    nodes, result = fold(16, path_of=lambda a, b: asymmetric if (a, b) == bad else VETH)
    flagged = {(window.node, window.dst) for window in result.windows if window.flagged}
    assert flagged == {(nodes[bad[0]].name, nodes[bad[1]].name)}
    assert result.misses(nodes) == []
    assert result.worst_ns(nodes) <= 2 * symmetric_result.worst_ns(symmetric_nodes) + 500


def test_asymmetric_ssh_edges_are_not_flagged() -> None:
    nodes = make_nodes(8, 1)
    asymmetric, edges = Path(uniform(115.0, 300.0), uniform(83.0, 300.0)), regular_edges(8, 1)
    over_ssh = {edge for edge in edges if 3 in edge}  # all edges of one node
    records = []
    for number in range(3):
        records += probe_records(
            nodes, edges, number, 1.0 + 4 * number, path=lambda a, b: asymmetric if (a, b) in over_ssh else VETH
        )
    for record in records:
        if isinstance(record, ClockBins) and "node003" in (record.node, record.dst):
            record.method, record.stamps = "ssh", "ssh"
    result = ClockFoldResult(sorted(records, key=lambda record: record.rx))
    assert not any(window.flagged for window in result.windows)
    assert {line.method for line in result.lines if line.node == "node003"} <= {"ssh"}
    assert result.last["node003"].status == "ok"
    assert result.misses(nodes) == []


def test_residuals_are_reported_only_for_edges_in_a_loop() -> None:
    _, result = fold(4, edges=[(0, 1), (1, 2), (0, 2), (2, 3)])
    assert {window.residual_ns is None for window in result.windows if window.dst == "node003"} == {True}
    assert all(window.residual_ns is not None for window in result.windows if window.dst != "node003")


def test_two_nodes_without_a_cross_check_get_the_noloop_warning() -> None:
    _, result = fold(2)
    assert all("noloop" in line.warnings for line in result.lines)


def test_partitioned_fleet_has_a_common_clock_only_in_the_larger_part() -> None:
    _, result = fold(5, edges=[(0, 1), (1, 2), (0, 2), (3, 4)])
    assert {name for name, line in result.last.items() if line.status == "ok"} == {"node000", "node001", "node002"}
    assert {result.last[name].status for name in ("node003", "node004")} == {"island"}
    assert result.clock.to_cluster("node003", 1) is None


def test_common_clock_of_a_single_node_is_its_own_realtime() -> None:
    nodes = make_nodes(1, 1)
    result = ClockFoldResult(snapshot(nodes[0], second * SECOND) for second in range(1, 30))
    real = EPOCH + 10 * SECOND + nodes[0].real_off_ns  # before the first line
    instant = result.clock.to_cluster("node000", real, "real")
    assert instant is not None
    assert abs(instant.ns - real) < 30 * US


def test_node_whose_clock_was_stepped_within_a_window_gets_no_bound() -> None:
    nodes = make_nodes(4, 1)
    records = probe_records(nodes, regular_edges(4, 1), 1, 1.0, path=lambda _a, _b: VETH)
    bins = [record for record in records if isinstance(record, ClockBins)]
    began = {node.name: min((item.base for item in bins if item.node == node.name), default=0) for node in nodes}
    for record in bins:
        if "node003" in (record.node, record.dst) and record.base - began[record.node] >= 2 * SECOND:
            record.ahead += MS if record.dst == "node003" else -MS
    result = ClockFoldResult(records)
    assert {window.status for window in result.windows if "node003" in (window.node, window.dst)} == {"noncausal"}
    assert result.last["node003"].bound_ns is None
    assert "noncausal" in result.last["node003"].warnings
    assert result.misses(nodes) == []


@pytest.mark.parametrize("second", [1, 2, 3])
@pytest.mark.parametrize("step_ns", [MS, -MS])
def test_step_that_the_path_hides_widens_the_bound_of_its_window(second: int, step_ns: int) -> None:
    """Under 5 ms of asymmetry, probes before and after a step of 1 ms still fit one line, which misses the truth."""
    nodes = make_nodes(2, 1)
    slow, fast = uniform(5000, 5100), uniform(50, 60)
    path = Path(slow, fast) if step_ns > 0 else Path(fast, slow)
    records = probe_records(nodes, [(0, 1)], 1, 1.0, path=lambda _a, _b: path)
    began = min(record.base for record in records if isinstance(record, ClockBins))
    for record in records:
        if isinstance(record, ClockBins) and record.base - began >= (second - 0.5) * SECOND:
            record.ahead += step_ns
    step = snapshot(nodes[1], int((1.0 + second) * SECOND) + 50 * MS)
    step.step_ns = step_ns
    result = ClockFoldResult(sorted([*records, step], key=lambda record: record.rx))
    (window,) = result.windows
    assert window.bound_ns is not None
    assert window.bound_ns > MS
    assert result.misses(nodes) == []


def test_step_after_the_window_does_not_shift_the_offset_in_it() -> None:
    nodes = make_nodes(3, 1)
    records = probe_records(nodes, regular_edges(3, 1), 1, 1.0, path=lambda _a, _b: VETH)
    own_ns = ClockFoldResult(records).last["node001"].offset_ns
    late = snapshot(nodes[1], int(4.95 * SECOND))  # the window ends at 5 s, its last records arrive after that
    late.step_ns = MS
    late.real += MS
    after = [record for record in records if isinstance(record, ClockSnapshot) and record.raw >= late.raw]
    for record in after:
        if record.node == "node001":
            record.real += MS
    line = ClockFoldResult(sorted([*records, late], key=lambda record: record.rx)).last["node001"]
    assert own_ns is not None
    assert line.offset_ns is not None
    assert abs(line.offset_ns - own_ns) < 50 * US
    assert "step" in line.warnings


def test_edge_that_contradicts_the_others_is_flagged() -> None:
    nodes = make_nodes(6, 1)
    records = probe_records(nodes, regular_edges(6, 1), 1, 1.0, path=lambda _a, _b: VETH)
    for record in records:
        if isinstance(record, ClockBins) and (record.node, record.dst) == ("node000", "node001"):
            record.ahead += MS  # a whole window is shifted: not detectable within the edge
    result = ClockFoldResult(records)
    assert [(window.node, window.dst) for window in result.windows if window.flagged] == [("node000", "node001")]
    assert result.misses(nodes) == []


def test_agent_in_another_time_namespace_gets_a_warning() -> None:
    nodes = make_nodes(3, 1)
    records = probe_records(nodes, regular_edges(3, 1), 1, 1.0, path=lambda _a, _b: VETH)
    for record in records:
        if record.node == "node001" and isinstance(record, ClockSnapshot):
            record.timens_monotonic_ns = 5 * SECOND
    assert "timens" in ClockFoldResult(records).last["node001"].warnings


def test_clock_steps_and_slews_are_warnings_and_keep_bounds_valid() -> None:
    nodes = make_nodes(3, 1)
    records = probe_records(nodes, regular_edges(3, 1), 1, 1.0, path=lambda _a, _b: VETH)
    for record in records:
        if record.node == "node001" and isinstance(record, ClockSnapshot):
            record.step_ns, record.slew_ppm = 3 * MS, 400.0
    result = ClockFoldResult(records)
    assert set(result.last["node001"].warnings) == {"step", "slew", "wide"}
    assert result.misses(nodes) == []


def test_probe_loss_is_counted_and_warned_about() -> None:
    _, result = fold(3, path=replace(VETH, lost_forward=0.5))
    assert all("loss" in line.warnings for line in result.lines)
    assert all(window.lost == pytest.approx(window.pairs / 2, rel=0.2) for window in result.windows)


def test_bound_above_the_limit_gets_the_wide_warning() -> None:
    _, result = fold(3, path=JITTER, limits=ClockLimits(max_bound_ns=10_000))
    assert all("wide" in line.warnings for line in result.lines if line.node != line.reference)


def test_user_space_stamps_busy_nodes_and_drifting_oscillators_get_warnings() -> None:
    nodes = make_nodes(3, 1)
    nodes[1] = replace(nodes[1], clock=replace(nodes[1].clock, ppm=150.0))
    records = probe_records(nodes, regular_edges(3, 1), 1, 1.0, path=lambda _a, _b: replace(VETH, mode="u"))
    for record in records:
        if isinstance(record, ClockBins):
            record.stamps = "user"
            if record.node == "node000":
                record.ticks, record.missed = 100, 6
    result = ClockFoldResult(records)
    assert all("userstamp" in line.warnings for line in result.lines)
    assert {line.node for line in result.lines if "loaded" in line.warnings} == {"node000"}
    off = {line.node for line in result.lines if "rate" in line.warnings}
    assert off == ({"node001"} if result.lines[0].reference != "node001" else {"node000", "node002"})
    assert result.misses(nodes) == []


def test_drift_within_its_error_bound_gets_no_rate_warning() -> None:
    nodes = make_nodes(3, 1)
    nodes[1] = replace(nodes[1], clock=replace(nodes[1].clock, ppm=150.0))
    noisy = Path(uniform(50, 3000), uniform(50, 3000))
    result = ClockFoldResult(probe_records(nodes, regular_edges(3, 1), 1, 1.0, path=lambda _a, _b: noisy))
    rates = [(line.drift_ppm, line.drift_bound_ppm) for line in result.lines]
    assert any(abs(drift) > 100 > abs(drift) - bound for drift, bound in rates), "the midpoint alone is too high"
    assert not any("rate" in line.warnings for line in result.lines)


# -- claims of time services -------------------------------------------------------------------------------------------


def time_service_records(count: int, bound_ns: int | None) -> list:
    nodes = make_nodes(count, 1)
    records = [snapshot(node, second * SECOND) for second in range(1, 15) for node in nodes]
    sources = [
        ClockSource(node=node.name, daemon="chrony", synced=True, offset_ns=0, bound_ns=bound_ns) for node in nodes
    ]
    return [*sources, *records]


def test_bound_without_probes_is_the_sum_of_both_ntp_bounds() -> None:
    line = ClockFoldResult(time_service_records(2, 40_000)).last["node001"]
    assert line.method == "ntp"
    assert line.bound_ns is not None
    assert 80_000 <= line.bound_ns < 81_000


def test_bound_is_unknown_without_probes_and_time_service_bounds() -> None:
    result = ClockFoldResult(time_service_records(2, None))
    line = result.last["node001"]
    assert (line.method, line.bound_ns, line.status) == ("system", None, "no_data")
    assert (line.offset_ns, line.drift_ppm) == (None, None), "not 0, which would be a measurement"
    assert result.clock.to_cluster("node001", 5, "real") is None


def test_time_service_bound_that_contradicts_probes_is_ignored() -> None:
    nodes = make_nodes(3, 1)  # their CLOCK_REALTIME are milliseconds apart
    sources = [ClockSource(node=node.name, daemon="chrony", synced=True, bound_ns=1_000) for node in nodes]
    result = ClockFoldResult([*sources, *probe_records(nodes, regular_edges(3, 1), 1, 1.0)])
    assert {line.method for line in result.lines} == {"probe"}
    assert result.misses(nodes) == []


def test_tighter_ptp_bound_consistent_with_probes_is_used() -> None:
    nodes = [replace(node, real_off_ns=0) for node in make_nodes(3, 1)]
    sources = [ClockSource(node=node.name, daemon="ptp4l", synced=True, bound_ns=1_000) for node in nodes]
    result = ClockFoldResult([*sources, *probe_records(nodes, regular_edges(3, 1), 1, 1.0)])
    assert {line.method for line in result.lines if line.node != line.reference} == {"ptp"}
    assert result.misses(nodes) == []


def test_fold_without_records_returns_no_estimates() -> None:
    fold = ClockFold(ClockLimits())
    assert fold.add([]) == []
    assert fold.finish() == []
