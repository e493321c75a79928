"""Findings over time: what the analyses find now becomes `finding` records, first seen, still true, or cleared.

One call, `look`, from the frame clock of the screen and from the loop of batch alike; at most once a second, and in a
thread where the fleet is large. On a replay nobody calls it: there the findings are those that were recorded.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ..analysis import health
from ..analysis.finding import FindingDraft
from ..analysis.health.state import HealthState
from ..core.bus import Hub, Published
from ..core.derived import Throttle
from ..records import Finding, Log

if TYPE_CHECKING:
    from ..config.sections import HealthConfig

Analysis = Callable[[HealthState, "HealthConfig"], Iterable[FindingDraft]]


class FindingSource(Protocol):
    """Somebody who folds records in a way of their own, and is asked at each look, after the analyses."""

    @property
    def name(self) -> str: ...

    async def found(self, *, is_last: bool) -> Sequence[FindingDraft]:
        """All that is wrong now. `is_last`: nobody will ask again, so what is under way is to be closed."""
        ...


#: Every analysis that is asked at each look, by name; one line each. One that has its own moment (a capture) is told
#: with `Findings.put` instead.
ANALYSES: Final[dict[str, Analysis]] = {
    "health": health.health_findings,
}
EVERY_S: Final = 1.0
#: A look that took long is followed by a pause of so many times that: 4,096 GPUs take 90 ms.
PAUSE: Final = 20
#: A finding whose words changed is said again at most this often; a change of severity or confidence at once.
AGAIN_S: Final = 60.0
#: So many are kept open; the rest is counted, with a word.
MOST_OPEN: Final = 8_192
#: From this many records a look on, it is made in a thread.
MANY: Final = 1_000
#: So many wait for a look; more are folded as they come: after a laptop slept, all that was said meanwhile comes at
#: once, and a process keeps the most memory that it ever took.
MOST_WAITING: Final = 256

_Key = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class _Open:
    """A finding that is true, as it was found and as it was last said."""

    found: FindingDraft
    said: Finding
    said_at_s: float
    source: str
    absent_s: float | None = None  # since when it is no longer found, monotonic
    absent_ns: int = 0  # the same on the console's clock


class FindingTracker:
    """Listens on the hub, and says through it what is found. `clock` is monotonic, in seconds."""

    def __init__(
        self, hub: Hub, limits: HealthConfig, clock: Callable[[], float] = time.monotonic,
        sources: Sequence[FindingSource] = (),
    ) -> None:  # fmt: skip
        self._hub, self._limits, self._clock, self._sources = hub, limits, clock, tuple(sources)
        self._facts = HealthState(limits.window_s, limits.busy_pct)
        self._pending: list[Published] = []
        self._came = 0  # records since the last look
        self._open: dict[_Key, _Open] = {}
        self._throttle = Throttle(EVERY_S, PAUSE, clock)
        self._judging = threading.Lock()  # a look that was cancelled may still be at it
        self._failed: set[str] = set()  # analyses whose failure was said
        self._is_full = False
        hub.subscribe(self._take)

    @property
    def is_due(self) -> bool:
        """Whether the last look is a second ago, and over."""
        return self._throttle.is_due

    async def look(self, *, is_last: bool = False) -> None:
        """Ask every analysis about all that has come so far, and say what is new, different or over."""
        if self._throttle.is_busy:
            return
        records, self._pending = self._pending, []
        came, self._came = self._came, 0
        with self._throttle.running():
            if came < MANY:
                results = self._judge(records)
            else:
                results = await asyncio.to_thread(self._judge, records)
            for source in self._sources:
                results[source.name] = await self._asked(source, is_last)
        for name, result in results.items():
            if isinstance(result, str):
                self._say_failure(name, result)
            else:
                self.put(name, result)
        self._clear_absent()

    async def take_in(self) -> None:
        """Fold what has come so far, and ask nobody: where no look is due for long it would pile up."""
        if self._throttle.is_busy:
            return
        records, self._pending = self._pending, []
        with self._throttle.running(reschedule=False):
            if len(records) < MANY:
                self._fold(records)
            else:
                await asyncio.to_thread(self._fold, records)

    def put(self, source: str, found: Iterable[FindingDraft]) -> None:
        """What is true now according to one source; what that source no longer says is cleared after a while."""
        now_s, now_ns = self._clock(), time.time_ns()
        current = {(one.id, one.culprits): one for one in found}
        news = [self._seen(source, key, one, now_s, now_ns) for key, one in current.items()]
        gone = [key for key, one in self._open.items() if one.source == source and key not in current]
        news += [self._absent(key, now_s, now_ns) for key in gone]
        records = [record for record in news if record is not None]
        if records:
            self._hub.say(*records)

    def told_by(self, source: str) -> list[FindingDraft]:
        """What that source says is true now."""
        return [one.found for one in self._open.values() if one.source == source and one.absent_s is None]

    def failed(self, name: str, error: Exception) -> None:
        """An analysis that has its own moment failed: that is said, once."""
        self._say_failure(name, "".join(traceback.format_exception(error, limit=-3)))

    # -- listening and asking ------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[Published]) -> None:
        self._pending += records
        self._came += len(records)
        if len(self._pending) < MOST_WAITING or self._throttle.is_busy:
            return
        if self._judging.acquire(blocking=False):  # else one that was cancelled is still at what came before
            pending, self._pending = self._pending, []
            try:
                self._facts.add(pending)
            finally:
                self._judging.release()

    def _fold(self, records: Sequence[Published]) -> None:
        with self._judging:
            self._facts.add(records)

    def _judge(self, records: Sequence[Published]) -> dict[str, list[FindingDraft] | str]:
        """Each analysis's findings, or the story of its failure: one that fails stops no other."""
        results: dict[str, list[FindingDraft] | str] = {}
        with self._judging:
            self._facts.add(records)
            for name, analysis in ANALYSES.items():
                try:
                    results[name] = list(analysis(self._facts, self._limits))
                except Exception:  # noqa: BLE001 - as the docstring says; it is told as an error
                    results[name] = traceback.format_exc(limit=-3)
        return results

    @staticmethod
    async def _asked(source: FindingSource, is_last: bool) -> list[FindingDraft] | str:
        try:
            return list(await source.found(is_last=is_last))
        except Exception:  # noqa: BLE001 - one that fails stops no other; it is told as an error
            return traceback.format_exc(limit=-3)

    def _say_failure(self, name: str, story: str) -> None:
        if name not in self._failed:
            self._failed.add(name)
            self._hub.say(Log(source="console", severity="error", text=f"the analysis {name} failed: {story[-1500:]}"))

    # -- one finding ---------------------------------------------------------------------------------------------------

    def _seen(self, source: str, key: _Key, found: FindingDraft, now_s: float, now_ns: int) -> Finding | Log | None:
        known = self._open.get(key)
        if known is None:
            if len(self._open) >= MOST_OPEN:
                return self._full()
            record = _finding(found, now_ns)
            self._open[key] = _Open(found, record, now_s, source)
            return record
        known.found, known.absent_s = found, None
        said = known.said
        graver = (said.severity, said.confidence) != (found.severity, found.confidence)
        if not graver and (said.text == found.text or now_s - known.said_at_s < AGAIN_S):
            return None
        known.said, known.said_at_s = _finding(found, said.first_seen), now_s
        return known.said

    def _absent(self, key: _Key, now_s: float, now_ns: int) -> Finding | None:
        """Clear a finding that has been absent for `clear_s`; one that comes and goes stays one finding."""
        known = self._open[key]
        if known.absent_s is None:
            known.absent_s, known.absent_ns = now_s, now_ns
        if now_s - known.absent_s < self._limits.clear_s:
            return None
        del self._open[key]
        said = known.said
        return Finding(
            id=said.id, severity=said.severity, confidence=said.confidence, culprits=said.culprits,
            victims=said.victims, text=said.text, evidence=said.evidence, first_seen=said.first_seen,
            cleared_at=known.absent_ns,
        )  # fmt: skip

    def _clear_absent(self) -> None:
        """Clear what its source took back and has not spoken of since: a verdict is told once a capture."""
        now_s, now_ns = self._clock(), time.time_ns()
        absent = [key for key, one in self._open.items() if one.absent_s is not None]
        cleared = [record for key in absent if (record := self._absent(key, now_s, now_ns)) is not None]
        if cleared:
            self._hub.say(*cleared)

    def _full(self) -> Log | None:
        if self._is_full:
            return None
        self._is_full = True
        text = f"more than {MOST_OPEN} findings are open; those beyond are not kept"
        return Log(source="console", severity="warning", text=text)


def _finding(found: FindingDraft, first_seen: int) -> Finding:
    return Finding(
        id=found.id, severity=found.severity, confidence=found.confidence, culprits=found.culprits,
        victims=found.victims, text=found.text, evidence=found.evidence, first_seen=first_seen,
    )  # fmt: skip
