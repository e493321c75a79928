"""Fleet connection of one `gconsole run` command, the output of a job as one stream, and copies of its files."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from gconsole_remote.jobs.requests import CHUNK_BYTES

from ..config import Config
from ..core.bus import Hub
from ..core.control import Control
from ..core.job_protocol import is_away
from ..core.store import Store
from ..fleet import job_requests
from ..fleet.fleet import Fleet
from ..launch.format import stop_words
from ..launch.output_fold import Folded, JobOutput, LineFold
from ..launch.state import JobStatus, PendingStops, job_status
from ..monitor import headless
from ..monitor.coverage import is_settled
from ..monitor.finding_tracker import FindingTracker
from ..records import Failure
from ..runtime.console import Console
from ..text import atomic_files
from ..text.format import clock_time_ms
from ..text.format import size as size_text
from ..text.sanitize import Printable, join_lines, printable
from .terminal import print_text

#: Seconds between SIGTERM and SIGKILL for pending stops.
STOP_GRACE_S = 10.0


class LiveFleet(msgspec.Struct, frozen=True):
    """The connected fleet and its state."""

    config: Config
    hub: Hub
    store: Store
    fleet: Fleet
    findings: FindingTracker

    async def until(self, condition: Callable[[], bool], deadline_s: float | None = None) -> bool:
        """Poll until `condition()`; False after `deadline_s` seconds."""
        began = time.monotonic()
        while not condition():
            if deadline_s is not None and time.monotonic() - began > deadline_s:
                return False
            await asyncio.sleep(headless.POLL_S)
        return True


async def _run_pending_stops(live: LiveFleet) -> None:
    """Stop jobs on nodes that were unreachable when the stop was confirmed.

    Ignores `[console] read_only`: the user confirmed this stop earlier.
    """
    pending = PendingStops.of_cluster(live.config.cluster)
    for job, nodes in pending.orders.items():
        back = [node for node in nodes if (link := live.fleet.links.get(node)) and link.state == "ok"]
        answers = await job_requests.stop(live.fleet.links, job, back, STOP_GRACE_S) if back else {}
        for node, answer in answers.items():
            words = printable(f"gconsole: pending stop of {job} on {node}: {stop_words(answer)}")
            print_text(words, err=True)
        pending.set(job, tuple(node for node in nodes if node not in back or is_away(answers.get(node))))


@asynccontextmanager
async def connected(config: Config, *, allow_run: bool = False, black_box: bool = False) -> AsyncIterator[LiveFleet]:
    """Connect to all nodes, wait until each has sampled or failed, disconnect at the end of the block."""
    console = Console(config, store=Store(), allow_run=allow_run, probe_clocks=False, black_box=black_box)
    fleet = LiveFleet(config, console.bus, console.store, console.fleet, console.findings)
    async with console.running():
        await fleet.until(lambda: is_settled(console.store), headless.CONNECT_S)
        yield fleet


@asynccontextmanager
async def live(config: Config, *, allow_run: bool = False) -> AsyncIterator[LiveFleet]:
    """`connected`, with findings evaluated and pending stops executed.

    `allow_run` only for start and stop, which ask for confirmation.
    """
    async with connected(config, allow_run=allow_run) as fleet:
        await fleet.findings.evaluate()
        await _run_pending_stops(fleet)
        yield fleet


#: Seconds. Identical lines of different ranks within this window are merged; ranks are read 5 times per second.
FOLD_S = 0.6
#: Seconds. Time for the last lines to arrive after the job has ended.
DRAIN_S = 2.0


class LineFilter(msgspec.Struct, frozen=True):
    """Which lines to print, and how."""

    tail: int | None = None  # of all lines that were written before
    ranks: frozenset[int] | None = None  # None: all ranks, and launchers
    pattern: re.Pattern[str] | None = None
    fold: bool = True
    times: bool = False  # with the instants at which they were written

    @property
    def fetched(self) -> int | None:
        """Lines of each rank to read; with a pattern all, because the last matching ones may be anywhere."""
        return self.tail if self.pattern is None else None


class FoldedOutput(JobOutput):
    """Collects the output of one job and writes merged lines."""

    def __init__(self, view: JobStatus, lines: LineFilter, write: Callable[[Printable], None]) -> None:
        super().__init__(view, lines.ranks)
        self._filter, self._write = lines, write
        writers = len(lines.ranks) if lines.ranks is not None else view.ordered.world_size
        self._fold = LineFold(writers if lines.fold else 1, FOLD_S)

    def write_due(self, *, everything: bool = False) -> bool:
        """Write lines whose merge window has passed (or all); returns whether new lines had arrived."""
        has_new = bool(self.lines)
        lines = self._due(everything=everything)
        self._write_lines(lines)
        return has_new

    def write_earlier(self) -> None:
        """Write what had been written before: the last `tail` lines of all ranks together."""
        lines = self._due(everything=True)
        self._write_lines(lines[-self._filter.tail :] if self._filter.tail is not None else lines)

    def _due(self, *, everything: bool) -> list[Folded]:
        now_s = time.monotonic()
        due: list[Folded] = []
        for line in self.pop_lines():
            if self._filter.pattern is None or self._filter.pattern.search(line.text):
                self._fold.add(line.writer, printable(line.text), now_s, stream=line.stream, at_ns=line.at_ns)
                if not self._filter.fold:
                    due += self._fold.lines(now_s, everything=True)
        return due + self._fold.lines(now_s, everything=everything)

    def _write_lines(self, lines: Sequence[Folded]) -> None:
        if lines:
            self._write(join_lines(map(self._format, lines)))

    def _format(self, line: Folded) -> str:
        instant = ""
        if self._filter.times:
            instant = f"{clock_time_ms(line.at_ns) if line.at_ns is not None else '-':<12} "
        return f"{instant}[{line.who}] {line.text}"


async def stream(
    fleet: LiveFleet, view: JobStatus, lines: LineFilter, write: Callable[[Printable], None], *, follow: bool
) -> list[str]:
    """Write the output of a job, with `follow` until it ends. Returns one error text per unreadable node."""
    output = FoldedOutput(view, lines, write)
    unsubscribe = fleet.hub.subscribe(output.collect)
    try:
        nodes = [line.node for line in view.lines if line.now is not None]
        failures = await fleet.fleet.follow_job(view.ordered.job, nodes, lines.fetched, follow)
        output.write_earlier()
        if follow:
            await _until_over(fleet, view.ordered.job, output)
        output.write_due(everything=True)
    finally:
        unsubscribe()
    missing = [f"{line.node}: {line.why}" for line in view.lines if line.now is None]
    return missing + [f"{node}: {failure.text}" for node, failure in failures.items()]


async def _until_over(fleet: LiveFleet, job: str, output: FoldedOutput) -> None:
    quiet_since = time.monotonic()

    def is_done() -> bool:
        nonlocal quiet_since
        view = job_status(fleet.store, job)
        if output.write_due() or view is None or not view.is_over:
            quiet_since = time.monotonic()
        return time.monotonic() - quiet_since > DRAIN_S

    await fleet.until(is_done)


#: Bytes. How much a file may have grown since it was listed, such as a log.
MAX_GROWTH: Final = 256 << 20


class FetchBudget(msgspec.Struct):
    """Bytes that a command may still write, whatever its nodes claim."""

    left: int

    def refusal(self, files: Sequence[tuple[str, int]]) -> str | None:
        """Why files of these sizes are not copied; None if they fit."""
        total = sum(max(0, size) for _, size in files)
        return f"{size_text(total)} listed, {size_text(self.left)} left of --max-size" if total > self.left else None


async def fetch_from(control: Control, node: str, job: str, path: str, output: Path, budget: FetchBudget) -> str | None:
    """Copy `path` of a node to `output`/node; returns an error text, or None."""
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
        print_text(printable(str(here)))
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
