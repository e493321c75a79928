"""`gconsole.connect`: a live fleet for scripts, notebooks and tests, whether or not an event loop runs there.

The fleet lives in a thread with its event loop. Its methods may be called from any other thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ..core.control import Selection
from ..records import Finding
from ..text.logs import internal_error
from .frames import report_of
from .live import CONNECT_S, TABLES, AsyncFleet, FleetClosed, connect_async
from .results import JobVerdicts, SqlResult, StackCapture, run_sql

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
#: Seconds. Upper bound on closing a fleet at the end of the process.
_EXIT_S: Final = 20.0
#: Fleets to close at the end of the process.
_open: Final[weakref.WeakSet[ConnectedFleet]] = weakref.WeakSet()


def connect(
    target: str | os.PathLike[str],
    *,
    settings: Mapping[str, object] | None = None,
    timeout_s: float = CONNECT_S,
    clocks: bool = False,
) -> ConnectedFleet:
    """Connect to the nodes of a target, and return once each has sent its first sample or failed.

    `target` as on the command line: a hosts.toml, a node set, `slurm:JOBID`, `k8s:NAMESPACE/SELECTOR` or `local`.
    `settings` replaces keys of hosts.toml: {"ssh.user": "ops"}. `clocks`: also probe the nodes' clocks.
    Raises ConfigError for a target or setting that is not valid, NoNodeReached if no node can be connected.
    """
    return ConnectedFleet(connect_async(target, settings=settings, timeout_s=timeout_s, clocks=clocks))


class ConnectedFleet:
    """A live fleet: tables as DataFrames, captures, diagnosis, findings, SQL, recordings. Changes nothing on the nodes.

    Use it in a `with` block, or call `close`; what is left open is closed at the end of the process.
    """

    def __init__(self, fleet: AsyncFleet) -> None:
        """Connect, as `connect` does."""
        self._fleet, self._pid = fleet, os.getpid()
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run_loop, name="gconsole fleet", daemon=True)
        self._thread.start()
        try:
            self._run(fleet.start())
        except BaseException:
            self._end_loop()
            raise
        _open.add(self)

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Disconnect from all nodes and end recordings. A second call does nothing."""
        if self._is_closed or self._pid != os.getpid():
            return
        try:
            self._run(self._fleet.close())
        finally:
            self._end_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _end_loop(self) -> None:
        self._is_closed = True
        _open.discard(self)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_EXIT_S)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop and wait; an interrupt cancels it. Raises FleetClosed, and what the work raises."""
        if self._is_closed or self._pid != os.getpid() or threading.current_thread() is self._thread:
            work.close()
            raise FleetClosed(self._why_not())
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _why_not(self) -> str:
        if self._pid != os.getpid():
            return "the fleet belongs to the parent of this process; connect here: gconsole.connect(TARGET)"
        if self._is_closed:
            return "the fleet is closed; connect again: gconsole.connect(TARGET)"
        return "a method of the fleet was called from its own thread; use gconsole.connect_async there"

    def _read(self, read: Callable[[AsyncFleet], T]) -> T:
        """The result of a function of the fleet that runs in its loop."""

        async def call() -> T:
            return read(self._fleet)

        return self._run(call())

    # -- tables --------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> pd.DataFrame:
        """A row per node: its state and why it is not reached, its host's figures, and what its agent costs."""
        return self._table("nodes")

    @property
    def ranks(self) -> pd.DataFrame:
        """A row per rank of every job: where it runs, whether it makes progress, and its figures."""
        return self._table("ranks")

    @property
    def gpus(self) -> pd.DataFrame:
        """A row per GPU or MIG device: its ranks, limits and figures."""
        return self._table("gpus")

    @property
    def findings(self) -> pd.DataFrame:
        """A row per finding, open and cleared."""
        return self._table("findings")

    def report(self) -> dict[str, Any]:
        """The report of `gconsole batch -o`: everything known now, as Python values."""
        return self._read(lambda fleet: report_of(fleet.store))

    def _table(self, name: str) -> pd.DataFrame:
        return self._read(lambda fleet: TABLES[name](fleet.store)).frame()

    # -- actions -------------------------------------------------------------------------------------------------------

    def capture(
        self, *, samples: int = 3, every_s: float = 0.3, jobs: Sequence[str] = (), ranks: Sequence[int] = (),
        processes: Sequence[tuple[str, int]] = (), variables: Sequence[str] = (),
    ) -> StackCapture:  # fmt: skip
        """Read the stacks of all ranks at one instant, `samples` times. Changes no process.

        `jobs`: parts of job names; `ranks`: only these; `processes`: (node, pid) of further Python processes;
        `variables`: local variables to read, NAME or FUNCTION:NAME. Raises NothingSelected without a rank.
        """
        return self._run(
            self._fleet.capture(
                samples=samples, every_s=every_s, jobs=jobs, ranks=ranks, processes=processes, variables=variables
            )
        )

    def diagnose(self, *, jobs: Sequence[str] = (), samples: int | None = None) -> JobVerdicts:
        """Capture until it is clear which rank blocks each job, as `d` in the console. Changes no process.

        `jobs`: parts of job names. Raises NothingSelected if none fits.
        """
        return self._run(self._fleet.diagnose(jobs=jobs, samples=samples))

    def watch(
        self, on_finding: Callable[[Finding], object] | None = None, timeout_s: float | None = None
    ) -> FindingStream:
        """Findings: those that are open, then each that opens or clears (then it has `cleared_at`).

        Iterate over the stream, or pass `on_finding`: it is called in a thread of its own, and `watch` returns at once.
        The stream ends after `timeout_s` seconds, at `stop`, and when the fleet is closed.
        """
        received: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        unsubscribe = self._read(lambda fleet: fleet.subscribe(received.put))
        return FindingStream(self, received, unsubscribe, on_finding, timeout_s)

    def sql(self, query: str, *, timeout_s: float = 60.0) -> SqlResult:
        """Run SQL over the records and the history of the console, read-only. Raises QueryError."""
        return run_sql(query, self._read(lambda fleet: fleet.snapshot(query)), timeout_s)

    @contextmanager
    def record(self, name: str, selection: Selection | None = None) -> Iterator[str]:
        """Record a session until the block ends; yields the path of its folder. Raises SessionError."""
        recording = self._fleet.record(name, selection)
        path = self._run(_entered(recording))
        try:
            yield path
        finally:
            if not self._is_closed:
                self._run(_left(recording))

    def __repr__(self) -> str:
        if self._is_closed or self._pid != os.getpid():
            return f"<{type(self).__name__}: closed>"
        return f"<{type(self).__name__} {self._read(AsyncFleet.describe)}>"

    def _call_soon(self, function: Callable[[], object]) -> None:
        if not self._is_closed:
            self._loop.call_soon_threadsafe(function)


class FindingStream:
    """Findings of a fleet as they come: an iterator, or calls of a function in a thread."""

    def __init__(
        self, fleet: ConnectedFleet, received: queue.SimpleQueue[Finding], unsubscribe: Callable[[], None],
        on_finding: Callable[[Finding], object] | None, timeout_s: float | None,
    ) -> None:  # fmt: skip
        """`ConnectedFleet.watch` makes it."""
        self._fleet, self._received, self._unsubscribe = fleet, received, unsubscribe
        self._end = None if timeout_s is None else time.monotonic() + timeout_s
        self._stopped = threading.Event()
        self.error: BaseException | None = None  # that `on_finding` raised, which ended the stream
        self._thread: threading.Thread | None = None
        if on_finding is not None:
            self._thread = threading.Thread(
                target=self._call, args=(on_finding,), name="gconsole findings", daemon=True
            )  # fmt: skip
            self._thread.start()

    def stop(self) -> None:
        """End the stream. A second call does nothing."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._fleet._call_soon(self._unsubscribe)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the calls have ended. Raises what `on_finding` raised."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error

    def __iter__(self) -> Iterator[Finding]:
        try:
            while not self._stopped.is_set() and not self._fleet._is_closed:
                wait_s = _POLL_S if self._end is None else min(_POLL_S, self._end - time.monotonic())
                if wait_s <= 0:
                    return
                try:
                    yield self._received.get(timeout=wait_s)
                except queue.Empty:
                    continue
        finally:
            self.stop()

    def _call(self, on_finding: Callable[[Finding], object]) -> None:
        try:
            for finding in self:
                on_finding(finding)
        except BaseException as error:  # noqa: BLE001 - raised by `join`
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


#: Seconds between two checks whether a stream has ended.
_POLL_S: Final = 0.2


async def _entered(context: Any) -> Any:
    return await context.__aenter__()


async def _left(context: Any) -> None:
    await context.__aexit__(None, None, None)


def _close_all() -> None:
    """Close the fleets that are still open; threads can still be used when it is called."""
    for fleet in list(_open):
        try:
            fleet.close()
        except Exception as error:  # noqa: BLE001 - the process ends, and the next fleet is closed, too
            internal_error(error, "closing a fleet")


#: Functions of `atexit` run when executors accept no work any more, which closing needs; this one runs before.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
