"""Deep links: a screen as text, and the screen that a link opens; a link only selects what is shown."""

from __future__ import annotations

import shlex

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


async def test_screen_without_a_target_has_no_link():
    app = busy_cluster().app()
    async with running(app, "L", toasts=True) as pilot:
        await shows(pilot, "no target to link to")
