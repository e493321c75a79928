"""Lifecycle of findings: drafts of the analyses become `finding` records that open, change and clear.

The screen's frame clock and the batch loop call `evaluate`, at most once a second; large fleets are evaluated in a
thread. A replay does not call it: its findings are the recorded ones.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from ..analysis import health
from ..analysis.finding import FindingDraft
from ..analysis.health.state import HealthState
from ..config.sections import HealthConfig
from ..core.bus import Hub, Published
from ..core.derived import Throttle, timed
from ..records import Finding, Log
from ..text.logs import internal_error

Analysis = Callable[[HealthState, HealthConfig], Iterable[FindingDraft]]


class FindingSource(Protocol):
    """An analysis with a state of its own, evaluated after `ANALYSES`."""

    @property
    def name(self) -> str:
        """Name of the analysis in messages."""

    async def evaluate(self, *, is_last: bool) -> Sequence[FindingDraft]:
        """All findings that hold now. `is_last`: no evaluation follows, so open windows are closed."""


#: Every analysis of the health state, by name. One with its own schedule (a capture) calls `report` instead.
ANALYSES: Final[dict[str, Analysis]] = {"health": health.changed_findings}
EVERY_S: Final = 1.0
#: Pause after an evaluation, as a multiple of its CPU time: 4,096 GPUs take 15 ms while all work for one job; and the
#: longest one, in seconds.
PAUSE: Final = 20
LONGEST_PAUSE_S: Final = 5.0
#: Seconds between records of one finding whose text changed; a new severity or confidence is published at once.
AGAIN_S: Final = 60.0
#: Open findings at most; further ones are dropped with a warning.
MOST_OPEN: Final = 8_192
#: Records per evaluation from which on it runs in a thread.
MANY: Final = 1_000
#: Records that may wait for an evaluation; more are folded on arrival, because a backlog (a laptop that slept) would
#: raise the process's peak memory for good.
MOST_WAITING: Final = 256

_Key = tuple[str, tuple[str, ...], str | None]


class _Open(msgspec.Struct):
    """A finding that holds: its newest draft, and the record published last."""

    draft: FindingDraft
    published: Finding
    published_s: float  # monotonic
    source: str
    absent_s: float | None = None  # since when its source no longer reports it, monotonic
    absent_ns: int = 0  # the same, CLOCK_REALTIME


class FindingTracker:
    """Receives records from the bus and publishes findings to it. `clock` is monotonic, in seconds."""

    def __init__(
        self, hub: Hub, limits: HealthConfig, clock: Callable[[], float] = time.monotonic,
        sources: Sequence[FindingSource] = (), earlier: Sequence[Published] = (),
    ) -> None:  # fmt: skip
        """`earlier`: records that were published before."""
        self._hub, self._limits, self._clock, self._sources = hub, limits, clock, tuple(sources)
        self._facts = HealthState(limits.window_s, limits.busy_pct)
        self._pending = list(earlier)
        self._received = len(earlier)  # records since the last evaluation
        self._open: dict[_Key, _Open] = {}
        self._throttle = Throttle(EVERY_S, PAUSE, clock, longest_pause_s=LONGEST_PAUSE_S)
        self._evaluating = threading.Lock()  # a cancelled evaluation may still run in its thread
        self._failed: set[str] = set()  # analyses whose failure was published
        self._failing: set[str] = set()  # analyses that failed when they last ran
        self._evaluated_s: float | None = None  # when all analyses had last run, monotonic
        self._is_full = False
        hub.subscribe(self._append, self._facts.kinds)

    @property
    def is_due(self) -> bool:
        """Whether the last evaluation has ended and is a second ago."""
        return self._throttle.is_due

    @property
    def evaluated_age_s(self) -> float | None:
        """Seconds since every analysis last ran; None if none did yet."""
        return None if self._evaluated_s is None else self._clock() - self._evaluated_s

    @property
    def failing(self) -> tuple[str, ...]:
        """Analyses that failed when they last ran, by name."""
        return tuple(sorted(self._failing))

    async def evaluate(self, *, is_last: bool = False) -> None:
        """Run every analysis on the records so far; publish findings that opened, changed or cleared."""
        if self._throttle.is_busy:
            return
        records, self._pending = self._pending, []
        received, self._received = self._received, 0
        with self._throttle.running():
            work = partial(timed, partial(self._run_analyses, records))
            results, cost_s = work() if received < MANY else await asyncio.to_thread(work)
            for source in self._sources:
                began_s = time.thread_time()
                results[source.name] = await self._run_source(source, is_last)
                cost_s += time.thread_time() - began_s  # at most: also that of others, where the source waits
            self._throttle.cost_s = cost_s
        for name, result in results.items():
            if isinstance(result, Exception):
                self._publish_failure(name, result)
            else:
                self.succeeded(name)
                self.report(name, result)
        self._clear_absent()
        self._evaluated_s = self._clock()

    async def fold_pending(self) -> None:
        """Fold the records so far without an evaluation, so that none pile up during long work."""
        if self._throttle.is_busy:
            return
        records, self._pending = self._pending, []
        with self._throttle.running(reschedule=False):
            if len(records) < MANY:
                self._fold(records)
            else:
                await asyncio.to_thread(self._fold, records)

    def report(self, source: str, drafts: Iterable[FindingDraft], *, clears_at_once: bool = False) -> None:
        """Replace the findings of one source; those it no longer reports are cleared after `[health] clear_s`."""
        now_s, now_ns = self._clock(), time.time_ns()
        current = {(draft.id, draft.culprits, draft.job): draft for draft in drafts if not self._is_covered(draft)}
        news = [self._present(source, key, draft, now_s, now_ns) for key, draft in current.items()]
        gone = [
            key
            for key, entry in self._open.items()
            if (entry.source == source and key not in current) or self._is_covered(entry.draft)
        ]
        news += [self._absent(key, now_s, now_ns, at_once=clears_at_once) for key in gone]
        records = [record for record in news if record is not None]
        if records:
            self._hub.publish_own(*records)

    def _is_covered(self, draft: FindingDraft) -> bool:
        """Whether the finding of a crash covers another one: that ranks wait for the rank that crashed.

        The crash of an attempt that was restarted is a warning, and covers no hang of the next attempt.
        """
        return draft.id == "rank_dead" and any(
            entry.source == "crash" and entry.absent_s is None and entry.draft.job == draft.job
            for entry in self._open.values()
            if entry.draft.severity == "error"
        )

    def reported_by(self, source: str) -> list[FindingDraft]:
        """Findings that this source reports now."""
        return [entry.draft for entry in self._open.values() if entry.source == source and entry.absent_s is None]

    def failed(self, name: str, error: Exception) -> None:
        """Publish, once, that an analysis with its own schedule failed."""
        self._publish_failure(name, error)

    def succeeded(self, name: str) -> None:
        """Note that an analysis ran without an error."""
        self._failing.discard(name)

    # -- records and analyses ------------------------------------------------------------------------------------------

    def _append(self, records: Sequence[Published]) -> None:
        self._pending += records
        self._received += len(records)
        if len(self._pending) < MOST_WAITING or self._throttle.is_busy:
            return
        if self._evaluating.acquire(blocking=False):  # else a cancelled evaluation still folds
            pending, self._pending = self._pending, []
            try:
                self._facts.add(pending)
            finally:
                self._evaluating.release()

    def _fold(self, records: Sequence[Published]) -> None:
        with self._evaluating:
            self._facts.add(records)

    def _run_analyses(self, records: Sequence[Published]) -> dict[str, list[FindingDraft] | Exception]:
        """Drafts of each analysis, or its error: a failing analysis stops no other."""
        results: dict[str, list[FindingDraft] | Exception] = {}
        with self._evaluating:
            self._facts.add(records)
            for name, analysis in ANALYSES.items():
                try:
                    results[name] = list(analysis(self._facts, self._limits))
                except Exception as error:  # noqa: BLE001 - published as an error
                    results[name] = error
        return results

    @staticmethod
    async def _run_source(source: FindingSource, is_last: bool) -> list[FindingDraft] | Exception:
        try:
            return list(await source.evaluate(is_last=is_last))
        except Exception as error:  # noqa: BLE001 - a failing source stops no other; published as an error
            return error

    def _publish_failure(self, name: str, error: Exception) -> None:
        self._failing.add(name)
        if name not in self._failed:
            self._failed.add(name)
            text = f"the analysis {name} failed: {internal_error(error, f'the analysis {name}')}"
            self._hub.publish_own(Log(source="console", severity="error", text=text))

    # -- one finding ---------------------------------------------------------------------------------------------------

    def _present(self, source: str, key: _Key, draft: FindingDraft, now_s: float, now_ns: int) -> Finding | Log | None:
        entry = self._open.get(key)
        if entry is None:
            if len(self._open) >= MOST_OPEN:
                return self._full()
            record = _finding(draft, now_ns)
            self._open[key] = _Open(draft, record, now_s, source)
            return record
        entry.draft, entry.absent_s = draft, None
        published = entry.published
        is_regraded = (published.severity, published.confidence) != (draft.severity, draft.confidence)
        if not is_regraded and (published.text == draft.text or now_s - entry.published_s < AGAIN_S):
            return None
        entry.published, entry.published_s = _finding(draft, published.first_seen), now_s
        return entry.published

    def _absent(self, key: _Key, now_s: float, now_ns: int, *, at_once: bool = False) -> Finding | None:
        """Clear a finding that has been absent for `clear_s`; one that flaps stays one finding."""
        entry = self._open[key]
        if entry.absent_s is None:
            entry.absent_s, entry.absent_ns = now_s, now_ns
        if now_s - entry.absent_s < self._limits.clear_s and not at_once:
            return None
        del self._open[key]
        return msgspec.structs.replace(entry.published, cleared_at=entry.absent_ns)

    def _clear_absent(self) -> None:
        """Clear findings whose source withdrew them and does not report regularly: a verdict comes once a capture."""
        now_s, now_ns = self._clock(), time.time_ns()
        absent = [key for key, entry in self._open.items() if entry.absent_s is not None]
        cleared = [record for key in absent if (record := self._absent(key, now_s, now_ns)) is not None]
        if cleared:
            self._hub.publish_own(*cleared)

    def _full(self) -> Log | None:
        if self._is_full:
            return None
        self._is_full = True
        text = f"more than {MOST_OPEN} findings are open; further ones are dropped"
        return Log(source="console", severity="warning", text=text)


def _finding(draft: FindingDraft, first_seen: int) -> Finding:
    return Finding(
        id=draft.id, severity=draft.severity, confidence=draft.confidence, culprits=draft.culprits,
        victims=draft.victims, text=draft.text, evidence=draft.evidence, job=draft.job, first_seen=first_seen,
    )  # fmt: skip
