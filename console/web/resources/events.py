"""`/events`: what happens, as it happens, as server-sent events.

There is no queue a client: each stream asks the store what is new since the version it has told, as a view does. A slow
client therefore costs nothing, and one that was away for too long is told that something is missing.
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
from ..app import query_of
from ..limits import MAX_STREAMS
from ..operation import StreamOperation, WebContext
from ..problems import http_problem

#: How often the store is asked for what is new.
EVERY_S: Final = 0.25
#: A line without meaning so often, so that whatever stands in between keeps the stream open.
ALIVE_S: Final = 10.0
_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})\.([0-9]{1,9})")
#: A number behind the last of every batch.
_END: Final = 10**9


class EventPosition(NamedTuple):
    """Where an event stands: the store's version that its batch made, and its number in that batch, from 1.

    A batch has one version, and a client may go away in its middle: so each event has a name of its own.
    """

    version: int
    number: int


class EventsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which events."""

    kinds: Annotated[
        str, msgspec.Meta(max_length=512, description="only these kinds of records: finding,node_state")
    ] = ""


async def get_events(context: WebContext, request: Request) -> Response:
    """A stream of events, from now on, or from the event on whose id the client names."""
    if context.streams >= MAX_STREAMS:
        raise http_problem(503, "busy", f"{MAX_STREAMS} streams are open", "close one", Retry_After="10")
    try:
        query = query_of(request, EventsRequest)
    except msgspec.ValidationError as error:
        raise http_problem(400, "malformed", f"the query is not what GET /events asks for: {error}") from error
    kinds = frozenset(word.strip() for word in query.kinds.split(",") if word.strip())
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise http_problem(400, "no_such_kind", f"{', '.join(unknown)}: no such kind of records",
                      "gconsole schema lists them")  # fmt: skip
    since = _since(context, request.headers.get("last-event-id", ""))
    return StreamingResponse(_stream(context, kinds, since), media_type="text/event-stream")


def _since(context: WebContext, said: str) -> EventPosition:
    match, now = _ID.fullmatch(said), EventPosition(context.store.version, _END)
    if match is None or match[1] != context.hub.console_id:  # another console's numbers mean nothing here
        return now
    return min(EventPosition(int(match[2]), int(match[3])), now)


async def _stream(context: WebContext, kinds: frozenset[str], since: EventPosition) -> AsyncIterator[bytes]:
    context.streams += 1
    try:
        yield b": gconsole events\n\n"
        if _is_missing(context, since):
            yield _event("missed", _name(context, since), b'{"text":"events before this are no longer kept"}')
        told_s = time.monotonic()
        while not context.closing.is_set():
            new = _after(context.store, since)
            since = new[-1][0] if new else since
            told = [(place, record) for place, record in new if not kinds or kind_of(record) in kinds]
            if told:
                yield b"".join(_event(kind_of(one), _name(context, at), msgspec.json.encode(one)) for at, one in told)
            elif time.monotonic() - told_s > ALIVE_S:
                yield b": alive\n\n"
            else:
                await _next_look(context)
                continue
            told_s = time.monotonic()
    finally:
        context.streams -= 1


def _after(store: Store, since: EventPosition) -> list[tuple[EventPosition, Record]]:
    """The events behind that place, oldest first."""
    batches = list(itertools.takewhile(lambda kept: kept[0] >= since.version, reversed(store.events)))[::-1]
    numbers: Counter[int] = Counter()
    found = []
    for version, record in batches:
        numbers[version] += 1
        found.append((EventPosition(version, numbers[version]), record))
    return [(place, record) for place, record in found if place > since]


async def _next_look(context: WebContext) -> None:
    try:
        async with asyncio.timeout(EVERY_S):
            await context.closing.wait()
    except TimeoutError:
        pass  # that is the rule: nothing ends, and it is time to look again


def _is_missing(context: WebContext, since: EventPosition) -> bool:
    events = context.store.events
    return len(events) == events.maxlen and events[0][0] > since.version + 1


def _name(context: WebContext, at: EventPosition) -> str:
    return f"{context.hub.console_id}-{at.version}.{at.number}"


def _event(kind: str, name: str, data: bytes) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), name.encode(), data)


OPERATIONS: Final = (
    StreamOperation(
        "/events",
        "What happens, as it happens: findings, nodes that come and go, jobs, errors of GPUs.",
        get_events,
        ("text/event-stream",),
        EventsRequest,
        headers=(("Last-Event-ID", "go on behind that event"),),
    ),
)
