"""Copy files of a job from a node to a local folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import click

from ..core.control import Control
from ..records import Failure
from ..text import atomic_files
from ..text.sanitize import printable

#: Bytes. A file may grow by its own size plus this during the copy; a larger transfer is aborted.
MAX_GROWTH = 256 << 20


async def fetch_from(control: Control, job: str, node: str, path: str, output: Path) -> str | None:
    """Copy `path` of a node to `output`/node; returns an error text, or None."""
    listing = await control.list_job_files(job, node, path)
    if isinstance(listing, Failure):
        return f"{node}: {listing.text}"
    for below, size in listing.files:
        there = f"{listing.path}/{below}" if below else listing.path
        relative = PurePosixPath(PurePosixPath(listing.path).name) / below
        if ".." in relative.parts or relative.is_absolute() or "\0" in there:  # path traversal
            return f"{node}: {there}: invalid path: outside the requested folder"
        here = output / node / relative
        problem = await _copy_file(control, job, node, there, here, size)
        if problem:
            return f"{node}: {problem}"
        click.echo(printable(str(here)))
    return None


async def _copy_file(control: Control, job: str, node: str, there: str, here: Path, size: int) -> str | None:
    """Copy one file, with a size limit so that a faulty node cannot fill the disk."""
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.open_truncated(here) as file:
            offset, is_last = 0, False
            while not is_last:
                piece = await control.read_job_file(job, node, there, offset)
                if isinstance(piece, Failure):
                    return piece.text
                data, is_last = piece
                file.write(data)
                offset += len(data)
                if not is_last and (not data or offset > 2 * size + MAX_GROWTH):
                    return f"{there}: file exceeds its listed size; transfer aborted"
    except OSError as error:
        return f"{here}: {error.strerror or error}"
    return None
