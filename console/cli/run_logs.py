"""Job output as one stream, identical lines of several ranks merged."""

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
from .run_live import LiveFleet

#: Seconds. Identical lines of different ranks within this window are merged; ranks are read 5 times per second.
FOLD_S = 0.6
#: Seconds. Time for the last lines to arrive after the job has ended.
DRAIN_S = 2.0


@dataclass(frozen=True)
class LineFilter:
    """Which lines to print, and whether to merge identical ones."""

    tail: int | None = None
    ranks: frozenset[int] | None = None  # None: all ranks, and launchers
    pattern: re.Pattern[str] | None = None
    fold: bool = True


class FoldedOutput:
    """Collects log records of one job from the hub and writes merged lines."""

    def __init__(self, view: JobStatus, lines: LineFilter, write: Callable[[str], None]) -> None:
        self._job, self._filter, self._write = view.ordered.job, lines, write
        self._nodes = frozenset(line.node for line in view.lines)  # ignore other nodes that claim this job
        writers = len(lines.ranks) if lines.ranks is not None else view.ordered.world_size
        self._fold = LineFold(writers if lines.fold else 1, FOLD_S)
        self._new: dict[Writer, list[str]] = {}

    def collect(self, records: Sequence[Published]) -> None:
        """Hub sink: queue the lines of this job."""
        for record in records:
            if not isinstance(record, Log) or record.node not in self._nodes:
                continue
            if record.source == "job" and record.job == self._job:
                writer: Writer = record.rank if record.rank is not None else record.node
                if self._filter.ranks is None or writer in self._filter.ranks:
                    self._new.setdefault(writer, []).extend(record.text.split("\n"))

    def write_due(self, *, everything: bool = False) -> bool:
        """Write lines whose merge window has passed (or all); returns whether new lines had arrived."""
        new, self._new = self._new, {}
        now_s = time.monotonic()
        pattern, add = self._filter.pattern, self._fold.add
        for writer, line in interleave(new):
            if pattern is None or pattern.search(line):
                add(writer, printable(line), now_s)
        lines = self._fold.format_due(now_s, everything=everything)
        if lines:
            self._write("\n".join(lines))
        return bool(new)


async def stream(
    live: LiveFleet, view: JobStatus, lines: LineFilter, write: Callable[[str], None], *, follow: bool
) -> list[str]:
    """Write the output of a job, with `follow` until it ends. Returns one error text per unreadable node."""
    output = FoldedOutput(view, lines, write)
    unsubscribe = live.hub.subscribe(output.collect)
    try:
        nodes = [line.node for line in view.lines if line.now is not None]
        failures = await live.fleet.follow_job(view.ordered.job, nodes, lines.tail, follow)
        if follow:
            await _until_over(live, view.ordered.job, output)
        output.write_due(everything=True)
    finally:
        unsubscribe()
    missing = [f"{line.node}: {line.why}" for line in view.lines if line.now is None]
    return missing + [f"{node}: {failure.text}" for node, failure in failures.items()]


async def _until_over(live: LiveFleet, job: str, output: FoldedOutput) -> None:
    quiet_since = time.monotonic()

    def is_done() -> bool:
        nonlocal quiet_since
        view = job_status(live.store, job)
        if output.write_due() or view is None or not view.is_over:
            quiet_since = time.monotonic()
        return time.monotonic() - quiet_since > DRAIN_S

    await live.until(is_done)
