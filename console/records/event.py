"""Events: log lines, marks, findings, gaps."""

from __future__ import annotations

from typing import Literal

from .base import Count, Int, Record

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible", "none"]


class ConsoleRecord(Record, tag="console", kw_only=True):
    """The console that produced these records, at its start and at its end."""

    cluster: str
    version: str  # of gconsole
    state: Literal["started", "ended"] = "started"
    hang_models: tuple[str, ...] = ()  # [hang] models in force, for replay
    min_frozen_s: float = 5.0  # [hang] min_frozen_s in force, for replay


class Log(Record, tag="log", kw_only=True):
    """A log message of the agent, the kernel, a job or the console.

    Job messages are one or more whole output lines of a rank, sent only while the output is followed.
    """

    source: str  # "agent", "console", "kernel", "job"
    severity: Severity = "info"
    text: str
    try_: str = ""
    job: str | None = None
    rank: Count | None = None  # None: of the launcher, or of ranks that share one output


class Mark(Record, tag="mark", kw_only=True):
    """A user's note on a point in time."""

    text: str


class Gap(Record, tag="gap", kw_only=True):
    """A gap in the data: dropped records, or ticks that a sampler missed."""

    source: str  # "buffer", "sampler:host", "link", …
    reason: str
    count: Count | None = None  # records or ticks; None if unknown
    first_seq: Count | None = None  # of the dropped records, if known
    last_seq: Count | None = None


class Finding(Record, tag="finding", kw_only=True):
    """A verdict about nodes or ranks. `id` is stable; culprits cause it, victims suffer; `evidence` names records."""

    id: str
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    text: str
    evidence: tuple[str, ...] = ()
    first_seen: Int
    cleared_at: Int | None = None
