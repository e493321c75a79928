"""Pictures of the screen as files."""

from __future__ import annotations

import itertools
import time
from pathlib import Path


def save_svg(svg: str, folder: Path | None = None) -> Path:
    """Write a new file into `folder` (the current one); its path. Raises OSError. No file is ever overwritten."""
    return save_new(svg, "gconsole", "svg", folder)


def save_new(text: str, stem: str, ending: str, folder: Path | None = None) -> Path:
    """The same of any text; the file's name begins with `stem`."""
    folder = folder or Path.cwd()
    name = time.strftime(f"{stem}-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        path = folder / (f"{name}.{ending}" if number == 1 else f"{name}-{number}.{ending}")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
