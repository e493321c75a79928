"""What a screen wants in full: the nodes that it shows; of all others digests are enough, and are shown as such."""

from __future__ import annotations

from collections.abc import Callable

from fake_cluster import FakeCluster
from running import running
from test_gpus import one_node, rows_of
from waiting import screen, until

from gconsole.core.wants import DIGESTED
from gconsole.records import Gpu
from gconsole.tui.views.gpus.model import _state_text

NODES = 60


def a_fleet() -> FakeCluster:
    cluster = FakeCluster(*(f"node{number:03d}" for number in range(NODES)))
    cluster.up()
    cluster.gpus(count=8)
    return cluster


def wanted(cluster: FakeCluster) -> frozenset[str]:
    """The nodes of which the screen wants every sample."""
    (want,) = cluster.wants["screen"]
    assert want.kinds == DIGESTED
    return want.nodes


def until_wanted(pilot, cluster: FakeCluster, condition: Callable[[frozenset[str]], bool]):
    return until(pilot, lambda: condition(wanted(cluster)))


async def test_gpus_on_the_screen_and_around_it_are_wanted_wherever_it_scrolls():
    cluster = a_fleet()
    async with running(cluster.app()) as pilot:
        await pilot.app.views.action_show("gpus")
        await until_wanted(pilot, cluster, lambda nodes: "node000" in nodes and len(nodes) > 2)
        assert "node030" not in wanted(cluster)
        await pilot.press("end")
        await until_wanted(pilot, cluster, lambda nodes: f"node{NODES - 1:03d}" in nodes and "node000" not in nodes)
        await pilot.press("enter")
        await until_wanted(pilot, cluster, lambda nodes: nodes == {f"node{NODES - 1:03d}"})


async def test_view_without_figures_wants_those_of_the_node_under_the_cursor():
    cluster = a_fleet()
    async with running(cluster.app()) as pilot:
        await pilot.app.views.action_show("gpus")
        await until_wanted(pilot, cluster, lambda nodes: bool(nodes))
        await pilot.app.views.action_show("events")
        await until_wanted(pilot, cluster, lambda nodes: nodes == {f"node{NODES - 1:03d}"})


def test_digest_is_marked_in_the_list_until_a_sample_arrives():
    cluster = one_node(util_pct=90.0, period_s=5.0, samples=5)
    row = rows_of(cluster)["node1:gpu0"]
    assert _state_text(row).endswith("ok ~5s")

    cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", util_pct=91.0, period_s=5.0))
    assert "~" not in _state_text(rows_of(cluster)["node1:gpu0"])


async def test_page_of_a_gpu_says_that_its_figures_are_of_a_digest():
    cluster = one_node(util_pct=90.0, period_s=5.0, samples=5)
    async with running(cluster.app()) as pilot:
        await pilot.app.views.action_show("gpus")
        await pilot.press("enter")
        await until(pilot, lambda: "last of 5 samples" in screen(pilot.app))
        assert "node1" in screen(pilot.app)
