"""No keys end the console but those that quit, whatever is typed in one burst; text belongs to the prompt it opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clusters import busy_cluster
from key_sequences import BLOCKS, KEYS, PER_BLOCK, Delivered, KeySequences, key_event
from running import running
from textual import events
from textual.widgets import Input
from waiting import shows, until

from gconsole.tui.app import ConsoleApp
from gconsole.tui.views.overview.view import OverviewView
from gconsole.tui.views.registry import VIEWS


@pytest.fixture(autouse=True)
def _in_a_folder_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # exports and screenshots
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())  # no shell could bring this test back


async def run(seed: int, count: int) -> KeySequences:
    sequences = KeySequences(seed, count)
    await sequences.run()
    assert sequences.done == count
    return sequences


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.full) for seed in (3, 4, 5))])
async def test_random_keys_in_one_burst_end_nothing(seed: int):
    await run(seed, 25)


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("block", range(BLOCKS))
async def test_5_000_random_sequences_end_nothing(block: int):
    sequences = await run(1_000 + 1_000 * block, PER_BLOCK)
    pairs = {(row.name, key) for row in VIEWS for key in KEYS}
    missed = pairs - sequences.pairs
    assert len(missed) <= len(pairs) / 100, f"chance misses few pairs of view and key: {missed}"


async def test_app_that_ends_by_another_key_is_reported_with_the_seed_and_the_sequence(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ConsoleApp, "action_command_palette", lambda app: app.exit())
    with pytest.raises(AssertionError, match=r"seed 3, sequence \d+ of .*(ctrl\+p|colon).*ended by"):
        await run(3, 500)


@pytest.mark.parametrize(
    ("key", "screen", "is_text", "may_quit"),
    [
        ("q", "Screen", False, True),
        ("ctrl+c", "Screen", False, True),
        ("ctrl+q", "Prompt", True, True),
        ("enter", "ConsolePalette", True, True),
        ("q", "Prompt", True, False),
        ("o", "Screen", False, False),
        ("enter", "Screen", False, False),
    ],
)
def test_only_a_key_that_quits_or_a_command_chosen_by_name_may_end_the_app(
    key: str, screen: str, is_text: bool, may_quit: bool
):
    assert Delivered(key, screen, is_text).may_quit is may_quit


def burst(app: ConsoleApp, *keys: str) -> None:
    """Type keys in one burst."""
    for key in keys:
        app.post_message(key_event(key))


async def test_view_can_be_sorted_in_the_burst_that_opens_it():
    for view in ("2", "7", "8", "0"):
        app = busy_cluster().app()
        async with running(app) as pilot:
            burst(app, view, "o")
            await pilot.pause()
            await until(pilot, lambda app=app: app.typed.is_idle)
            assert app.view.arrangement.sort


async def test_text_typed_ahead_belongs_to_the_filter_that_it_follows():
    app = busy_cluster().app()
    async with running(app) as pilot:
        burst(app, "2", "slash", *"state:idle")
        await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.value == "state:idle")
        await until(pilot, lambda: app.view.arrangement.filter == "state:idle")


async def test_text_typed_ahead_belongs_to_the_prompt_that_it_follows():
    cluster = busy_cluster()
    app = cluster.app()
    async with running(app) as pilot:
        burst(app, "M", *"queue rose", "enter")
        await until(pilot, lambda: ("mark", "queue rose") in cluster.calls)


async def test_text_after_a_cleared_filter_in_one_burst_is_kept():
    app = busy_cluster().app()
    async with running(app) as pilot:
        burst(app, "2", "slash", *"abc", "ctrl+u", *"node:node018", "enter")
        await until(pilot, lambda: app.view.id == "ranks" and app.view.arrangement.filter == "node:node018")


async def test_last_row_is_visible_in_the_burst_that_opens_the_list():
    app = busy_cluster().app()
    async with running(app) as pilot:
        burst(app, "2", "G")
        await shows(pilot, "\n   511  ")


async def test_paste_beyond_the_longest_filter_is_refused_and_named():
    app = busy_cluster().app()
    async with running(app, "2", "slash", toasts=True) as pilot:
        app.post_message(events.Paste("node01 " * 1_500))
        await shows(pilot, "not pasted: 10,500 characters")
        assert isinstance(app.focused, Input) and app.focused.value == ""


async def test_overview_draws_no_text_before_its_first_layout():
    app = busy_cluster().app()
    view = OverviewView(id="overview")
    view.show_snapshot(app.frame)
    assert not [report.id for report in (view._node_list, view._job_list, view._finding_list) if report.lines]
