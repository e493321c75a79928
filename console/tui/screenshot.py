"""Pictures of the screen as files."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from textual.app import App

from ..text import format
from ..text.atomic_files import create_text


def picture(app: App[Any], title: str) -> Callable[[], str]:
    """What is on the screen now; called, it is drawn as SVG, which takes long enough to be done in a thread."""
    width, height = app.size
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False, safe_box=False,
    )  # fmt: skip
    screens = app._background_screens  # what Textual's own export_screenshot draws, in two steps
    console.print(app.screen._compositor.render_update(full=True, screen_stack=screens, simplify=False))
    return lambda: console.export_svg(title=title)


def save_svg(svg: str, folder: Path | None = None) -> Path:
    """Write a new file into `folder` (the current one); its path. Raises OSError. No file is ever overwritten."""
    return save_new(svg, "gconsole", "svg", folder)


def save_new(text: str, stem: str, ending: str, folder: Path | None = None) -> Path:
    """The same of any text; the file's name begins with `stem`."""
    folder = folder or Path.cwd()
    name = f"{stem}-{format.file_stamp(time.time_ns())}"
    for number in itertools.count(1):
        path = folder / (f"{name}.{ending}" if number == 1 else f"{name}-{number}.{ending}")
        try:
            with create_text(path) as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")
