"""`/events`: server-sent events.

There is no queue per client: each stream reads the store's events since the version that it sent last. A slow client
therefore costs no memory, and one that was disconnected for too long receives a `missed` event.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...core.store import Store
from ...records import KINDS, Record
from ...records.kinds import kind_of
from ...text.documents import encode
from ...text.format import comma_words
from ..app import query_of
from ..middleware import MAX_STREAMS
from ..operation import WebContext, stream
from ..problems import http_problem

#: Seconds between two reads of the store.
EVERY_S: Final = 0.25
#: Seconds without events until a comment line is sent, so that proxies keep the connection open.
ALIVE_S: Final = 10.0
_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})\.([0-9]{1,9})")
#: Greater than the number of any event of a batch.
_END: Final = 10**9


class EventPosition(NamedTuple):
    """Position of an event: the store's version after its batch, and its number in the batch, from 1.

    A client may disconnect in the middle of a batch, so the version alone is not enough.
    """

    version: int
    number: int


class EventsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which events."""

    kinds: Annotated[
        str, msgspec.Meta(max_length=512, description="only these kinds of records: finding,node_state")
    ] = ""


@stream(
    "/events", "text/event-stream", parameters=EventsRequest, headers=(("Last-Event-ID", "resume after this event"),)
)
async def get_events(context: WebContext, request: Request) -> Response:
    """Stream of events: findings, node states, jobs, GPU errors."""
    if context.streams >= MAX_STREAMS:
        raise http_problem(
            503, "busy", f"limit of {MAX_STREAMS} event streams reached", "close a stream", Retry_After="10"
        )
    try:
        query = query_of(request, EventsRequest)
    except msgspec.ValidationError as error:
        raise http_problem(400, "malformed", f"invalid query of GET /events: {error}") from error
    kinds = frozenset(comma_words(query.kinds))
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise http_problem(400, "no_such_kind", f"unknown kind of record: {', '.join(unknown)}",
                      "gconsole schema lists them")  # fmt: skip
    since = _since(context, request.headers.get("last-event-id", ""))
    return StreamingResponse(_stream(context, kinds, since), media_type="text/event-stream")


def _since(context: WebContext, event_id: str) -> EventPosition:
    match, now = _ID.fullmatch(event_id), EventPosition(context.store.version, _END)
    if match is None or match[1] != context.hub.console_id:  # an id of another console
        return now
    return min(EventPosition(int(match[2]), int(match[3])), now)


async def _stream(context: WebContext, kinds: frozenset[str], since: EventPosition) -> AsyncIterator[bytes]:
    context.streams += 1
    try:
        yield b": gconsole events\n\n"
        if _is_missing(context, since):
            yield _event("missed", _name(context, since), b'{"text":"events before this are no longer kept"}')
        sent_s = time.monotonic()
        while not context.closing.is_set():
            new = _after(context.store, since)
            since = new[-1][0] if new else since
            selected = [(place, record) for place, record in new if not kinds or kind_of(record) in kinds]
            if selected:
                yield b"".join(
                    _event(kind_of(record), _name(context, position), encode(record)) for position, record in selected
                )
            elif time.monotonic() - sent_s > ALIVE_S:
                yield b": alive\n\n"
            else:
                await _wait(context)
                continue
            sent_s = time.monotonic()
    finally:
        context.streams -= 1


def _after(store: Store, since: EventPosition) -> list[tuple[EventPosition, Record]]:
    """Events after a position, oldest first."""
    batches = list(itertools.takewhile(lambda kept: kept[0] >= since.version, reversed(store.events)))[::-1]
    numbers: Counter[int] = Counter()
    events = []
    for version, record in batches:
        numbers[version] += 1
        events.append((EventPosition(version, numbers[version]), record))
    return [(place, record) for place, record in events if place > since]


async def _wait(context: WebContext) -> None:
    try:
        async with asyncio.timeout(EVERY_S):
            await context.closing.wait()
    except TimeoutError:
        pass  # the server is not closing


def _is_missing(context: WebContext, since: EventPosition) -> bool:
    events = context.store.events
    return len(events) == events.maxlen and events[0][0] > since.version + 1


def _name(context: WebContext, position: EventPosition) -> str:
    return f"{context.hub.console_id}-{position.version}.{position.number}"


def _event(kind: str, name: str, data: bytes) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), name.encode(), data)
