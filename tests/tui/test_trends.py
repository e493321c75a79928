"""Trends, resources and events of the Overview: what is folded, how it is written, and which panels have room."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
from clusters import busy_cluster
from fake_cluster import GIB, NOON, SECOND, FakeCluster
from hypothesis import given
from hypothesis import strategies as st
from running import running
from waiting import screen, shows, until

from gconsole.core.derived import Throttle
from gconsole.core.store import Store
from gconsole.core.store.steps import StepObservation
from gconsole.present.spans import as_text
from gconsole.records import Gpu, Host, Mark
from gconsole.text.cells import width_of
from gconsole.tui.models.resources import resources
from gconsole.tui.models.trends import BIN_S, BINS, OverviewFold, Trend, TrendGroup, step_trend
from gconsole.tui.views.events.model import EventLog
from gconsole.tui.views.overview.panels import (
    LEFT,
    RIGHT,
    event_lines,
    fill_columns,
    resource_lines,
    share_room,
    trend_lines,
    trends_height,
)

PANELS = (*LEFT, *RIGHT, "events-panel")


def with_history(*names: str) -> FakeCluster:
    """A cluster whose store keeps metrics over time."""
    cluster = FakeCluster(*names)
    cluster.store = Store(64 << 20)
    cluster.up()
    return cluster


def sample(cluster: FakeCluster, node: str, **figures: float) -> None:
    """One sample of the only GPU of a node."""
    cluster.publish(Gpu(node=node, index=0, uuid=f"GPU-{node}", **figures))


class Fold:
    """The fold of a cluster, run where it is called."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.app = cluster.app()
        self.fold = OverviewFold(cluster.store)
        self.fold._derived._throttle = Throttle(0.0, 0.0, time.monotonic)  # folds at once, not once a second

    def trends(self, key: str) -> dict[str, object]:
        frame = self.app.frames.builder.build()
        self.fold._derived.invalidate()
        self.fold.refresh(frame, lambda work: pytest.fail("a small cluster needs no thread"))
        return next(dict(group.trends) for group in self.fold.value.groups if group.key == key)


def test_utilisation_is_a_mean_and_power_a_sum_of_the_gpus_that_report():
    cluster = with_history("n1", "n2", "n3")
    fold = Fold(cluster)
    for _ in range(10):
        sample(cluster, "n1", util_pct=100.0, power_w=500.0, sm_clock_mhz=1_900.0)
        sample(cluster, "n2", util_pct=50.0, power_w=300.0, sm_clock_mhz=1_900.0)
        cluster.advance(1)
    sample(cluster, "n1", util_pct=100.0, power_w=500.0)
    trends = fold.trends("n1")
    assert trends["util"].now == pytest.approx(75) or trends["util"].now == pytest.approx(100)
    known = trends["util"].values[~np.isnan(trends["util"].values)]
    assert 75 in np.round(known)
    assert 800 in np.round(trends["power"].values[~np.isnan(trends["power"].values)])


def test_unknown_is_no_zero_and_an_old_value_is_not_the_present_one():
    cluster = with_history("n1")
    fold = Fold(cluster)
    sample(cluster, "n1", util_pct=80.0)
    assert fold.trends("n1")["util"].now == 80
    assert fold.trends("n1")["power"].now is None and not fold.trends("n1")["power"].is_known
    cluster.advance(60)
    trend = fold.trends("n1")["util"]
    assert trend.now is None and trend.is_known, "the curve goes on, its newest value is unknown"
    cluster.advance(600)
    assert not fold.trends("n1")["util"].is_known


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 100), st.integers(0, 8)), min_size=1, max_size=30))
def test_values_that_are_kept_equal_those_that_are_folded_anew(samples: list[tuple[int, float, int]]):
    cluster = with_history("n1")
    kept = Fold(cluster)
    for advance, util, _late in samples:
        cluster.advance(advance)
        sample(cluster, "n1", util_pct=util)
        kept.trends("n1")
    old, new = kept.trends("n1")["util"], Fold(cluster).trends("n1")["util"]
    np.testing.assert_array_equal(old.values, new.values)


def seen(*seconds_ago: float) -> Iterator[StepObservation]:
    """Steps in which the rank was seen, newest first; the newest step is 100."""
    for number, ago in enumerate(seconds_ago):
        yield StepObservation(100 - number, 0, NOON - int(ago * SECOND))


def test_step_time_is_the_median_of_the_newest_steps():
    trend = step_trend(list(seen(1, 3, 5, 7, 90)), NOON, 0.5)
    assert trend.now == pytest.approx(2) and trend.overdue_s is None
    assert trend.values[-1] == pytest.approx(2) and trend.values[-10] == pytest.approx(83)


def test_a_step_that_does_not_end_is_shown_as_a_rising_curve_without_a_step_time():
    trend = step_trend(list(seen(100, 102, 104)), NOON, 0)
    assert trend.now is None and trend.overdue_s == 100
    assert list(trend.values[-3:]) == pytest.approx([90, 95, 100])


def test_step_times_are_unknown_without_two_steps_and_where_the_step_was_not_read_lately():
    assert step_trend([], NOON, 0).now is None and not step_trend([], NOON, 0).is_known
    assert step_trend(list(seen(1)), NOON, 0).now is None
    late = step_trend(list(seen(1, 3, 5)), NOON, 40)
    assert late.now is None and late.overdue_s is None and late.is_known


@given(st.dictionaries(st.sampled_from(PANELS), st.integers(0, 200)), st.integers(0, 120), st.booleans())
def test_panels_fill_the_height_and_nothing_unimportant_displaces_what_matters(
    some: dict[str, int], height: int, wide: bool
):
    wanted = dict.fromkeys(PANELS, 1) | some
    columns = fill_columns(wanted, height, wide=wide)
    assert sorted(id for column in columns for id in column) == sorted(PANELS)
    for column in columns:
        assert sum(column.values()) == height
        assert all(lines >= 0 for lines in column.values())
    if not wide and columns[0]["jobs-panel"] == 0:
        assert not any(columns[0].values())
    if height >= 40 and not wide:
        assert all(columns[0][id] for id in ("jobs-panel", "findings-panel", "nodes-panel", "heat-panel"))


def test_failed_nodes_keep_some_lines_beside_a_long_list_of_ranks():
    wanted = dict.fromkeys(PANELS, 9)
    [column] = fill_columns(wanted, 16, wide=False)
    assert column["jobs-panel"] >= 4 and column["nodes-panel"] >= 3 and column["heat-panel"] >= 3


def test_a_long_list_leaves_half_of_the_height_to_the_other_panels():
    given = share_room({"jobs-panel": 500, "findings-panel": 3, "trends-panel": 9}, LEFT, 20)
    assert given == {"jobs-panel": 16, "findings-panel": 4, "trends-panel": 0}
    assert share_room({"jobs-panel": 2, "findings-panel": 1, "trends-panel": 9}, LEFT, 20)["trends-panel"] == 15


@pytest.mark.parametrize("width", [20, 40, 57, 78, 98, 150])
@pytest.mark.parametrize("room", [1, 4, 9, 30])
def test_trend_lines_fit_at_every_width(width: int, room: int):
    cluster = with_history("n1", "n2")
    cluster.job("a-job-with-a-long-name@10.0.0.1:29500", 4, per_node=2, step=7)
    for _ in range(8):
        for node in cluster.names:
            sample(cluster, node, util_pct=97.0, power_w=612_345.0, sm_clock_mhz=1_900.0)
        cluster.advance(2)
    fold = Fold(cluster)
    fold.trends("n1")
    lines = trend_lines(fold.fold.value.groups, width, room)
    assert all(width_of(line.text) <= max(width, 30) for line in lines)
    assert "…" not in "".join(line.text for line in lines if "W" in line.text) or width < 40


async def test_overview_shows_trends_worst_offenders_and_events():
    cluster = with_history("node1", "node2")
    cluster.job("llama", 4, per_node=2, step=7)
    for _ in range(5):
        for node, util in (("node1", 97.0), ("node2", 12.0)):
            sample(cluster, node, util_pct=util, power_w=500.0, temp_c=61.0, sm_clock_mhz=1_900.0)
        cluster.advance(2)
    cluster.up()
    cluster.publish(
        Gpu(node="node2", index=0, uuid="GPU-node2", temp_c=88.0, sm_clock_mhz=900.0,
            clocks_event_reasons=("hw_thermal_slowdown",)),
        Host(node="node1", cpu_pct=5.0, mem_used_bytes=GIB, io_stall_pct=55.0, net_rx_bytes_s=1e9),
    )  # fmt: skip
    async with running(cluster.app(), size=(200, 60)) as pilot:
        await shows(pilot, "LAST 5 MIN")
        await shows(pilot, "2 nodes, 2 GPUs")
        shown = screen(pilot.app)
        assert "↑ 88 °C" in shown and "node2 gpu0" in shown
        assert "1 of 2 GPUs" in shown
        assert "↑ 55 %" in shown and "connected, receiving data" in shown


@pytest.mark.parametrize(("key", "view"), [("1", "ranks"), ("2", "nodes"), ("4", "events")])
async def test_digit_in_the_evidence_leads_to_rank_node_or_events(key: str, view: str):
    app = busy_cluster().app()
    async with running(app) as pilot:
        while app.focused is None or app.focused.id != "finding-list":
            await pilot.press("tab")
        await pilot.press("enter")
        await shows(pilot, "1 opens")
        await pilot.press(key)
        await until(pilot, lambda: app.views.current == view)
        await shows(pilot, "137" if view == "ranks" else "node018")


def test_bins_cover_five_minutes():
    assert BIN_S * BINS == 300 and trends_height(2) > trends_height(1) and not math.isnan(trends_height(100))


def test_resources_have_the_next_worst_below_the_worst_where_there_is_room():
    cluster = with_history("n1", "n2", "n3", "n4")
    for node, temp, load in (("n1", 60.0, 10.0), ("n2", 82.0, 90.0), ("n3", 71.0, 40.0), ("n4", 65.0, 20.0)):
        sample(cluster, node, temp_c=temp, util_pct=100 - load)
        cluster.publish(Host(node=node, cpu_pct=load))
    rows = resources(cluster.app().frames.builder.build())
    lines = as_text(resource_lines(rows, 80, 3 * len(rows))).splitlines()
    start = next(y for y, line in enumerate(lines) if line.startswith("GPU temp"))
    assert [line.split()[-2:] for line in lines[start : start + 3]] == [["n2", "gpu0"], ["n3", "gpu0"], ["n4", "gpu0"]]
    start = next(y for y, line in enumerate(lines) if line.startswith("GPU util"))
    assert [line.split()[-2:] for line in lines[start : start + 3]] == [["n2", "gpu0"], ["n3", "gpu0"], ["n4", "gpu0"]]
    [cpu] = [row for row in rows if row.title == "CPU"]
    assert [other.name for other in cpu.others] == ["n3", "n4", "n1"]
    assert len(resource_lines(rows, 80, len(rows) + 1)) == len(rows), "all figures have as many or none"
    assert len(resource_lines(rows, 80, 2 * len(rows))) <= 2 * len(rows)


def test_long_events_are_wrapped_as_far_as_there_is_room():
    texts = [" ".join(f"{name}{number}" for number in range(12)) for name in ("old", "mid", "new")]
    events = EventLog(Mark(node="n1", text=text) for text in texts)
    assert [len(event_lines(events, 60, 50, room)) for room in (0, 3, 4, 5, 60)] == [3, 3, 4, 5, 9]
    whole = as_text(event_lines(events, 60, 50, 60))
    assert all(word in whole for text in texts for word in text.split()) and "…" not in whole
    assert all(width_of(line) <= 50 for line in whole.splitlines())
    cut = as_text(event_lines(events, 60, 50, 5)).splitlines()
    assert "new11" in "\n".join(cut) and "…" in cut[-1]


def test_members_of_a_group_are_wrapped_beside_high_curves():
    trend = Trend(np.full(BINS, 1.0), 1.0)
    names = ("util", "power", "step", "network", "throttle")
    group = TrendGroup("job", "j", "j", 63, 504, dict.fromkeys(names, trend))
    lines = as_text(trend_lines([group], 97, 7)).splitlines()
    assert [line[:17].rstrip() for line in lines[1:4]] == ["j", "63 nodes, 504", "GPUs"]
