"""Headless runs: watch the nodes until the run is complete, capture or diagnose, and stop the fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from ..analysis.stalls import Suspicion
from ..core.bus import Hub
from ..core.control import CaptureRequest, Control, new_capture
from ..core.store import Store
from ..records import Failure, Log, Record
from ..text.format import plural
from ..text.sanitize import printable
from .capture_selection import CaptureSelection, NothingSelected
from .coverage import CONNECT_S, is_reported, is_settled
from .finding_tracker import FindingTracker
from .hang import Diagnosis, diagnose, verdict_findings
from .stall_watch import StallWatch
from .topology import TopologyFindings, TopologyFold
from .unrecognised import unrecognised

#: Seconds between checks of progress and end conditions; records are folded as they arrive.
POLL_S = 0.1
#: Seconds between folds of new records while other work is awaited.
FOLD_S = 1.0
#: Seconds for which ranks are awaited that only their stacks number, and then further ones.
NUMBERING_S, SETTLE_S = 6.0, 1.5
#: Seconds of a run that the login to a node and the start of its agent usually take.
LOGIN_S = 1.0
#: Seconds between reads of Flight Recorders during a run that reports late ranks: 100 collectives a step fill one
#: in some seconds. A longer run has no more reads than the second figure: the captures of all of them are kept.
REREAD_S, MOST_REREADS = 5.0, 15
#: Seconds. Without `--for`, how long devices that a node has not reported yet are awaited after its first sample.
REPORT_S = 3.0


class ProgressLine:
    """Progress line; `write` is None to suppress it, `more` returns a suffix."""

    def __init__(
        self, store: Store, write: Callable[[str], None] | None, more: Callable[[], str] | None = None
    ) -> None:
        self._store, self._write, self._more, self._last = store, write, more, ""

    def show(self, capture: str | None = None) -> None:
        """Write the current progress if it changed; `capture` is the id of the running capture."""
        if self._write is None:
            return
        states = [now.state.state if now.state else "expected" for now in self._store.nodes.values()]
        ready = sum(1 for now in self._store.nodes.values() if now.cost)
        failed = sum(state in ("failed", "lost") for state in states)
        line = f"nodes {ready}/{len(states)} sampled" + (f", {failed} failed" if failed else "")
        line += f" · ranks {len(self._store.ranks)}"
        if capture is not None:
            now = self._store.captures.get(capture)
            line = f"captured {len(now.ranks) if now else 0}/{len(self._store.ranks)} ranks"
        if self._more is not None:
            line += self._more()
        self.show_text(line)

    def show_text(self, line: str) -> None:
        """Write a line if it differs from the previous one."""
        if self._write is not None and line != self._last:
            self._last = line
            self._write(line)


async def watch(
    store: Store, hub: Hub, control: Control, for_s: float, progress: ProgressLine,
    order: CaptureRequest | Diagnosis | None = None, before: Callable[[], Awaitable[None]] | None = None,
    findings: FindingTracker | None = None, is_over: Callable[[], bool] = lambda: False,
    stalls: StallWatch | None = None, selection: CaptureSelection | None = None, awaits_ranks: bool = False,
    late_s: float = 0.0, rereads: bool = False,
) -> None:  # fmt: skip
    """Watch for `for_s` seconds, or with 0 until every node has sent a full sample or failed. Then stop the fleet.

    Before stopping, `before` is awaited and `order` (capture or diagnosis of `selection`) carried out. `findings` are
    updated throughout; `is_over()` ends the watch early. Jobs that `stalls` suspects are diagnosed meanwhile.
    `awaits_ranks`: where Python processes may be a job and there are no ranks, wait some seconds for these.
    `late_s`: for so many seconds more, nodes are awaited that connect late, until each was watched for `for_s`.
    `rereads`: read the Flight Recorders during the watch, too, if there are any.
    """
    reads = RecorderReads(store, control, for_s, selection) if rereads else None
    differing = TopologyFindings(store, TopologyFold(store), findings) if findings is not None else None

    async def evaluate(*, at_last: bool = False) -> None:
        if diagnosing is not None and not at_last:
            diagnosing.begin_if_due()
        if reads is not None and not at_last and (diagnosing is None or not diagnosing.is_running):
            reads.begin_if_due()
        if findings is not None and differing is not None and (at_last or findings.is_due):
            await findings.evaluate(is_last=at_last)
            await differing.evaluate(at_last=at_last)

    diagnosing = AutomaticDiagnosis(store, control, findings, stalls) if findings is not None and stalls else None
    try:
        await _watch(store, for_s, progress, evaluate, is_over, late_s)
        if awaits_ranks and order is None and for_s < NUMBERING_S and unrecognised(store):
            await _ranks_appear(store, findings)
        if diagnosing is not None:
            if order is None:
                diagnosing.begin_if_due(at_once=True)  # a short run ends before the first evaluation
            await _meanwhile(diagnosing.wait(), findings)
        if reads is not None:
            await _meanwhile(reads.wait(), findings)
        if before is not None:
            await _meanwhile(before(), findings)
        if order is not None:
            try:
                await carry_out(store, hub, control, order, progress, selection, findings)
            except NothingSelected as error:
                try_ = "gconsole ps shows all ranks and Python processes"
                hub.publish_own(Log(source="console", severity="warning", text=str(error), try_=try_))
            else:
                if not len(store.captures):
                    hub.publish_own(_nothing_captured(store))
                elif isinstance(order, Diagnosis) and findings is not None and stalls is not None:
                    await _withdraw_outdated(findings, stalls)
    finally:
        if diagnosing is not None:
            diagnosing.cancel()
        if reads is not None:
            reads.cancel()
        await evaluate(at_last=True)
        progress.show()
        try:
            await control.stop()
        finally:
            fail_unsettled(store, hub)  # after the stop: until then a failed node may begin its next attempt
        if isinstance(order, Diagnosis):
            hub.publish_own(*verdict_findings(store))
        if store.console:
            hub.publish_own(msgspec.structs.replace(store.console, state="ended"))


async def _withdraw_outdated(findings: FindingTracker, stalls: StallWatch) -> None:
    """Clear findings of earlier, partial captures that the whole one does not confirm."""
    confirmed = {(draft.id, draft.culprits, draft.job) for draft in await asyncio.to_thread(stalls.diagnosed, ())}
    still = [each for each in findings.reported_by("verdict") if (each.id, each.culprits, each.job) in confirmed]
    findings.report("verdict", still, clears_at_once=True)


class AutomaticDiagnosis:
    """Diagnoses suspected jobs in the background, one diagnosis at a time, and reports the verdicts as findings."""

    def __init__(self, store: Store, control: Control, findings: FindingTracker, stalls: StallWatch) -> None:
        self._store, self._control, self._findings, self._stalls = store, control, findings, stalls
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a diagnosis runs."""
        return self._task is not None and not self._task.done()

    def begin_if_due(self, *, at_once: bool = False) -> None:
        """Begin to diagnose if a job appears to stand still and no diagnosis runs; `at_once` as in `StallWatch.due`."""
        if self.is_running:
            return
        suspected = self._stalls.due(at_once=at_once)
        if suspected:
            self._task = asyncio.create_task(self._run(suspected), name="stall diagnosis")

    async def wait(self) -> None:
        """Wait for the diagnosis that runs, if any."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """End the diagnosis that runs, if any."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, suspected: Sequence[Suspicion]) -> None:
        jobs = tuple(suspicion.job[0] for suspicion in suspected)
        try:
            await diagnose(self._store, self._control, Diagnosis(jobs=jobs, is_automatic=True))
            self._findings.report("verdict", await asyncio.to_thread(self._stalls.diagnosed, suspected))
            self._findings.succeeded("stall diagnosis")
        except Exception as error:  # noqa: BLE001 - published as an error; the watch goes on
            self._findings.failed("stall diagnosis", error)


class RecorderReads:
    """Reads Flight Recorders again and again: each read adds the operations since the one before.

    Nothing is read after a read in which no rank had a recorder.
    """

    def __init__(self, store: Store, control: Control, for_s: float, selection: CaptureSelection | None) -> None:
        self._store, self._control, self._selection = store, control, selection
        self._every_s = max(REREAD_S, for_s / MOST_REREADS)
        self._due = time.monotonic() + self._every_s
        self._task: asyncio.Task[object] | None = None
        self._capture: str | None = None

    def begin_if_due(self) -> None:
        """Begin a read if the last one was some seconds ago and has ended."""
        if time.monotonic() < self._due or not len(self._store.ranks):
            return
        if self._task is not None and not self._task.done():
            return
        if self._task is not None and self._capture is not None:
            self._task.result()
            last = self._store.captures.get(self._capture)
            if last is None or not last.collectives:
                return
        request = CaptureRequest(new_capture())
        try:
            order = request if self._selection is None else self._selection.apply(request, self._store)
        except NothingSelected:
            return
        assert isinstance(order, CaptureRequest)
        self._capture, self._due = order.id, time.monotonic() + self._every_s
        self._task = asyncio.create_task(self._control.capture(order), name="recorder read")

    async def wait(self) -> None:
        """Wait for the read that runs, if any."""
        if self._task is not None:
            await self._task

    def cancel(self) -> None:
        """End the read that runs, if any."""
        if self._task is not None:
            self._task.cancel()


async def _watch(
    store: Store,
    for_s: float,
    progress: ProgressLine,
    evaluate: Callable[[], Awaitable[None]],
    is_over: Callable[[], bool],
    late_s: float,
) -> None:
    began = time.monotonic()
    settled: float | None = None
    while not is_over():
        progress.show()
        await evaluate()
        now = time.monotonic()
        elapsed = now - began
        if settled is None and is_settled(store):
            settled = now
        if for_s == 0:
            is_complete = settled is not None and (is_reported(store) or now - settled > REPORT_S)
            if is_complete or elapsed > CONNECT_S:
                return
        elif elapsed >= for_s and not (elapsed < for_s + late_s and _is_any_late(store, for_s)):
            return
        await asyncio.sleep(min(POLL_S, for_s - elapsed) if for_s > elapsed else POLL_S)


def _is_any_late(store: Store, for_s: float) -> bool:
    """Whether a node still connects, for the first time or again, or was watched for less than `for_s` but a second."""
    return any(
        now.state is None
        or now.state.state in ("expected", "connecting")
        or now.state.retry_at is not None
        or (now.state.state == "ok" and store.newest_rx - now.agent_rx < (for_s - LOGIN_S) * 1e9)
        for now in store.nodes.values()
    )


async def _meanwhile(work: Awaitable[None], findings: FindingTracker | None) -> None:
    """Await `work` while folding new records; findings are evaluated afterwards."""
    working = asyncio.ensure_future(work)
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=FOLD_S)
            if findings is not None:
                await findings.fold_pending()
    finally:
        working.cancel()
        await asyncio.wait({working})
    await working


async def carry_out(
    store: Store, hub: Hub, control: Control, order: CaptureRequest | Diagnosis, progress: ProgressLine,
    selection: CaptureSelection | None, findings: FindingTracker | None,
) -> None:  # fmt: skip
    """Carry out the order, once more if ranks are recognised only afterwards. Raises NothingSelected."""
    try:
        await _capture(store, hub, control, order, progress, selection)
    except NothingSelected:
        if len(store.ranks) or not await _ranks_appear(store, findings):
            raise
    else:
        if len(store.captures) or not await _ranks_appear(store, findings):
            return
    await _capture(store, hub, control, order, progress, selection)


async def _capture(
    store: Store, hub: Hub, control: Control, order: CaptureRequest | Diagnosis, progress: ProgressLine,
    selection: CaptureSelection | None,
) -> None:  # fmt: skip
    """Carry out the order. Raises NothingSelected."""
    order = order if selection is None else selection.apply(order, store)
    capture_id = order.id if isinstance(order, CaptureRequest) else ""

    def begins(next_order: CaptureRequest) -> None:
        nonlocal capture_id
        capture_id = next_order.id

    work: Coroutine[Any, Any, object] = (
        control.capture(order) if isinstance(order, CaptureRequest) else diagnose(store, control, order, begins)
    )
    capturing = asyncio.create_task(work, name="capture")
    try:
        while not capturing.done():
            progress.show(capture_id)
            await asyncio.wait({capturing}, timeout=POLL_S)
    finally:
        capturing.cancel()
    await capturing


async def _ranks_appear(store: Store, findings: FindingTracker | None) -> bool:
    """Whether ranks are recognised within a few seconds, where there are none yet.

    Processes of `mp.spawn` have no variables that number them: their agents need py-spy, which arrives a little later.
    """
    if not any(process.role == "python" for process in store.processes.values()):
        return False
    deadline = time.monotonic() + NUMBERING_S
    while not len(store.ranks) and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        if findings is not None:
            await findings.fold_pending()
    if len(store.ranks):
        await asyncio.sleep(SETTLE_S)  # the ranks of other nodes
    return bool(len(store.ranks))


def _nothing_captured(store: Store) -> Log:
    """Why there are no stacks: no ranks, and which Python processes were not recognised as ranks."""
    python = [process for process in store.processes.values() if process.role == "python"]
    text = "no stacks captured: no ranks found"
    launchers = [process for process in store.processes.values() if process.has_children is False]
    if launchers:
        first = min(launchers, key=lambda process: (process.node, process.pid))
        text += f"; {plural(len(launchers), 'launcher')} that started no process, e.g. pid {first.pid} on {first.node}"
        try_ = "start the job's launcher on all of its nodes, with the same arguments"
        return Log(source="console", severity="warning", text=text, try_=try_)
    if python:
        example = min(python, key=lambda process: (process.node, process.pid))
        text += f"; {plural(len(python), 'Python process')} without a rank, e.g. pid {example.pid} on {example.node}"
    try_ = "start the job by a launcher that sets RANK and WORLD_SIZE; or capture a process: --capture --pid NODE:PID"
    return Log(source="console", severity="warning", text=text, try_=try_)


def fail_unsettled(store: Store, hub: Hub) -> None:
    """Mark nodes that are still connecting as failed, with the failure of their last attempt or a timeout."""
    for now in store.nodes.values():
        if now.state and now.state.state in ("expected", "connecting"):
            failure = now.failure or Failure("timeout", "still connecting at the end of the run", "increase --for")
            hub.publish_own(msgspec.structs.replace(now.state, state="failed", error=failure, retry_at=None))


def is_warning(record: Record) -> bool:
    """Whether a record is a log of severity warning or error; faults in a node's kernel log are data."""
    return isinstance(record, Log) and record.severity != "info" and record.fault is None


def is_reported_event(record: Record) -> bool:
    """Whether a report needs an event: a warning, or what happened on a node before its agent came."""
    return is_warning(record) or (isinstance(record, Log) and record.is_earlier)


def warnings(store: Store) -> list[str]:
    """Log messages of severity warning or error, for stderr."""
    logs = [record for _, record in store.events if isinstance(record, Log) and is_warning(record)]
    texts = [f"{log.node}: {log.text}" if log.node else log.text for log in logs]
    return ["\n  ".join(map(printable, text.splitlines())) for text in texts]
