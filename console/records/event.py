"""Events: log lines, marks, findings, gaps."""

from __future__ import annotations

from typing import Literal

from .base import Count, Float, Int, Record

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible", "none"]


class ConsoleRecord(Record, tag="console", kw_only=True):
    """The console that produced these records, at its start and at its end."""

    cluster: str  # name of the cluster
    version: str  # of gconsole
    state: Literal["started", "ended"] = "started"  # started or ended
    hang_models: tuple[str, ...] = ()  # [hang] models in force, for replay
    min_frozen_s: Float = 5.0  # [hang] min_frozen_s in force, for replay


class Log(Record, tag="log", kw_only=True):
    """A log message of the agent, the kernel, a job or the console.

    Job messages are one or more whole output lines of a rank, sent only while the output is followed.
    """

    source: str  # "agent", "console", "kernel", "job", "api", "kmsg" (in the kernel log, not by the kernel), "boot", …
    severity: Severity = "info"  # error, warning or info
    text: str  # the message
    try_: str = ""  # the remedy, or ""
    job: str | None = None  # id of the job whose output it is
    rank: Count | None = None  # rank that wrote the line; None for the launcher, or for ranks that share one output
    fault: str | None = None  # class of a kernel message: oom_kill, segfault, nfs, disk, xid, …
    subject: str | None = None  # device, server or command that a kernel message names; token of an API request
    pid: Count | None = None  # the process that a kernel message names, in the PID namespace of the machine
    at: Int | None = None  # time of a kernel message, about: CLOCK_REALTIME of the node, ns
    is_earlier: bool = False  # of the time before the agent started
    is_over: bool = False  # the message says that the fault has ended
    stream: Literal["stdout", "stderr"] | None = None  # of output of a job; None: unknown, or both in one file
    written_lines: tuple[Count, ...] = ()  # output of a job: numbers of consecutive lines written by one instant
    written_at: tuple[Int, ...] = ()  # these instants, CLOCK_REALTIME of the node, ns; empty if they are unknown


class Mark(Record, tag="mark", kw_only=True):
    """A user's note on a point in time."""

    text: str  # the note


class Gap(Record, tag="gap", kw_only=True):
    """A gap in the data: dropped records, or ticks that a sampler missed."""

    source: str  # "buffer", "sampler:host", "link", …
    reason: str  # why the data are missing
    count: Count | None = None  # records or ticks; None if unknown
    first_seq: Count | None = None  # number of the first dropped record, if known
    last_seq: Count | None = None  # last of the dropped records, if known


class Finding(Record, tag="finding", kw_only=True):
    """A verdict about nodes or ranks. `id` is stable; culprits cause it, victims suffer; `evidence` names records."""

    id: str  # stable name of the kind of finding: gpu_xid, rank_missing, …
    severity: Severity  # error, warning or info
    confidence: Confidence  # certain, likely, possible or none
    culprits: tuple[str, ...] = ()  # nodes, GPUs, ranks or edges that cause it
    victims: tuple[str, ...] = ()  # nodes, GPUs or ranks that suffer from it
    text: str  # the finding as one sentence
    evidence: tuple[str, ...] = ()  # records and fields that it rests on
    job: str | None = None  # the job that it is about, if it is about one
    first_seen: Int  # CLOCK_REALTIME of the console when it was first true, ns
    cleared_at: Int | None = None  # CLOCK_REALTIME of the console when it ceased to be true, ns; None while it is open
