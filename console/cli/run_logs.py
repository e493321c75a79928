"""The output of a job on stdout or in a file, folded over its ranks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.bus import Published
from ..launch.output_fold import LineFold, Writer, interleave
from ..launch.state import JobStatus, job_status
from ..records import Log
from ..text.sanitize import printable
from .run_live import Live

#: Equal lines of different ranks that come within this are one line; ranks are read five times a second.
FOLD_S = 0.6
#: After the end of a job its last lines may still be on their way.
LAST_WORDS_S = 2.0


@dataclass(frozen=True)
class Wanted:
    """Which lines."""

    tail: int | None = None
    ranks: frozenset[int] | None = None  # None: all, and what the launchers say
    pattern: re.Pattern[str] | None = None
    fold: bool = True


class Output:
    """Collects what the hub brings of a job, and writes it."""

    def __init__(self, view: JobStatus, wanted: Wanted, write: Callable[[str], None]) -> None:
        self._job, self._wanted, self._write = view.ordered.job, wanted, write
        self._nodes = frozenset(line.node for line in view.lines)  # no other has a say in what its ranks wrote
        writers = len(wanted.ranks) if wanted.ranks is not None else view.ordered.world_size
        self._fold = LineFold(writers if wanted.fold else 1, FOLD_S)
        self._new: dict[Writer, list[str]] = {}

    def take(self, records: Sequence[Published]) -> None:
        """A sink of the hub."""
        for record in records:
            if not isinstance(record, Log) or record.node not in self._nodes:
                continue
            if record.source == "job" and record.job == self._job:
                writer: Writer = record.rank if record.rank is not None else record.node
                if self._wanted.ranks is None or writer in self._wanted.ranks:
                    self._new.setdefault(writer, []).extend(record.text.split("\n"))

    def tell(self, *, everything: bool = False) -> bool:
        """Write what has come; whether there was anything."""
        new, self._new = self._new, {}
        now_s = time.monotonic()
        pattern, add = self._wanted.pattern, self._fold.add
        for writer, line in interleave(new):
            if pattern is None or pattern.search(line):
                add(writer, printable(line), now_s)
        told = self._fold.format_due(now_s, everything=everything)
        if told:
            self._write("\n".join(told))
        return bool(new)


async def stream(
    live: Live, view: JobStatus, wanted: Wanted, write: Callable[[str], None], *, follow: bool
) -> list[str]:
    """Write the output of a job; with `follow` until it is over. What could not be read, a sentence each."""
    output = Output(view, wanted, write)
    unsubscribe = live.hub.subscribe(output.take)
    try:
        nodes = [line.node for line in view.lines if line.now is not None]
        failures = await live.fleet.follow_job(view.ordered.job, nodes, wanted.tail, follow)
        if follow:
            await _until_over(live, view.ordered.job, output)
        output.tell(everything=True)
    finally:
        unsubscribe()
    missing = [f"{line.node}: {line.why}" for line in view.lines if line.now is None]
    return missing + [f"{node}: {failure.text}" for node, failure in failures.items()]


async def _until_over(live: Live, job: str, output: Output) -> None:
    quiet_since = time.monotonic()

    def is_done() -> bool:
        nonlocal quiet_since
        view = job_status(live.store, job)
        if output.tell() or view is None or not view.is_over:
            quiet_since = time.monotonic()
        return time.monotonic() - quiet_since > LAST_WORDS_S

    await live.until(is_done)
