"""`parquet`: a folder a kind, partitioned by hour, as `gconsole sessions compact` makes them, of the chosen part."""

from __future__ import annotations

from pathlib import Path

from ..manage.compact import PartWriter
from .slice import Chosen


def write(what: Chosen, folder: Path) -> list[Path]:
    """Write the files into a folder; which they are. Raises OSError."""
    writer = PartWriter(folder, "part")
    writer.add(what.records())
    return [folder / part.path for part in writer.finish()]
