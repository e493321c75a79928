"""The screenshots in docs/ are of today's screens."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "tools" / "screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCREENSHOTS = tool()


@pytest.mark.parametrize("name", SCREENSHOTS.PICTURES)
async def test_screenshot_of_the_documentation_shows_todays_screen(name: str):
    drawn = await SCREENSHOTS.draw(SCREENSHOTS.PICTURES[name])
    stored = (ROOT / "docs" / f"{name}.svg").read_text()
    assert SCREENSHOTS.text_of(stored) == SCREENSHOTS.text_of(drawn), "run: python tools/screenshots.py"


def test_screenshots_do_not_show_the_folder_of_this_checkout():
    row = f"<text>source {SCREENSHOTS.ROOT}/console/demo/ring.py</text>"
    assert SCREENSHOTS.without_folder(row).startswith("<text>source /opt/gconsole/console/demo/ring.py")
