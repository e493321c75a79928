"""What a sentinel reports about itself: one line per event on stderr, or NDJSON on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from ...text.format import clock_time, iso
from ...text.secrets import without_secrets
from .payload import clean

EventKind = Literal[
    "started", "seen", "blind", "finding", "cleared", "alert", "action", "action_failed", "dropped", "reloaded",
    "rejected", "heartbeat", "heartbeat_failed", "problem", "ended",
]  # fmt: skip
#: Kinds that are warnings to the journal (priority 4); the others are notices.
_WARNINGS: Final = frozenset(
    {"blind", "finding", "alert", "action_failed", "dropped", "rejected", "heartbeat_failed", "problem"}
)


class WatchEvent(msgspec.Struct, frozen=True):
    """One event; `fields` are further values for NDJSON."""

    kind: EventKind
    text: str
    fields: dict[str, Any] = {}


Emit = Callable[[WatchEvent], None]


def event_line(event: WatchEvent, *, with_time: bool) -> str:
    """The event as one line; the journal adds the time itself."""
    head = f"{clock_time(time.time_ns())} " if with_time else ""
    return f"{head}{event.kind.replace('_', ' ')}: {clean(event.text, 1_000)}"


def journal_line(event: WatchEvent) -> str:
    """The event as one line for the journal, with its priority (sd-daemon(3))."""
    return f"<{4 if event.kind in _WARNINGS else 5}>{event_line(event, with_time=False)}"


def event_json(event: WatchEvent) -> bytes:
    """The event as one line of JSON: `time`, `event`, `text` and its fields."""
    document = {"time": iso(time.time_ns()), "event": event.kind, "text": without_secrets(event.text), **event.fields}
    return msgspec.json.encode(document) + b"\n"
