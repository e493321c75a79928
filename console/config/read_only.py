"""Read-only mode: the only place that decides whether this console may change a node or a job.

Records, captures and clock probes change nothing and are always allowed, also the bounded native read of a process that
does not move. Everything that does change something is in `Change`.
"""

from __future__ import annotations

from enum import Enum

from .model import ConfigError
from .sections import ConsoleConfig


class Change(Enum):
    """Every change that gconsole can make on a node: a description, and the explicit command for it.

    Without a command only `read_only = false` permits it.
    """

    START_JOB = ("starting a job", "gconsole run start")
    STOP_JOB = ("stopping a job", "gconsole run stop")
    FLIGHT_PIPE = ("making ranks write their Flight Recorder dump", None)

    def __init__(self, words: str, command: str | None) -> None:
        self.words, self.command = words, command


class ReadOnly(ConfigError):
    """Refused by `[console] read_only`; as text one line that names the key and the explicit command."""

    name = "read_only"

    def __init__(self, change: Change) -> None:
        self.change = change
        explicit = f"{change.command}, which asks first, or " if change.command else ""
        self.try_ = f"{explicit}console.read_only = false"
        super().__init__("", "console.read_only", f"{change.words} changes what runs on the nodes, which it forbids; "
                                                  f"use {self.try_}")  # fmt: skip


def refusal(console: ConsoleConfig, change: Change, *, explicit: bool = False) -> ReadOnly | None:
    """Why this change is refused; None where it is allowed.

    `explicit`: a person asked for jobs to be started and stopped by a command that says so (`gconsole run` after its
    confirmation or with `--yes`, `api --allow-run`). It never permits a change that has no command of its own.
    """
    if not console.read_only or (explicit and change.command is not None):
        return None
    return ReadOnly(change)
