"""An expression in the process of the selected rank: where it is off, its confirmation, and its value."""

from __future__ import annotations

import pytest
from clusters import jobs_cluster
from textual.pilot import Pilot
from waiting import settle, shows, until

from gconsole.records import Failure
from gconsole.tui.dialogs.dialog import DetailDialog
from gconsole.tui.dialogs.prompts import Prompt

SIZE = (120, 40)


async def press(pilot: Pilot[None], *pressed: str) -> None:
    """Press keys in the Ranks view, whose cursor is on the first rank of the first job."""
    await settle(pilot)
    await pilot.press("2", "g", "j", *pressed)
    await pilot.pause()


async def test_eval_is_off_by_default_and_says_how_to_allow_it():
    cluster = jobs_cluster()
    async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
        await press(pilot, "E")
        await shows(pilot, "eval is off on node1; set [agent] allow_eval = true")
        assert not isinstance(pilot.app.screen, Prompt)


async def test_value_is_shown_after_a_confirmation_that_names_the_rank():
    cluster = jobs_cluster()
    cluster.evaluator.allowed = {"node1"}
    async with cluster.app().run_test(size=SIZE) as pilot:
        await press(pilot, "E", *"model.training", "enter")
        await shows(pilot, "in rank 0 of ")
        await shows(pilot, " y evaluate ")
        assert not [call for call, _ in cluster.calls if call == "evaluate"]
        await pilot.press("y")
        await shows(pilot, "second line")
        await shows(pilot, "train.py:3")
    assert ("evaluate", "model.training in rank 0 on node1") in cluster.calls


async def test_key_works_on_the_page_of_the_rank_which_names_it():
    cluster = jobs_cluster()
    cluster.evaluator.allowed = {"node1"}
    async with cluster.app().run_test(size=SIZE) as pilot:
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
        await shows(pilot, " E eval ")
        await pilot.press("E", *"1 + 1", "enter")
        await shows(pilot, " y evaluate ")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailDialog))
    assert not [call for call, _ in cluster.calls if call == "evaluate"]


async def test_refusal_of_the_node_is_shown_with_its_remedy():
    cluster = jobs_cluster()
    cluster.evaluator.allowed = {"node1"}
    cluster.evaluator.answer = Failure("no_debugger", "/usr/bin/gdb is not installed on this node", "install gdb")
    async with cluster.app().run_test(size=SIZE) as pilot:
        await press(pilot, "E", *"x", "enter")
        await shows(pilot, " y evaluate ")
        await pilot.press("y")
        await shows(pilot, "✖ not evaluated: /usr/bin/gdb is not installed")
        await shows(pilot, "try: install gdb")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"live": False}, "not available in replay"), ({"evaluator": None}, "not in a browser")],
)
async def test_replay_and_browser_refuse(changes: dict[str, object], reason: str):
    cluster = jobs_cluster()
    cluster.evaluator.allowed = {"node1"}
    async with cluster.app(**changes).run_test(size=SIZE, notifications=True) as pilot:
        await press(pilot, "E")
        await shows(pilot, reason)
        assert not isinstance(pilot.app.screen, Prompt)
