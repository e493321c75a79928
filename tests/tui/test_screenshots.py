"""Every view and dialog against its snapshot, by size and theme; `pictures.py` defines the format of the snapshots.

`make test` compares each state in one look, in turn, so that every size and theme is compared in five states or more.
`make full` compares each state with every theme at 80x24, and with dark and light at every size.

After a change on purpose: `pytest tests/tui/test_screenshots.py -m "" --snapshot-update`, then review the diff as text
and as SVG with `python tests/tui/screen_states.py FOLDER`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pictures import Picture, assert_rectangular, format_pictures, picture, read_pictures
from screen_states import STATES, ScreenState, Stage
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.command import CommandPalette
from textual.screen import ModalScreen
from waiting import settle

from gconsole.tui.dialogs.dialog import Dialog, ScrollDialog
from gconsole.tui.theme.themes import theme_files
from gconsole.tui.views.registry import VIEWS

SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
Size = tuple[int, int]
BOTH = ("dark", "light")
ALL = tuple(theme.name for theme in theme_files())
SNAPSHOTS = Path(__file__).parent / "__snapshots__" / "test_screenshots"
#: Dark and light at every size, the others at the size that most terminals have.
VARIANTS = [
    *((theme, size) for theme in BOTH for size in SIZES),
    *((theme, (80, 24)) for theme in ALL if theme not in BOTH),
]


class TextSnapshotExtension(SingleFileSnapshotExtension):
    """A file for each state."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


@pytest.fixture(autouse=True)
def _a_folder_that_every_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")


BY_NAME = pytest.mark.parametrize("state", STATES, ids=lambda state: state.name.replace(" ", "_"))


async def take_pictures(state: ScreenState, variants: Sequence[tuple[str, Size]]) -> dict[Size, dict[str, Picture]]:
    """Size → theme → the state, opened at 80x24, as it is drawn then; each has exactly the cells of the terminal."""
    cluster = state.cluster()
    pictures: dict[Size, dict[str, Picture]] = {}
    async with cluster.app().run_test(size=(80, 24), notifications=True) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await state.open(stage)
        for theme, size in variants:
            stage.app.themes.use(theme)
            await pilot.resize_terminal(*size)
            await stage.settle()
            if isinstance(stage.app.screen, CommandPalette):  # Textual does not restyle it when the theme changes
                stage.app.stylesheet.update(stage.app.screen)
                await stage.settle()
            assert_rectangular(stage.app)
            pictures.setdefault(size, {})[theme] = picture(stage.app)
        assert state.dialog is None or isinstance(stage.app.screen, state.dialog)
    return pictures


@pytest.mark.full
@BY_NAME
async def test_screen_matches_its_snapshot(state: ScreenState, snapshot: SnapshotAssertion):
    pictures: dict[Size, dict[str, Picture]] = {}
    for size in SIZES:  # each in an app of its own: a list stays scrolled where it was at the size before
        pictures |= await take_pictures(state, [variant for variant in VARIANTS if variant[1] == size])
    parts = [f"{width}x{height}\n{format_pictures(pictures[width, height])}" for width, height in SIZES]
    assert "\n".join(parts) == snapshot(extension_class=TextSnapshotExtension)


@BY_NAME
async def test_screen_matches_its_snapshot_in_one_look(state: ScreenState):
    variant = VARIANTS[STATES.index(state) % len(VARIANTS)]
    file = f"test_screen_matches_its_snapshot[{state.name.replace(' ', '_')}].txt"
    expected = read_pictures((SNAPSHOTS / file).read_text(encoding="utf-8"))

    pictures = await take_pictures(state, [variant])

    for size, themes in pictures.items():
        for theme, drawn in themes.items():
            snapshot = format_pictures({theme: expected[size][theme]})
            assert format_pictures({theme: drawn}) == snapshot, f"{size} in {theme}"


def test_every_view_and_dialog_has_a_screen_state():
    dialogs = {state.dialog for state in STATES}
    missing = (
        {kind for kind in _kinds(ModalScreen) if kind.__module__.startswith("gconsole.")}
        - dialogs
        - {Dialog, ScrollDialog}
    )
    assert not missing
    assert any(issubclass(dialog, CommandPalette) for dialog in dialogs if dialog is not None)
    assert {row.name for row in VIEWS} <= {state.name for state in STATES}


def _kinds(of: type) -> set[type]:
    return {kind for child in of.__subclasses__() for kind in {child, *_kinds(child)}}
