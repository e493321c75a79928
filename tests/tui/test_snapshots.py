"""How it looks, as SVG.

After a change on purpose: `pytest tests/tui/test_snapshots.py --snapshot-update`, and look at what changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from invented import Cluster, demo, pod
from textual.pilot import Pilot
from waiting import settle

SIZES = [(60, 20), (80, 24), (120, 40)]
CLUSTERS: dict[str, Callable[[], Cluster]] = {"demo": demo, "pod": pod}


def after(*keys: str, theme: str = "dark") -> Callable[[Pilot[None]], object]:
    """Press these once everything is on the screen."""

    async def run(pilot: Pilot[None]) -> None:
        await settle(pilot)
        pilot.app.use_theme(theme)  # type: ignore[attr-defined]
        for key in keys:
            await pilot.press(key)
        await settle(pilot)

    return run


def size_id(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@pytest.mark.parametrize("size", SIZES, ids=size_id)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_overview_looks_as_it_did(snap_compare, cluster: str, size):
    assert snap_compare(CLUSTERS[cluster]().app(), terminal_size=size, run_before=after())


@pytest.mark.parametrize("size", SIZES, ids=size_id)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_ranks_look_as_they_did(snap_compare, cluster: str, size):
    assert snap_compare(CLUSTERS[cluster]().app(), terminal_size=size, run_before=after("2", "o"))


@pytest.mark.parametrize("view", ["1", "2"])
def test_the_light_theme_looks_as_it_did(snap_compare, view: str):
    assert snap_compare(pod().app(), terminal_size=(120, 40), run_before=after(view, theme="light"))


def test_the_story_of_a_failed_node_looks_as_it_did(snap_compare):
    assert snap_compare(pod().app(), terminal_size=(80, 24), run_before=after("shift+tab", "shift+tab", "enter"))


def test_the_list_of_keys_looks_as_it_did(snap_compare):
    assert snap_compare(pod().app(), terminal_size=(80, 40), run_before=after("question_mark"))


def test_a_frozen_picture_looks_as_it_did(snap_compare):
    assert snap_compare(demo().app(), terminal_size=(80, 24), run_before=after("space"))
