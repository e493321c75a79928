"""Copies files of a job from its nodes to this machine, within a limit of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from ..core.control import Control
from ..records import Failure
from ..text import atomic_files
from ..text.format import size as size_text

#: Size of all files of all nodes, unless the user sets another limit.
MAX_FETCH: Final = "64G"
#: Bytes. How much a file may have grown since it was listed, such as a log.
MAX_GROWTH: Final = 256 << 20


class FetchBudget(msgspec.Struct):
    """Bytes that a command may still write, whatever its nodes claim."""

    left: int

    def refusal(self, files: Sequence[tuple[str, int]]) -> str | None:
        """Why files of these sizes are not copied; None if they fit."""
        total = sum(max(0, size) for _, size in files)
        return f"{size_text(total)} listed, {size_text(self.left)} left of --max-size" if total > self.left else None


async def fetch_from(
    control: Control, node: str, job: str, path: str, output: Path, budget: FetchBudget,
    report: Callable[[Path], None],
) -> str | None:  # fmt: skip
    """Copy `path` of a node to `output`/node and `report` each file; returns an error text, or None."""
    listing = await control.list_job_files(job, node, path)
    if isinstance(listing, Failure):
        return f"{node}: {listing.text}"
    if refusal := budget.refusal(listing.files):
        return f"{node}: {listing.path}: {refusal}"
    for below, size in listing.files:
        there = f"{listing.path}/{below}" if below else listing.path
        relative = PurePosixPath(PurePosixPath(listing.path).name) / below
        if ".." in relative.parts or relative.is_absolute() or "\0" in there:  # path traversal
            return f"{node}: {there}: invalid path: outside the requested folder"
        here = output / node / relative
        problem = await _copy_file(_pieces(control, job, node, there, size, budget), here)
        if problem:
            return f"{node}: {problem}"
        report(here)
    return None


class _FetchError(Exception):
    """A file cannot be read from its node; the text is one sentence."""


async def _copy_file(pieces: AsyncIterator[bytes], here: Path) -> str | None:
    """Write the pieces of one file; returns an error text, or None."""
    try:
        here.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.open_truncated(here) as file:
            async for data in pieces:
                file.write(data)
    except _FetchError as error:
        return str(error)
    except OSError as error:
        return f"{here}: {error.strerror or error}"
    return None


async def _pieces(
    control: Control, job: str, node: str, there: str, size: int, budget: FetchBudget
) -> AsyncIterator[bytes]:
    """Yield a file in pieces, at most `MAX_GROWTH` more than its listed size and what is left of the budget.

    Every piece but the last is complete, so that a node cannot send a file byte by byte. Raises _FetchError.
    """
    from gconsole_remote.jobs.requests import CHUNK_BYTES  # which loads a part of the agent

    offset, is_last = 0, False
    limit = max(0, size) + MAX_GROWTH
    while not is_last:
        piece = await control.read_job_file(job, node, there, offset)
        if isinstance(piece, Failure):
            raise _FetchError(piece.text)
        data, is_last = piece
        if len(data) > CHUNK_BYTES or (len(data) < CHUNK_BYTES and not is_last):
            raise _FetchError(f"{there}: invalid response: a piece of {size_text(len(data))}")
        offset += len(data)
        budget.left -= len(data)
        if offset > limit or budget.left < 0:
            reason = "larger than its listed size" if offset > limit else "more than --max-size in total"
            raise _FetchError(f"{there}: {reason}; copying stopped")
        yield data
