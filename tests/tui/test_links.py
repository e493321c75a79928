"""Deep links: a screen as text, and the screen that a link opens; a link only selects what is shown."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import busy_cluster
from fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st
from running import running
from waiting import screen, shows, until

from gconsole.cli.main import gconsole
from gconsole.tui.models.destination import Destination, LinkError, as_link, parse_link
from gconsole.tui.models.list_kind import Arrangement
from gconsole.tui.ui_state import UiStateFile
from gconsole.tui.views.registry import VIEWS

NAMES = [row.name for row in VIEWS]
TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, blacklist_categories=("Cc", "Cs", "Cf")), max_size=30
)


@given(st.sampled_from(NAMES), TEXT, TEXT, TEXT, st.booleans(), st.integers(0, 2**62), TEXT.filter(bool))
def test_link_leads_back_to_the_same_place(view, filter_, node, job, reverse, at, target):
    place = Destination(view, filter=filter_.strip(), node=node.strip(), job=job.strip(), reverse=reverse, at=at)
    target = f"t{target.strip()}"
    assert parse_link(as_link(place, target), NAMES) == (target, place)


@pytest.mark.parametrize(
    "link",
    [
        "", "http://a/ranks", "gconsole://", "gconsole://a", "gconsole:///ranks", "gconsole://--set/ranks", "gconsole://a/nosuch",
        "gconsole://a/ranks?x=1", "gconsole://a/ranks?at=-1", "gconsole://a/ranks?at=9" + "9" * 30,
        "gconsole://a/ranks?filter", "gconsole://a%1b[2J/ranks", "gconsole://a/ranks?filter=" + "x" * 5_000,
    ],
)  # fmt: skip
def test_text_that_is_no_link_is_refused_before_anything_opens(link: str):
    with pytest.raises(LinkError):
        parse_link(link, NAMES)
    refused = CliRunner().invoke(gconsole, ["link", link])
    assert refused.exit_code == 2 and "Traceback" not in refused.output


def app_at(cluster: FakeCluster, place: Destination | None = None):
    return cluster.app(target="/etc/hosts.toml", place=place)


@pytest.mark.parametrize(
    ("keys", "text"),
    [(["2", "slash", *"rank:137", "enter"], "137"), (["n", "enter"], "node001"), (["6", "T"], "°C▼")],
    ids=["filter", "page", "order"],
)
async def test_link_of_a_screen_opens_the_same_screen(keys: list[str], text: str):
    app = app_at(busy_cluster())
    async with running(app, *keys, size=(120, 34)) as pilot:
        await pilot.press("L")
        await until(pilot, lambda: app.clipboard.startswith("gconsole link "))
        first = screen(app).splitlines()[3:-1]
    [_, _, url] = shlex.split(app.clipboard)
    target, place = parse_link(url, NAMES)
    assert target == "/etc/hosts.toml"
    again = app_at(busy_cluster(), place)
    async with running(again, size=(120, 34)) as pilot:
        await until(pilot, lambda: screen(again).splitlines()[3:-1] == first)
        await shows(pilot, text)


@pytest.mark.parametrize("keys", [["2"], ["n"], ["6"], ["8", "o"]], ids=["ranks", "nodes", "gpus", "events"])
async def test_link_keeps_the_selected_row(keys: list[str]):
    app = app_at(busy_cluster())
    async with running(app, *keys, "j", "j", "j", "L", size=(120, 34)) as pilot:
        await until(pilot, lambda: app.clipboard.startswith("gconsole link "))
        selected = app.view.selected_row
    _, place = parse_link(shlex.split(app.clipboard)[2], NAMES)
    again = app_at(busy_cluster(), place)
    async with running(again, size=(120, 34)) as pilot:
        await until(pilot, lambda: again.view.id == place.view and again.view.selected_row == selected)
        await pilot.press("k")
        await until(pilot, lambda: again.view.selected_row != selected)


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        (["j", "j", "l"], "heat/node003/1"),
        (["m", "j"], "heat/node002/0"),
        (["tab", "j", "j"], None),
        (["tab", "tab", "tab", "j"], None),
    ],
    ids=["cell", "metric", "second list", "fourth list"],
)
async def test_link_keeps_the_selection_and_the_metric_of_the_overview(keys: list[str], row: str | None):
    app = app_at(busy_cluster())
    async with running(app, *keys, "L", size=(120, 34)) as pilot:
        await until(pilot, lambda: app.clipboard.startswith("gconsole link "))
        selected, focused, metric = app.view.selected_row, app.focused.id, app.view.arrangement.metric
        assert selected and row in (selected, None)
    _, place = parse_link(shlex.split(app.clipboard)[2], NAMES)
    again = app_at(busy_cluster(), place)
    async with running(again, size=(120, 34)) as pilot:
        await until(pilot, lambda: again.view.selected_row == selected)
        assert (again.focused.id, again.view.arrangement.metric) == (focused, metric)


async def test_link_to_a_cell_waits_for_its_gpu():
    cluster = FakeCluster("node1")
    cluster.up()
    app = cluster.app(target="/etc/hosts.toml", place=Destination("overview", row="heat/node1/5"))
    async with running(app, size=(120, 34)) as pilot:
        await pilot.hover("#heat")  # moves no cursor
        cluster.gpus(count=8)
        await until(pilot, lambda: app.view.selected_row == "heat/node1/5")


@pytest.mark.parametrize("keys", [["j", "l"], ["j", "l", "enter", "l"]], ids=["node", "GPU of an opened node"])
async def test_link_keeps_the_cell_in_a_map_of_nodes(keys: list[str]):
    def many() -> FakeCluster:
        cluster = FakeCluster(*(f"n{number:03}" for number in range(400)))
        cluster.up()
        cluster.gpus(count=4)
        return cluster

    app = app_at(many())
    async with running(app, *keys, "L", size=(80, 24)) as pilot:
        await until(pilot, lambda: app.clipboard.startswith("gconsole link "))
        selected = app.view.selected_row
    _, place = parse_link(shlex.split(app.clipboard)[2], NAMES)
    assert place.row == selected and selected.count("/") == len(keys) // 2
    again = app_at(many(), place)
    async with running(again, size=(80, 24)) as pilot:
        await until(pilot, lambda: again.view.selected_row == selected)


@pytest.mark.parametrize("row", ["heat/", "heat//", "heat/node001/x", "heat/node001/99", "heat/nosuch/1", "node-list/"])
async def test_link_to_no_row_leaves_the_cursor(row: str):
    app = busy_cluster().app(target="/etc/hosts.toml", place=Destination("overview", row=row))
    async with running(app, "j", "l", size=(120, 34)) as pilot:
        await until(pilot, lambda: app.view.selected_row == "heat/node002/1")


async def test_link_selects_a_row_that_comes_later():
    cluster = FakeCluster("node1")
    cluster.up()
    app = cluster.app(target="/etc/hosts.toml", place=Destination("nodes", row="node9"))
    async with running(app, size=(120, 34)) as pilot:
        await until(pilot, lambda: app.view.id == "nodes" and app.view.selected_row == "node1")
        cluster.up("node9")
        await until(pilot, lambda: app.view.selected_row == "node9")


@pytest.mark.parametrize("keys", [["2", "O"], ["2", "slash", *"rank:137", "enter", "b"], ["7"]])
async def test_link_replaces_the_arrangement_that_was_kept(keys: list[str], tmp_path: Path):
    app = app_at(busy_cluster())
    async with running(app, *keys, "L", size=(120, 34)) as pilot:
        await until(pilot, lambda: app.clipboard.startswith("gconsole link "))
        wanted = app.view.arrangement
    _, place = parse_link(shlex.split(app.clipboard)[2], NAMES)
    path = tmp_path / "state.json"
    other = busy_cluster().app(ui_state=UiStateFile(path))
    async with running(other, keys[0], "slash", *"node018", "enter", "o", "o"):
        pass
    again = busy_cluster().app(target="/etc/hosts.toml", place=place, ui_state=UiStateFile(path))
    async with running(again, size=(120, 34)) as pilot:
        await until(pilot, lambda: again.view.id == place.view)
        for name in ("filter", "sort", "reverse", "group"):
            await until(pilot, lambda name=name: getattr(again.view.arrangement, name) == getattr(wanted, name))


async def test_link_that_would_be_too_long_to_open_is_refused():
    app = app_at(busy_cluster())
    async with running(app, "2", toasts=True) as pilot:
        app.view.restore(Arrangement(filter="é" * 400))
        await pilot.press("L")
        await shows(pilot, "the link would have 2,4")
        assert not app.clipboard


async def test_screen_without_a_target_has_no_link():
    app = busy_cluster().app()
    async with running(app, "L", toasts=True) as pilot:
        await shows(pilot, "no target to link to")
