"""Fleet connection of one `gconsole run` command, and the output of a job as one stream."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from ..config import Config
from ..config.model import without_clock_probes, without_stacks
from ..core.bus import Hub, Published, log_records
from ..core.job_protocol import is_away
from ..core.store import Store
from ..fleet import job_requests
from ..fleet.fleet import Fleet
from ..launch.output_fold import Folded, JobOutput, LineFold
from ..launch.state import JobStatus, PendingStops, job_status
from ..monitor.coverage import CONNECT_S, is_settled
from ..text.documents import JsonText, json_lines
from ..text.format import clock_time_ms
from ..text.sanitize import Printable, join_lines, printable
from .terminal import print_text

#: Seconds between two evaluations of a condition: while records arrive; while none does, at the beginning, and at most.
LEAST_S, SOONEST_S, POLL_S = 0.005, 0.01, 0.1
#: Seconds between SIGTERM and SIGKILL for pending stops.
STOP_GRACE_S = 10.0


class LiveFleet(msgspec.Struct, frozen=True):
    """The connected fleet and its state."""

    config: Config
    hub: Hub
    store: Store
    fleet: Fleet

    async def until(self, condition: Callable[[], bool], deadline_s: float | None = None) -> bool:
        """Wait until `condition()`, evaluated as records arrive, and now and then; False after `deadline_s` seconds."""
        began, arrived = time.monotonic(), asyncio.Event()
        unsubscribe = self.hub.subscribe(lambda records: arrived.set())
        try:
            while not condition():
                arrived.clear()
                evaluated = time.monotonic()
                if deadline_s is not None and evaluated - began > deadline_s:
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(POLL_S, max(SOONEST_S, (evaluated - began) / 50))):
                        await arrived.wait()
                await asyncio.sleep(evaluated + LEAST_S - time.monotonic())
            return True
        finally:
            unsubscribe()


async def _run_pending_stops(live: LiveFleet) -> None:
    """Stop jobs on nodes that were unreachable when the stop was confirmed.

    Ignores `[console] read_only`: the user confirmed this stop earlier.
    """
    from ..launch.format import stop_words

    pending = PendingStops.of_cluster(live.config.cluster)
    for job, nodes in pending.orders.items():
        back = [node for node in nodes if (link := live.fleet.links.get(node)) and link.state == "ok"]
        answers = await job_requests.stop(live.fleet.links, job, back, STOP_GRACE_S) if back else {}
        for node, answer in answers.items():
            words = printable(f"gconsole: pending stop of {job} on {node}: {stop_words(answer)}")
            print_text(words, err=True)
        pending.set(job, tuple(node for node in nodes if node not in back or is_away(answers.get(node))))


@asynccontextmanager
async def live(config: Config, *, allow_run: bool = False) -> AsyncIterator[LiveFleet]:
    """Connect to all nodes, wait until each has sampled or failed, disconnect at the end of the block.

    The health of the nodes is evaluated once, and pending stops are executed. `allow_run` only for start and stop,
    which ask for confirmation. It is no `Console`: to load the analyses of hangs, crashes and clocks takes longer than
    to start a job.
    """
    hub, store = Hub(), Store()
    received: list[Published] = []
    stop_receiving = hub.subscribe(received.extend)
    for sink in (store.apply, log_records):
        hub.subscribe(sink)
    fleet = Fleet(without_stacks(without_clock_probes(config)), hub, allow_run=allow_run, jobs_only=True)
    live = LiveFleet(config, hub, store, fleet)
    await fleet.start()
    try:
        await live.until(lambda: is_settled(store) or any(link.is_agent_starting for link in fleet.links.values()))
        from ..launch import format, plan  # noqa: F401 - these too are loaded while the agents start
        from ..monitor.finding_tracker import FindingTracker

        findings = FindingTracker(hub, config.health, earlier=received)
        stop_receiving()
        await live.until(lambda: is_settled(store), CONNECT_S)
        await findings.evaluate()
        await _run_pending_stops(live)
        yield live
    finally:
        await fleet.stop()


#: Seconds. Identical lines of different ranks within this window are merged; ranks are read 5 times per second.
FOLD_S = 0.6


class LineFilter(msgspec.Struct, frozen=True):
    """Which lines to print, and how."""

    tail: int | None = None  # of all lines that were written before
    ranks: frozenset[int] | None = None  # None: all ranks, and launchers
    pattern: re.Pattern[str] | None = None
    fold: bool = True
    times: bool = False  # with the instants at which they were written
    as_json: bool = False  # an object for each line

    @property
    def fetched(self) -> int | None:
        """Lines of each rank to read; with a pattern all, because the last matching ones may be anywhere."""
        return self.tail if self.pattern is None else None


class FoldedOutput(JobOutput):
    """Collects the output of one job and writes merged lines."""

    def __init__(self, view: JobStatus, lines: LineFilter, write: Callable[[Printable | JsonText], None]) -> None:
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
            self._write(json_lines(map(_line_json, lines)) if self._filter.as_json
                        else join_lines(map(self._format, lines)))  # fmt: skip

    def _format(self, line: Folded) -> str:
        instant = ""
        if self._filter.times:
            instant = f"{clock_time_ms(line.at_ns) if line.at_ns is not None else '-':<12} "
        return f"{instant}[{line.who}] {line.text}"


def _line_json(line: Folded) -> dict[str, object]:
    """`{"ranks": [0, 1], "launchers": [], "stream": "stdout", "written_at": 1700000000000000000, "text": "…"}`."""
    return {
        "ranks": [writer for writer in line.writers if isinstance(writer, int)],
        "launchers": [writer for writer in line.writers if isinstance(writer, str)],
        "stream": line.stream, "written_at": line.at_ns, "text": line.text,
    }  # fmt: skip


async def stream(
    fleet: LiveFleet, view: JobStatus, lines: LineFilter, write: Callable[[Printable | JsonText], None], *, follow: bool
) -> bool:
    """Write the output of a job, with `follow` until it ends. Returns whether it is complete; warns of what is not."""
    output = FoldedOutput(view, lines, write)
    unsubscribe = fleet.hub.subscribe(output.collect)
    job, nodes = view.ordered.job, [line.node for line in view.lines if line.now is not None]
    problems = [f"{line.node}: {line.why}" for line in view.lines if line.now is None]
    try:
        agents = {node: _agent(fleet, node) for node in nodes}
        failures = await fleet.fleet.follow_job(job, nodes, lines.fetched, follow)
        problems += [f"{node}: {failure.text}" for node, failure in failures.items()]
        for problem in problems:
            _warn(problem)
        output.write_earlier()
        is_whole = not follow or await _until_over(fleet, job, output, agents)
        output.write_due(everything=True)
    finally:
        unsubscribe()
    return is_whole and not problems


def _warn(problem: str) -> None:
    print_text(printable(f"gconsole: {problem}"), err=True)


async def _until_over(fleet: LiveFleet, job: str, output: FoldedOutput, agents: dict[str, str]) -> bool:
    """Write lines until the job has ended on all nodes, which each agent reports after its last line.

    `agents`: the agent that follows on each node. Where another one takes its place, that one follows from then on.
    Returns whether all of them stayed, so that no line is missing.
    """
    again: list[asyncio.Task[None]] = []

    def is_done() -> bool:
        output.write_due()
        for node, agent in agents.items():
            now = _agent(fleet, node)
            if now not in ("", agent):
                agents[node] = now
                again.append(asyncio.create_task(_follow_again(fleet, job, node)))
        view = job_status(fleet.store, job)
        return view is not None and view.is_over

    await fleet.until(is_done)
    await asyncio.gather(*again)
    return not again


def _agent(fleet: LiveFleet, node: str) -> str:
    link = fleet.fleet.links.get(node)
    return link.connected_agent if link is not None else ""


async def _follow_again(fleet: LiveFleet, job: str, node: str) -> None:
    failures = await fleet.fleet.follow_job(job, [node], 0, follow=True)
    _warn(f"{node}: its agent was started again; lines that the job wrote there meanwhile are missing here."
          f" All lines: gconsole run logs TARGET {job}")  # fmt: skip
    for failure in failures.values():
        _warn(f"{node}: {failure.text}")
