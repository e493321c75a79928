"""Pictures of the screen as files."""

from __future__ import annotations

import itertools
import time
from pathlib import Path


def save_svg(svg: str, folder: Path | None = None) -> Path:
    """Write a new file into `folder` (the current one); its path. Raises OSError. No file is ever overwritten."""
    folder = folder or Path.cwd()
    name = time.strftime("gconsole-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        path = folder / (f"{name}.svg" if number == 1 else f"{name}-{number}.svg")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(svg)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
