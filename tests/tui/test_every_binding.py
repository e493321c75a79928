"""Every key of every action is pressed where it works, and something must be seen of it.

The table of actions is walked, not a list of this file: an action that is added to it is pressed here from then on, in
the view of its scope, and where that does not show anything `PREPARED` says what must be pressed before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import busy_cluster
from pictures import picture
from screen_states import Stage
from textual.app import App
from textual.pilot import Pilot
from waiting import settle, until

from gconsole.tui.gallery import Gallery
from gconsole.tui.keymap.actions import ACTIONS, Action, in_scope
from gconsole.tui.views.registry import VIEWS
from gconsole.tui.widgets.bars import Progress

SIZE = (80, 24)
#: Where a scope is, from the Overview; the scope of a view is behind the view's own key. "!" runs an action.
PLACES = {
    "lines": ["2", "g", "pagedown", "pagedown"],
    "list": ["2"],
    "columns": ["2", "C", "j"],
    "filter": ["2", "slash", *"stat"],
    "dialog": ["question_mark", "j", "j"],
    "prompt": ["M"],
    "export": ["2", "e", "down"],
    "confirm": ["!nodes.remove"],
    "app": [],
    **{row.name: [row.key] for row in VIEWS},
}
#: Keys to press before an action has a visible effect.
PREPARATION = {
    "lines.left": ["escape", "l", "l"],
    "lines.right": ["escape"],
    "columns.move_down": ["j", "j", "j"],
    "columns.reset": ["j", "j", "space"],
    "filter.apply": ["escape", "slash", *"rank:1"],
    "filter.forward": ["left"],
    "filter.previous": ["escape", "slash", *"rank:1", "enter", "escape", "slash"],
    "app.back": ["2"],
    "app.view_overview": ["2"],
}
#: Scopes whose keys need a longer preparation, and the tests that press them.
TESTED_IN = {"hang": "test_hang.py", "gpus": "test_gpus.py", "query": "test_query_view.py", "sql": "test_query_view.py",
             "jobs": "test_jobs.py test_job_tasks.py", "task": "test_job_tasks.py", "diff": "test_diff.py"}  # fmt: skip
#: Apps of their own.
SEPARATE_APPS = {"gallery", "progress", "replay", *TESTED_IN}
LEAVING = {"app.quit"}
#: Without an effect on one cluster: test_clusters.py.
OF_SEVERAL_CLUSTERS = {"app.next_cluster"}


def keys_of(action: Action) -> list[str]:
    return [key for key in action.keys.split(",") if key]


def actions_of(scope: str) -> Iterator[Action]:
    for action in [*ACTIONS, *(row.action for row in VIEWS)]:
        if action.scope == scope and action.keys and action.id not in LEAVING | OF_SEVERAL_CLUSTERS:
            yield action


SCOPES = sorted({action.scope for action in ACTIONS} - SEPARATE_APPS)


def screen_text(app: App[object]) -> object:
    """All visible state of an app: the screen, the clipboard, and whether it is running."""
    return (picture(app), app.clipboard) if app.is_running else None


@pytest.mark.parametrize("keys", ["first", pytest.param("others", marks=pytest.mark.full)])
@pytest.mark.parametrize("scope", SCOPES)
async def test_every_key_has_a_visible_effect_in_its_scope(
    scope: str, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert scope in PLACES, f"say in PLACES how to come to {scope!r}"
    monkeypatch.chdir(tmp_path)  # screenshots
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())  # no shell could bring this test back
    cluster = busy_cluster()
    without_effect = []
    async with cluster.app().run_test(size=SIZE, notifications=True) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        for action in actions_of(scope):
            for key in keys_of(action)[:1] if keys == "first" else keys_of(action)[1:]:
                await go_to(stage, [*PLACES[scope], *PREPARATION.get(action.id, ())])
                before = screen_text(stage.app)
                await stage.press(key)
                await stage.settle()
                if screen_text(stage.app) == before:
                    without_effect.append(f"{action.id}: {key}")
                await leave(stage)
    assert not without_effect


async def go_to(stage: Stage, steps: list[str]) -> None:
    for step in steps:
        if step.startswith("!"):
            await stage.app.run_action(step[1:])
        else:
            await stage.press(step)
    await stage.settle()


async def leave(stage: Stage) -> None:
    """Return to the Overview, unfrozen and without toasts."""
    await stage.go_home()
    if stage.app.frames.is_frozen:
        stage.app.frames.action_freeze()
    stage.app.shutdown._interrupted_at = 0.0
    stage.app.clear_notifications()
    await until(stage.pilot, lambda: not stage.app.screen.query("Toast"), "no toast")
    await stage.press("g")


@pytest.mark.parametrize("key", [key for action in ACTIONS if action.id in LEAVING for key in keys_of(action)])
async def test_quit_keys_exit_the_app(key: str):
    app = busy_cluster().app()
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)


async def gallery_shows(pilot: Pilot[None], key: str) -> bool:
    before = screen_text(pilot.app)
    await pilot.press(key)
    await pilot.pause()
    return screen_text(pilot.app) != before


@pytest.mark.parametrize("action", [*in_scope("gallery"), *in_scope("progress")], ids=lambda action: action.id)
async def test_gallery_and_progress_keys_have_a_visible_effect(action: Action):
    for key in keys_of(action):
        app = Gallery()
        async with app.run_test(size=(90, 50)) as pilot:
            if action.scope == "progress":
                app.query_one(Progress).focus()
                await pilot.pause()
            assert await gallery_shows(pilot, key), key


@pytest.mark.parametrize("scope", TESTED_IN)
def test_keys_of_specialised_views_are_covered_by_their_own_tests(scope: str):
    source = "".join((Path(__file__).parent / name).read_text() for name in TESTED_IN[scope].split())
    calls = re.findall(r"(?:press|open_jobs)\(([^)]*)\)", source)
    pressed = {key for call in calls for key in re.findall(r'"([^"]+)"', call)}
    untested = [action.id for action in in_scope(scope) if action.keys and not pressed & set(keys_of(action))]
    assert not untested


def test_every_action_scope_is_covered():
    assert {action.scope for action in ACTIONS} <= set(PLACES) | SEPARATE_APPS
