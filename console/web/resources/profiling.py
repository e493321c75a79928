"""`/profiling`: recordings, under the paths that gswarm-profiler's documentation gives them; several at a time."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import msgspec

from ...core.control import ActiveRecording, Recordings
from ...session.format.layout import NAME_PATTERN, Session
from ...session.manage.catalog import SessionEntry, list_sessions
from ...text.format import iso
from ..operation import NoParameters, Operation, OperationRequest, WebContext
from ..problems import http_problem

#: So many recordings run at a time; each has a thread, and everything is written once for each.
MAX_RUNNING: Final = 16

SessionName = Annotated[str, msgspec.Meta(pattern=f"^{NAME_PATTERN}$")]


class ProfilingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which session. Without a name: start makes one up, stop ends all."""

    name: SessionName | None = None


class Running(msgspec.Struct):
    """A session that is being recorded."""

    name: str
    began: str | None
    records: int  # that are safely on the disk
    bytes: int
    trouble: str  # why nothing can be written at the moment; empty while all is well


class Started(msgspec.Struct):
    """A recording that runs now."""

    success: bool
    message: str
    name: str
    resumed: bool  # it goes on where a crashed console left it


class Stopped(msgspec.Struct):
    """What came of the recordings that were ended."""

    success: bool
    message: str
    stopped: list[Running]


class StoredSession(msgspec.Struct):
    """One session on this console's disk."""

    name: str
    state: str  # recording, closed, crashed, torn, unreadable
    created: str | None
    closed: str | None
    records: int | None  # null where it is unreadable
    bytes: int
    problem: str


class Sessions(msgspec.Struct):
    """Sessions, the newest last; `active` are those that this console records at the moment."""

    sessions: list[StoredSession]
    active: list[str]


def running(now: ActiveRecording) -> Running:
    """A recording under way."""
    return Running(now.name, iso(now.began), now.records, now.bytes, now.trouble)


async def start(context: WebContext, request: OperationRequest[ProfilingRequest]) -> Started:
    """Begin to record everything."""
    name = request.parameters.name or f"profile-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    recordings = recordings_of(context)
    if len(recordings.active()) >= MAX_RUNNING:
        raise http_problem(409, "too_many_sessions", f"{MAX_RUNNING} recordings are running", "stop one of them")
    resumed = await recordings.start(name)
    return Started(True, f"Profiling started: {name} is being recorded.", name, resumed)


async def stop(context: WebContext, request: OperationRequest[ProfilingRequest]) -> Stopped:
    """End one recording, or all of them."""
    recordings = recordings_of(context)
    active = [now.name for now in recordings.active()]
    wanted = request.parameters.name
    if wanted is not None and wanted not in active:
        raise http_problem(404, "no_such_session", f"{wanted} is not being recorded",
                      f"there is {', '.join(active)}" if active else "nothing is")  # fmt: skip
    ended = [running(await recordings.stop(name)) for name in ([wanted] if wanted is not None else active)]
    if not ended:
        return Stopped(False, "Profiling is not active.", [])
    return Stopped(True, f"Profiling stopped: {', '.join(one.name for one in ended)}.", ended)


async def sessions(context: WebContext, request: OperationRequest[NoParameters]) -> Sessions:
    """Every session that is kept."""
    recordings = recordings_of(context)
    try:
        found = await asyncio.to_thread(list_sessions, context.sessions)
    except OSError as error:
        raise http_problem(409, "session", f"{context.sessions}: {error.strerror or error}") from error
    return Sessions([_kept(one) for one in found], [now.name for now in recordings.active()])


def recordings_of(context: WebContext) -> Recordings:
    """What this console records with. Raises Refused where it cannot."""
    found = context.control.recordings
    if found is None:
        raise http_problem(409, "no_recordings", "nothing can be recorded here")
    return found


def _kept(one: SessionEntry) -> StoredSession:
    session: Session = one.session
    meta = one.meta
    return StoredSession(
        name=session.name, state=one.status, created=iso(meta.created) if meta else None,
        closed=iso(meta.closed) if meta and meta.closed else None, records=meta.records if meta else None,
        bytes=one.bytes, problem=one.problem,
    )  # fmt: skip


OPERATIONS: Final = (
    Operation(
        "POST",
        "/profiling/start",
        "Begin to record; several recordings may run at a time.",
        start,
        ProfilingRequest,
        Started,
        problems=(409,),
    ),
    Operation(
        "POST",
        "/profiling/stop",
        "End one recording by its name, or all of them.",
        stop,
        ProfilingRequest,
        Stopped,
        problems=(404, 409),
    ),
    Operation(
        "GET",
        "/profiling/sessions",
        "Every recorded session on this console's disk.",
        sessions,
        NoParameters,
        Sessions,
        problems=(409,),
    ),
)
