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
from ..context import Served
from ..limits import MOST_STREAMS
from ..operation import Told
from ..problems import refused

#: How often the store is asked for what is new.
EVERY_S: Final = 0.25
#: A line without meaning so often, so that whatever stands in between keeps the stream open.
ALIVE_S: Final = 10.0
_ID: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})\.([0-9]{1,9})")
#: A number behind the last of every batch.
_END: Final = 10**9


class Place(NamedTuple):
    """Where an event stands: the store's version that its batch made, and its number in that batch, from 1.

    A batch has one version, and a client may go away in its middle: so each event has a name of its own.
    """

    version: int
    number: int


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


def _since(served: Served, said: str) -> Place:
    match, now = _ID.fullmatch(said), Place(served.store.version, _END)
    if match is None or match[1] != served.hub.console_id:  # another console's numbers mean nothing here
        return now
    return min(Place(int(match[2]), int(match[3])), now)


async def _stream(served: Served, kinds: frozenset[str], since: Place) -> AsyncIterator[bytes]:
    served.streams += 1
    try:
        yield b": gconsole events\n\n"
        if _is_missing(served, since):
            yield _event("missed", _name(served, since), b'{"text":"events before this are no longer kept"}')
        told_s = time.monotonic()
        while not served.closing.is_set():
            new = _after(served.store, since)
            since = new[-1][0] if new else since
            told = [(place, record) for place, record in new if not kinds or kind_of(record) in kinds]
            if told:
                yield b"".join(_event(kind_of(one), _name(served, at), msgspec.json.encode(one)) for at, one in told)
            elif time.monotonic() - told_s > ALIVE_S:
                yield b": alive\n\n"
            else:
                await _next_look(served)
                continue
            told_s = time.monotonic()
    finally:
        served.streams -= 1


def _after(store: Store, since: Place) -> list[tuple[Place, Record]]:
    """The events behind that place, oldest first."""
    batches = list(itertools.takewhile(lambda kept: kept[0] >= since.version, reversed(store.events)))[::-1]
    numbers: Counter[int] = Counter()
    found = []
    for version, record in batches:
        numbers[version] += 1
        found.append((Place(version, numbers[version]), record))
    return [(place, record) for place, record in found if place > since]


async def _next_look(served: Served) -> None:
    try:
        async with asyncio.timeout(EVERY_S):
            await served.closing.wait()
    except TimeoutError:
        pass  # that is the rule: nothing ends, and it is time to look again


def _is_missing(served: Served, since: Place) -> bool:
    events = served.store.events
    return len(events) == events.maxlen and events[0][0] > since.version + 1


def _name(served: Served, at: Place) -> str:
    return f"{served.hub.console_id}-{at.version}.{at.number}"


def _event(kind: str, name: str, data: bytes) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), name.encode(), data)


OPERATIONS: Final = (
    Told("/events", "What happens, as it happens: findings, nodes that come and go, jobs, errors of GPUs.", get_events,
         ("text/event-stream",), EventsAsked, headers=(("Last-Event-ID", "go on behind that event"),)),
)  # fmt: skip
