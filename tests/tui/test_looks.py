"""How every view and dialog looks, at every size and in every theme; `looks.py` says in what form.

After a change on purpose: `pytest tests/tui/test_looks.py --snapshot-update`, and look at what changed, as text in the
diff and as pictures with `python tests/tui/scenes.py FOLDER`.
"""

from __future__ import annotations

import pytest
from looks import Picture, assert_rectangular, picture, written
from scenes import SCENES, Scene, Stage
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.command import CommandPalette
from textual.screen import ModalScreen
from waiting import settle

from gconsole.tui.dialogs.dialog import Dialog, ScrollDialog
from gconsole.tui.theme.themes import theme_files
from gconsole.tui.views.registry import VIEWS

SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
BOTH = ("dark", "light")
ALL = tuple(theme.name for theme in theme_files())
#: Dark and light at every size, the others at the size that most terminals have.
LOOKS = [
    *((theme, size) for theme in BOTH for size in SIZES),
    *((theme, (80, 24)) for theme in ALL if theme not in BOTH),
]


class AsText(SingleFileSnapshotExtension):
    """A file for each scene."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


@pytest.fixture(autouse=True)
def _a_folder_that_every_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "_"))
async def test_it_looks_as_it_did(scene: Scene, snapshot: SnapshotAssertion):
    cluster = scene.cluster()
    pictures: dict[tuple[int, int], dict[str, Picture]] = {size: {} for size in SIZES}
    async with cluster.app().run_test(size=(80, 24), notifications=True) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await scene.open(stage)
        for theme, size in LOOKS:
            stage.app.themes.use(theme)
            await pilot.resize_terminal(*size)
            await stage.still()
            assert_rectangular(stage.app)
            pictures[size][theme] = picture(stage.app)
        assert scene.dialog is None or isinstance(stage.app.screen, scene.dialog)
    parts = [f"{width}x{height}\n{written(pictures[width, height])}" for width, height in SIZES]
    assert "\n".join(parts) == snapshot(extension_class=AsText)


def test_every_view_and_every_dialog_is_among_them():
    dialogs = {scene.dialog for scene in SCENES}
    missing = (
        {kind for kind in _kinds(ModalScreen) if kind.__module__.startswith("gconsole.")}
        - dialogs
        - {Dialog, ScrollDialog}
    )
    assert not missing
    assert CommandPalette in dialogs
    assert {row.name for row in VIEWS} <= {scene.name for scene in SCENES}


def _kinds(of: type) -> set[type]:
    return {kind for child in of.__subclasses__() for kind in {child, *_kinds(child)}}
