"""Things that happen once: log lines, marks, findings, counted holes."""

from __future__ import annotations

from typing import Literal

from .base import Count, Int, Record

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible", "none"]


class ConsoleRecord(Record, tag="console", kw_only=True):
    """Which console this was, at its start and at its end: what makes a file of records a story of its own."""

    cluster: str
    version: str  # of gconsole
    state: Literal["started", "ended"] = "started"
    hang_models: tuple[str, ...] = ()  # [hang] models, by which stacks were read: so a replay reads them alike
    min_frozen_s: float = 5.0  # [hang] min_frozen_s, likewise


class Log(Record, tag="log", kw_only=True):
    """A line worth keeping, of the agent, the kernel, a job or the console itself.

    Of a job, and only while somebody follows its output, it is one or more whole lines of one of its ranks.
    """

    source: str  # "agent", "console", "kernel", "job"
    severity: Severity = "info"
    text: str
    try_: str = ""
    job: str | None = None
    rank: Count | None = None  # None: of the launcher itself, or of ranks that share one output


class Mark(Record, tag="mark", kw_only=True):
    """A person's note at an instant."""

    text: str


class Gap(Record, tag="gap", kw_only=True):
    """A counted hole in the data: records that were dropped, or ticks that a sampler missed."""

    source: str  # "buffer", "sampler:host", "link", …
    reason: str
    count: Count | None = None  # records or ticks; None where nobody could count them
    first_seq: Count | None = None  # of the dropped records, where they had numbers
    last_seq: Count | None = None


class Finding(Record, tag="finding", kw_only=True):
    """A verdict about nodes or ranks. `id` is stable; culprits are blamed, victims suffer; `evidence` names records."""

    id: str
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    text: str
    evidence: tuple[str, ...] = ()
    first_seen: Int
    cleared_at: Int | None = None
