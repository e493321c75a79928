"""Files of a job, brought from a node into a folder of its name here."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import click

from ..core.control import Control
from ..records import Failure
from ..text import atomic_files
from ..text.sanitize import printable

#: A file that is being written may have grown by so much, and by its own size, since it was listed; bytes.
MOST_GROWTH = 256 << 20


async def fetch_from(control: Control, job: str, node: str, path: str, output: Path) -> str | None:
    """Bring what is at `path` on a node into `output`/node; what went wrong, or None."""
    found = await control.list_job_files(job, node, path)
    if isinstance(found, Failure):
        return f"{node}: {found.text}"
    for below, size in found.files:
        there = f"{found.path}/{below}" if below else found.path
        relative = PurePosixPath(PurePosixPath(found.path).name) / below
        if ".." in relative.parts or relative.is_absolute() or "\0" in there:  # a node must not choose where we write
            return f"{node}: {there}: a path that leads elsewhere"
        here = output / node / relative
        problem = await _one(control, job, node, there, here, size)
        if problem:
            return f"{node}: {problem}"
        click.echo(printable(str(here)))
    return None


async def _one(control: Control, job: str, node: str, there: str, here: Path, size: int) -> str | None:
    """Bring one file; it may have grown meanwhile, but a node that never ends would fill the disk."""
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.open_new(here) as file:
            offset, is_last = 0, False
            while not is_last:
                piece = await control.read_job_file(job, node, there, offset)
                if isinstance(piece, Failure):
                    return piece.text
                data, is_last = piece
                file.write(data)
                offset += len(data)
                if not is_last and (not data or offset > 2 * size + MOST_GROWTH):
                    return f"{there}: it does not end"
    except OSError as error:
        return f"{here}: {error.strerror or error}"
    return None
