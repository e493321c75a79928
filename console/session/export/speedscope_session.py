"""`speedscope`: the stacks of a session's newest capture of each job, for speedscope.app."""

from __future__ import annotations

from typing import BinaryIO

from ...analysis.stacks.fold import PLAIN
from ...core.store import Store
from ...monitor.hang import hang_models
from ..format.layout import SessionError
from . import BY_NAME
from .slice import Chosen


def write(what: Chosen, out: BinaryIO) -> None:
    """Write the file. Raises SessionError where no stack was captured, OSError, and what reading the session raises."""
    store = Store()
    for record in what.only("console", "node_state", "node", "process", "rank", "rank_stat", "stack"):
        store.apply([record])
    captures = store.captures.values()
    if not captures:
        raise SessionError(f"{what.meta.name or what.path.name}: there are no stacks in it; s or d captures them")
    out.write(BY_NAME["speedscope"].write(captures, hang_models(store), PLAIN).encode(errors="replace"))
