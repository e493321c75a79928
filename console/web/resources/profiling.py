"""`/profiling`: recordings, compatible with gswarm-profiler in their paths; several may run at once."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import msgspec

from ...core.control import ActiveRecording, Recordings
from ...session.format.layout import NAME_PATTERN, Session
from ...session.manage.catalog import SessionEntry, list_sessions
from ...text.format import file_stamp, iso
from ..operation import NoParameters, OperationRequest, WebContext, operation
from ..problems import http_problem

#: Concurrent recordings; each has a thread and writes all records.
MAX_RUNNING: Final = 16

SessionName = Annotated[str, msgspec.Meta(pattern=f"^{NAME_PATTERN}$")]


class ProfilingRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which session. Without a name, start generates one, and stop ends all."""

    name: SessionName | None = None


class Running(msgspec.Struct):
    """A session in recording."""

    name: str
    began: str | None
    records: int  # synced to disk
    bytes: int
    trouble: str  # why writing fails at the moment; "" if it works


class Started(msgspec.Struct):
    """A started recording."""

    success: bool
    message: str
    name: str
    resumed: bool  # continues the session of a crashed console


class Stopped(msgspec.Struct):
    """Stopped recordings."""

    success: bool
    message: str
    stopped: list[Running]


class StoredSession(msgspec.Struct):
    """One session in this console's folder."""

    name: str
    state: str  # recording, closed, crashed, torn, unreadable
    created: str | None
    closed: str | None
    records: int | None  # null if it is unreadable
    bytes: int
    problem: str


class Sessions(msgspec.Struct):
    """Sessions, the newest last; `active` are those that this console is recording."""

    sessions: list[StoredSession]
    active: list[str]


def running(now: ActiveRecording) -> Running:
    """State of a running recording."""
    return Running(now.name, iso(now.began), now.records, now.bytes, now.trouble)


@operation("POST", "/profiling/start", problems=(409,), scope="capture")
async def start(context: WebContext, request: OperationRequest[ProfilingRequest]) -> Started:
    """Start a recording; several may run at once."""
    name = request.parameters.name or f"profile-{file_stamp(time.time_ns())}"
    recordings = recordings_of(context)
    if len(recordings.active()) >= MAX_RUNNING:
        raise http_problem(409, "too_many_sessions", f"{MAX_RUNNING} recordings are running", "stop a recording first")
    resumed = await recordings.start(name)
    return Started(True, f"Profiling started: {name} is being recorded.", name, resumed)


@operation("POST", "/profiling/stop", problems=(404, 409), scope="capture")
async def stop(context: WebContext, request: OperationRequest[ProfilingRequest]) -> Stopped:
    """Stop one recording by name, or all of them."""
    recordings = recordings_of(context)
    active = [now.name for now in recordings.active()]
    wanted = request.parameters.name
    if wanted is not None and wanted not in active:
        raise http_problem(404, "no_such_session", f"{wanted} is not being recorded",
                      f"in recording: {', '.join(active)}" if active else "no recording is running")  # fmt: skip
    ended = [running(await recordings.stop(name)) for name in ([wanted] if wanted is not None else active)]
    if not ended:
        return Stopped(False, "Profiling is not active.", [])
    return Stopped(True, f"Profiling stopped: {', '.join(recording.name for recording in ended)}.", ended)


@operation("GET", "/profiling/sessions", problems=(409,))
async def sessions(context: WebContext, request: OperationRequest[NoParameters]) -> Sessions:
    """All sessions in this console's folder."""
    recordings = recordings_of(context)
    try:
        listed = await asyncio.to_thread(list_sessions, context.sessions)
    except OSError as error:
        raise http_problem(409, "session", f"{context.sessions}: {error.strerror or error}") from error
    return Sessions([_stored(item) for item in listed], [now.name for now in recordings.active()])


def recordings_of(context: WebContext) -> Recordings:
    """Recordings of this console. Raises HttpProblemError if it cannot record."""
    recordings = context.control.recordings
    if recordings is None:
        raise http_problem(409, "no_recordings", "this console shows a recording and cannot record",
                      "start gconsole api with the nodes, as in: gconsole api hosts.toml")  # fmt: skip
    return recordings


def _stored(item: SessionEntry) -> StoredSession:
    session: Session = item.session
    meta = item.meta
    return StoredSession(
        name=session.name, state=item.status, created=iso(meta.created) if meta else None,
        closed=iso(meta.closed) if meta and meta.closed else None, records=meta.records if meta else None,
        bytes=item.bytes, problem=item.problem,
    )  # fmt: skip
