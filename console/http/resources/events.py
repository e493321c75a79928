"""`/events`: what happens, as it happens, as server-sent events.

There is no queue a client: each stream asks the store what is new since the version it has told, as a view does. A slow
client therefore costs nothing, and one that was away for too long is told that something is missing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...records import KINDS, Record
from ..app import query_of
from ..limits import MOST_STREAMS
from ..operation import Told
from ..problems import refused
from ..served import Served

#: How often the store is asked for what is new.
EVERY_S: Final = 0.25
#: A line without meaning so often, so that whatever stands in between keeps the stream open.
ALIVE_S: Final = 10.0
_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")


class EventsAsked(msgspec.Struct, forbid_unknown_fields=True):
    """Which events."""

    kinds: Annotated[
        str, msgspec.Meta(max_length=512, description="only these kinds of records: finding,node_state")
    ] = ""


async def get_events(served: Served, request: Request) -> Response:
    """A stream of events, from now on, or from the event on whose id the client names."""
    if served.streams >= MOST_STREAMS:
        raise refused(503, "busy", f"{MOST_STREAMS} streams are open", "close one", Retry_After="10")
    try:
        asked = query_of(request, EventsAsked)
    except msgspec.ValidationError as error:
        raise refused(400, "malformed", f"the query is not what GET /events asks for: {error}") from error
    kinds = frozenset(word.strip() for word in asked.kinds.split(",") if word.strip())
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise refused(400, "no_such_kind", f"{', '.join(unknown)}: no such kind of records",
                      "gconsole schema lists them")  # fmt: skip
    since = _since(served, request.headers.get("last-event-id", ""))
    return StreamingResponse(_stream(served, kinds, since), media_type="text/event-stream")


def _since(served: Served, said: str) -> int:
    match = _ID.fullmatch(said)
    if match is None or match[1] != served.hub.console_id:  # another console's numbers mean nothing here
        return served.store.version
    return min(int(match[2]), served.store.version)


async def _stream(served: Served, kinds: frozenset[str], since: int) -> AsyncIterator[bytes]:
    served.streams += 1
    try:
        yield b": gconsole events\n\n"
        if _is_missing(served, since):
            yield _event("missed", _name(served, since), b'{"text":"events before this are no longer kept"}')
        told_s = time.monotonic()
        while not served.closing.is_set():
            store, version = served.store, served.store.version
            new = [one for one in store.events_since(since) if not kinds or _kind(one) in kinds]
            since = version
            if new:
                name = _name(served, since)
                yield b"".join(_event(_kind(one), name, msgspec.json.encode(one)) for one in new)
            elif time.monotonic() - told_s > ALIVE_S:
                yield b": alive\n\n"
            else:
                await _next_look(served)
                continue
            told_s = time.monotonic()
    finally:
        served.streams -= 1


async def _next_look(served: Served) -> None:
    try:
        async with asyncio.timeout(EVERY_S):
            await served.closing.wait()
    except TimeoutError:
        pass  # that is the rule: nothing ends, and it is time to look again


def _is_missing(served: Served, since: int) -> bool:
    events = served.store.events
    return len(events) == events.maxlen and events[0][0] > since + 1


def _kind(record: Record) -> str:
    return str(record.__struct_config__.tag)


def _name(served: Served, version: int) -> str:
    return f"{served.hub.console_id}-{version}"


def _event(kind: str, name: str, data: bytes) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), name.encode(), data)


OPERATIONS: Final = (
    Told("/events", "What happens, as it happens: findings, nodes that come and go, jobs, errors of GPUs.", get_events,
         ("text/event-stream",), EventsAsked, headers=(("Last-Event-ID", "go on behind that event"),)),
)  # fmt: skip
