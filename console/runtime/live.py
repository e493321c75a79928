"""A live fleet for Python programs: connect, read tables, capture, diagnose, watch, query, record. For asyncio.

`AsyncFleet` runs in the caller's event loop; `blocking.ConnectedFleet` is the same without one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from .. import GconsoleError
from ..config import Config, ConfigError
from ..config.schema import all_keys, nearest
from ..core.bus import Published
from ..core.control import CaptureRequest, Selection, new_capture
from ..core.store import Store
from ..core.wants import DIGESTED, EVERY_SAMPLE, Want
from ..fleet.scheduler_jobs import load_configuration
from ..monitor import headless
from ..monitor.capture_selection import CaptureSelection, NothingSelected
from ..monitor.coverage import is_reported, is_settled
from ..monitor.hang import Diagnosis, hang_models
from ..records import Finding
from ..session.store_snapshot import StoreSnapshot, snapshot_tables
from ..text.format import plural
from .console import Console, sessions_folder_of
from .frames import ColumnTable, findings_table, gpus_table, nodes_table, ranks_table, report_of
from .results import JobVerdicts, SqlResult, StackCapture, run_sql

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
logging.getLogger("gconsole").addHandler(logging.NullHandler())  # the program decides whether it shows our log
#: Seconds until a fleet that connects is given up; nodes that are slower connect in the background.
CONNECT_S: Final = 45.0
#: Failures that an error lists.
_LISTED: Final = 3


class NoNodeReached(GconsoleError):
    """No node of the target could be connected; the text has the first reasons."""


class FleetClosed(GconsoleError):
    """The fleet was closed, or belongs to the parent of this process."""


def connect_async(
    target: str | os.PathLike[str],
    *,
    settings: Mapping[str, object] | None = None,
    timeout_s: float = CONNECT_S,
    clocks: bool = False,
) -> AsyncFleet:
    """A fleet for asyncio: `async with gconsole.connect_async("hosts.toml") as fleet`, or `await` it and close it.

    `target` as on the command line: a hosts.toml, a node set, `slurm:JOBID`, `k8s:NAMESPACE/SELECTOR` or `local`.
    `settings` replaces keys of hosts.toml: {"ssh.user": "ops"}. `clocks`: also probe the nodes' clocks.
    Raises ConfigError for a target or setting that is not valid.
    """
    for name in settings or {}:
        if name not in all_keys():
            text = "unknown configuration key; gconsole config show TARGET prints all"
            raise ConfigError("settings", name, text, nearest(name, all_keys()))
    return AsyncFleet(load_configuration(os.fspath(target), dict(settings or {})), timeout_s=timeout_s, clocks=clocks)


class AsyncFleet:
    """The nodes of one configuration and their records. Read-only: it starts, stops and changes no process."""

    def __init__(self, config: Config, *, timeout_s: float = CONNECT_S, clocks: bool = False) -> None:
        """Nothing connects before `start`."""
        self.config, self._timeout_s, self._clocks = config, timeout_s, clocks
        self._console: Console | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_closing = False

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Connect; returns once every node has sent its first sample or failed. Raises NoNodeReached."""
        console = self._console = Console(self.config, probe_clocks=self._clocks, black_box=False, is_embedded=True)
        console.fleet.want("python", Want(None, DIGESTED, EVERY_SAMPLE))
        await console.start()
        self._watching = asyncio.create_task(
            headless.watch(
                console.store, console.bus, console.fleet, math.inf, headless.ProgressLine(console.store, None),
                findings=console.findings, is_over=lambda: self._is_closing, stalls=console.stalls,
            ),
            name="gconsole watch",
        )  # fmt: skip
        try:
            await self._settled(console.store)
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Disconnect from all nodes and end recordings. A second call does nothing."""
        console, watching = self._console, self._watching
        self._is_closing, self._watching = True, None
        if console is None or watching is None:
            return
        await asyncio.wait({watching})
        await console.clock_estimator.stop()
        await console.recorder.close()
        await console.black_box.close()
        if not watching.cancelled() and (error := watching.exception()) is not None:
            raise error

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def _settled(self, store: Store) -> None:
        """Wait for the first sample of every node, then a little for its devices. Raises NoNodeReached."""
        end = time.monotonic() + self._timeout_s
        await _until(lambda: is_settled(store), end)
        await _until(lambda: is_reported(store), min(end, time.monotonic() + headless.REPORT_S))
        if not any(now.state and now.state.state == "ok" for now in store.nodes.values()):
            raise NoNodeReached(_unreached(store, self._timeout_s))

    @property
    def store(self) -> Store:
        """The live state, in the thread of the event loop. Raises FleetClosed."""
        return self._running().store

    def _running(self) -> Console:
        if self._console is None or self._is_closing:
            raise FleetClosed("the fleet is closed; connect again: gconsole.connect(TARGET)")
        return self._console

    # -- tables --------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> pd.DataFrame:
        """A row per node."""
        return nodes_table(self.store).frame()

    @property
    def ranks(self) -> pd.DataFrame:
        """A row per rank of every job."""
        return ranks_table(self.store).frame()

    @property
    def gpus(self) -> pd.DataFrame:
        """A row per GPU."""
        return gpus_table(self.store).frame()

    @property
    def findings(self) -> pd.DataFrame:
        """A row per finding, open and cleared."""
        return findings_table(self.store).frame()

    def report(self) -> dict[str, Any]:
        """The report of `gconsole batch -o`: everything known now, as Python values."""
        return report_of(self.store)

    # -- actions -------------------------------------------------------------------------------------------------------

    async def capture(
        self, *, samples: int = 3, every_s: float = 0.3, jobs: Sequence[str] = (), ranks: Sequence[int] = (),
        processes: Sequence[tuple[str, int]] = (), variables: Sequence[str] = (),
    ) -> StackCapture:  # fmt: skip
        """Read the stacks of all ranks at one instant, `samples` times. Changes no process.

        `jobs`: parts of job names; `ranks`: only these; `processes`: (node, pid) of further Python processes;
        `variables`: local variables to read, NAME or FUNCTION:NAME. Raises NothingSelected without a rank.
        """
        order = CaptureRequest(new_capture(), samples=samples, every_s=every_s, locals=tuple(variables))
        selection = CaptureSelection(tuple(jobs), frozenset(ranks), tuple(processes))
        await self._carry_out(order, selection)
        store = self.store
        capture = store.captures.get(order.id)
        if capture is None:
            raise NothingSelected("no rank was found; start the job by a launcher that sets RANK and WORLD_SIZE, or "
                                  "capture processes=[(NODE, PID)]")  # fmt: skip
        kept = copy(capture)  # the store goes on: the lists are ours
        kept.stacks, kept.collectives, kept.groups = [*capture.stacks], [*capture.collectives], [*capture.groups]
        failures = {
            now.name: now.failure.text for now in store.nodes.values() if now.failure and not _is_connected(now.state)
        }
        return StackCapture(kept, hang_models(store), failures)

    async def diagnose(self, *, jobs: Sequence[str] = (), samples: int | None = None) -> JobVerdicts:
        """Capture until it is clear which rank blocks each job, as `d` in the console. Changes no process.

        `jobs`: parts of job names. Raises NothingSelected if none fits.
        """
        await self._carry_out(Diagnosis(samples=samples), CaptureSelection(tuple(jobs)))
        return JobVerdicts.of_store(self.store, jobs)

    async def _carry_out(self, order: CaptureRequest | Diagnosis, selection: CaptureSelection) -> None:
        console = self._running()
        silent = headless.ProgressLine(console.store, None)
        await headless.carry_out(
            console.store, console.bus, console.fleet, order, silent, selection, console.findings
        )  # fmt: skip

    async def watch(self, timeout_s: float | None = None) -> AsyncIterator[Finding]:
        """Yield findings: those that are open, then each that opens or clears, until `timeout_s` seconds or the close.

        One that clears has `cleared_at`. Later texts of an open finding are left out.
        """
        queue: asyncio.Queue[Finding] = asyncio.Queue()
        end = None if timeout_s is None else time.monotonic() + timeout_s
        unsubscribe = self.subscribe(queue.put_nowait)
        try:
            while not self._is_closing and (end is None or time.monotonic() < end):
                wait_s = headless.FOLD_S if end is None else min(headless.FOLD_S, end - time.monotonic())
                try:
                    yield await asyncio.wait_for(queue.get(), max(0.0, wait_s))
                except TimeoutError:
                    continue
        finally:
            unsubscribe()

    def subscribe(self, receive: Callable[[Finding], object]) -> Callable[[], None]:
        """Call `receive` in the event loop for each open finding now, and for each that opens or clears later.

        Returns the function that ends it.
        """
        console = self._running()
        opened: set[tuple[str, tuple[str, ...], str | None]] = set()

        def accept(records: Sequence[Published]) -> None:
            for record in records:
                if isinstance(record, Finding):
                    key = (record.id, record.culprits, record.job)
                    if (record.cleared_at is None) == (key not in opened):
                        (opened.add if record.cleared_at is None else opened.discard)(key)
                        receive(msgspec.structs.replace(record))

        accept([finding for finding in console.store.findings.values() if finding.cleared_at is None])
        return console.bus.subscribe(accept)

    async def sql(self, query: str, *, timeout_s: float = 60.0) -> SqlResult:
        """Run SQL over the records and the history of the console, read-only. Raises QueryError."""
        snapshot = self.snapshot(query)
        return await asyncio.to_thread(run_sql, query, snapshot, timeout_s)

    def snapshot(self, query: str) -> StoreSnapshot:
        """The tables that a query needs, as they are now: a source for `run_sql` in any thread."""
        from ..session.query.views import tables_for

        return snapshot_tables(self.store, tables_for(query)[0])

    @asynccontextmanager
    async def record(self, name: str, selection: Selection | None = None) -> AsyncIterator[str]:
        """Record a session until the block ends; yields the path of its folder. Raises SessionError."""
        recorder = self._running().recorder
        await recorder.start(name, selection)
        try:
            yield str(sessions_folder_of(self.config) / name)
        finally:
            if any(recording.name == name for recording in recorder.active()):
                await recorder.stop(name)

    def describe(self) -> str:
        """One line: the cluster, and how many nodes, ranks and GPUs there are."""
        if self._console is None or self._is_closing:
            return f"{self.config.cluster}: closed"
        store = self._console.store
        reached = sum(_is_connected(now.state) for now in store.nodes.values())
        counts = f"{plural(len(store.ranks), 'rank')}, {plural(len(store.gpus), 'GPU')}"
        return f"{self.config.cluster}: {reached}/{len(store.nodes)} nodes connected, {counts}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.describe()}>"


#: Functions that make the tables of a fleet, by attribute.
TABLES: Final[Mapping[str, Callable[[Store], ColumnTable]]] = {
    "nodes": nodes_table, "ranks": ranks_table, "gpus": gpus_table, "findings": findings_table,
}  # fmt: skip
#: What `blocking` runs in the event loop of a fleet.
Action = Callable[[AsyncFleet], Awaitable[T]]


async def _until(condition: Callable[[], bool], end: float) -> None:
    """Wait until a condition of the store holds, or until `end`, monotonic."""
    while not condition():
        if time.monotonic() >= end:
            return
        await asyncio.sleep(headless.POLL_S)


def _is_connected(state: Any) -> bool:
    return state is not None and state.state == "ok"


def _unreached(store: Store, timeout_s: float) -> str:
    """Why no node is connected: the first reasons with their remedies."""
    lines = []
    for now in store.nodes.values():
        failure = now.failure or (now.state.error if now.state else None)
        if failure is None:
            reason = f"{now.name}: still connecting after {timeout_s:g} s; raise timeout_s"
        else:
            reason = f"{now.name}: {failure.text}" + (f"; try: {failure.try_}" if failure.try_ else "")
        lines.append(reason)
    more = f"\n… and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    return "no node was reached\n" + "\n".join(lines[:_LISTED]) + more
