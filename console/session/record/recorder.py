"""Recorder: starts, feeds and stops the recordings of this console, and acknowledges records to agents."""

from __future__ import annotations

import asyncio
import getpass
import math
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from ... import __version__
from ...core.bus import Hub, Published
from ...core.control import ActiveRecording, AgentAdopter, BlackBoxStatus, CrashedRecording, KeptRecords, Selection
from ...records import Gap, Log, Node, Record
from ...text.format import duration
from ..format.layout import AgentProgress, Meta, RecorderRun, Session, SessionError, named, now
from ..format.pseudonyms import Pseudonyms, key_of_this_user
from ..format.redact import Redactor
from ..format.writer import SEGMENT_BYTES, create_session
from ..manage import retention
from . import recovery
from .black_box import BlackBox
from .recording import OpenPast, Recording
from .selection import selects

EVERYTHING: Final = Selection()
_MAX_BATCHES: Final = 64
#: Seconds between two checks of the retention limits during a recording.
RETENTION_S: Final = 60.0


class _Opened(msgspec.Struct):
    """A session about to be recorded, its lock held; `crashed` if it is resumed after a crash."""

    session: Session
    meta: Meta
    lock: int
    redact: Redactor
    crashed: CrashedRecording | None


class Recorder:
    """Sink of the bus, and the `Recordings` of its console.

    `initial` returns the records that a session begins with; `hosts` are names that pseudonyms replace. While a
    recording runs, an agent is acknowledged what `kept` returns. `bridge` adopts the agents of a crashed console.
    """

    def __init__(
        self, hub: Hub, folder: Path, limits: retention.Limits, initial: Callable[[], Iterable[Published]],
        cluster: str = "", hosts: Sequence[str] = (), segment_bytes: int = SEGMENT_BYTES,
        retention_s: float = RETENTION_S,
        request_clock_probes: Callable[[str, bool], object] = lambda who, wanted: None,
        black_box: BlackBox | None = None, want: Callable[[str, Selection | None], object] = lambda who, wanted: None,
    ) -> None:  # fmt: skip
        """`request_clock_probes` is called with a recording's name, and whether it needs continuous probes.

        `want` is called with a recording's name and what it records; None at its end.
        """
        self._hub, self._folder, self._limits, self._initial = hub, folder, limits, initial
        self._cluster, self._hosts, self._segment_bytes = cluster, hosts, segment_bytes
        self.bridge: AgentAdopter | None = None
        self._black_box = black_box
        self._starting = asyncio.Lock()
        self._retention_s, self._retention_due = retention_s, time.monotonic() + retention_s
        self._retaining: asyncio.Task[None] | None = None
        self._retention_logged: set[str] = set()
        self._request_clock_probes, self._want = request_clock_probes, want
        self._running: dict[str, Recording] = {}
        self._stopping: set[str] = set()  # they record the log record of their own end
        #: Of resumed sessions: node → its agent before the crash, and that agent's last record.
        self._before_crash: dict[str, dict[str, tuple[str, AgentProgress]]] = {}
        self._number = 0
        self._batches: dict[str, deque[tuple[int, int]]] = {}  # agent → (batch, last seq in it), oldest first
        self._last_agent: dict[str, str] = {}  # by node
        self._ending: list[asyncio.Future[ActiveRecording]] = []  # stopped by another process
        self._outbox: deque[Record] = deque()  # from the threads of recordings to the bus
        hub.subscribe(self)
        hub.kept = self.kept

    def __call__(self, records: Sequence[Published]) -> None:
        if self._running:
            self._number += 1
            if records:
                self._note_batch(records)
            for recording in self._running.values():
                recording.offer(self._number, records)
            self._retain_if_due()
        while self._outbox:
            self._hub.publish_own(self._outbox.popleft())
        requested = [name for name, recording in self._running.items() if recording.is_stop_requested]
        for name in requested:
            if name not in self._stopping:
                recording = self._pop(name)
                self._ending.append(asyncio.ensure_future(asyncio.to_thread(recording.stop)))

    def kept(self, agent: str, seq: int) -> int:
        """Return the highest `seq`, up to the given one, that every recording has on disk for this agent."""
        if not self._running:
            self._batches.clear()
            return seq
        durable = min(recording.durable for recording in self._running.values())
        batches = self._batches.get(agent)
        if not batches:
            return seq  # no record of it arrived since the first recording began
        kept = batches[0][1] if batches[0][0] <= durable else 0
        while len(batches) > 1 and batches[1][0] <= durable:
            batches.popleft()
            kept = batches[0][1]
        return kept

    # -- Recordings --------------------------------------------------------------------------------------------------

    def active(self) -> Sequence[ActiveRecording]:
        """Return the recordings in progress, oldest first."""
        return [recording.status() for recording in self._running.values()]

    async def start(self, name: str, selection: Selection | None = None, since_s: float = 0.0) -> bool:
        """Start a recording; return whether it resumes one that crashed. Raises SessionError.

        It begins with the last `since_s` seconds in the black box.
        """
        async with self._starting:
            return await self._start(name, selection, since_s)

    async def _start(self, name: str, selection: Selection | None, since_s: float) -> bool:
        session = named(name, self._folder)
        if name in self._running:
            raise SessionError(f"{name}: already being recorded")
        past = None
        if since_s > 0:
            if session.path.exists():
                raise SessionError.name_taken(name)
            if self._black_box is None:
                raise SessionError("this console has no black box; leave out --since")
            await self._black_box.settle()
        try:
            lines = await asyncio.to_thread(retention.enforce_limits, self._folder, self._limits, now())
            opened = await asyncio.to_thread(self._open, session, selection)
        except OSError as error:
            raise _refused(name, self._folder, error, "; try [sessions] folder") from error
        try:
            bridge = self._bridge_to(opened)
            recording = await asyncio.to_thread(self._begin_run, opened, bridge is not None)
        except BaseException as error:
            os.close(opened.lock)
            if isinstance(error, OSError):
                raise _refused(name, session.path, error) from error
            raise
        if opened.crashed is not None:
            self._before_crash[name] = recovery.last_agents(opened.meta)
            if bridge is not None:
                await bridge.adopt_agents(opened.crashed)
        if since_s > 0 and self._black_box is not None:
            past = self._past(recording, self._black_box, since_s)
        recording.begin_with(self._initial_records(opened.meta), past)
        self._running[name] = recording
        if selects(opened.meta.selection, "clock_bins"):  # sparse probes could not tell later which rank was late
            self._request_clock_probes(_who(name), True)
        self._want(_who(name), opened.meta.selection)
        verb = "started" if opened.crashed is None else "resumed after a crash"
        self._log(*lines, f"recording {name} {verb}: {session.path}")
        return opened.crashed is not None

    async def stop(self, name: str) -> ActiveRecording:
        """Stop a recording; return its final state. Raises SessionError if there is none."""
        if name not in self._running:
            raise SessionError(f"{name}: not being recorded")
        return await asyncio.to_thread(self._pop(name).stop)

    async def close(self) -> Sequence[ActiveRecording]:
        """Stop all recordings; return their final states, those stopped by another process included."""
        self._retention_due = math.inf
        if self._retaining is not None:
            await self._retaining
        ended = [await self.stop(name) for name in tuple(self._running)]
        return [*await asyncio.gather(*self._ending), *ended]

    def black_box(self) -> BlackBoxStatus | None:
        """Return the state of the black box; None if nothing is kept."""
        return self._black_box.status() if self._black_box is not None else None

    async def keep_last(self, name: str, last_s: float) -> KeptRecords:
        """Make a session of the last seconds in the black box. Raises SessionError."""
        if self._black_box is None:
            raise SessionError("this console has no black box")
        return await self._black_box.keep_last(name, last_s, self._folder)

    def _pop(self, name: str) -> Recording:
        self._stopping.add(name)
        self._log(f"recording {name} stopped")  # recorded by itself, too
        self._stopping.discard(name)
        self._before_crash.pop(name, None)
        self._request_clock_probes(_who(name), False)
        self._want(_who(name), None)
        return self._running.pop(name)

    # -- retention ---------------------------------------------------------------------------------------------------

    def _retain_if_due(self) -> None:
        """Apply the limits during long recordings, too."""
        if time.monotonic() < self._retention_due or self._limits == retention.Limits():
            return
        if self._retaining is None or self._retaining.done():
            self._retention_due = time.monotonic() + self._retention_s
            self._retaining = asyncio.ensure_future(self._retain())

    async def _retain(self) -> None:
        try:
            lines = await asyncio.to_thread(retention.enforce_limits, self._folder, self._limits, now())
        except OSError as error:
            lines = [f"cannot apply [sessions] max_bytes and max_age in {self._folder}: {error.strerror or error}"]
        new = [text for text in lines if text not in self._retention_logged]
        self._retention_logged.update(new)
        self._outbox.extend(Log(source="console", severity="warning", text=text) for text in new)

    # -- start -------------------------------------------------------------------------------------------------------

    def _open(self, session: Session, selection: Selection | None) -> _Opened:
        crashed = None
        is_resumed = session.path.is_dir()
        if is_resumed:
            meta, lock = self._open_crashed(session, selection)
        else:
            create_session(session, Meta(cluster=self._cluster))
            meta, lock = replace(session.read(), selection=selection or EVERYTHING), session.take_lock()
        try:
            redact = self._redactor(meta.selection)
            meta = replace(meta, cluster=redact.text(meta.cluster))
            if selection is not None and selection.nodes:
                meta = replace(meta, selection=replace(selection, nodes=tuple(map(redact.node, selection.nodes))))
            if is_resumed:
                crashed = recovery.crashed_recording(meta, redact.node)
        except BaseException:
            os.close(lock)
            raise
        return _Opened(session, meta, lock, redact, crashed)

    def _past(self, recording: Recording, black_box: BlackBox, since_s: float) -> OpenPast | None:
        try:
            return black_box.past(since_s)
        except SessionError as error:
            text = f"recording {recording.session.name} begins now: {error}"
            self._outbox.append(Log(source="console", severity="warning", text=text))
            return None

    def _bridge_to(self, opened: _Opened) -> AgentAdopter | None:
        """Return what adopts the crashed console's agents, which still buffer records; None if there are none.

        Raises SessionError while another recording runs: adopting would end the agents that it records.
        """
        crashed, bridge = opened.crashed, self.bridge
        if crashed is None or crashed.console_id == self._hub.console_id:
            return None
        if bridge is None or not bridge.may_have_agents(crashed):
            return None
        if self._running:
            text = "its agents still buffer records since the crash, and deliver them only to a single recording"
            raise SessionError(f"{opened.session.name}: {text}; stop first: {', '.join(self._running)}")
        return bridge

    def _begin_run(self, opened: _Opened, is_bridged: bool) -> Recording:
        """Note this run in the session's metadata, and begin writing. Raises OSError."""
        console, was = self._hub.console_id, ""
        if is_bridged and opened.crashed is not None:
            console, was = opened.crashed.console_id, console
        part = RecorderRun(began=now(), console=console, was=was, version=__version__)
        opened.meta = replace(opened.meta, parts=(*opened.meta.parts, part), state="recording", closed=None)
        opened.session.write(opened.meta)
        return Recording(
            opened.session, opened.meta, opened.lock, opened.redact, self._outbox.append, self._segment_bytes
        )

    def _open_crashed(self, session: Session, selection: Selection | None) -> tuple[Meta, int]:
        """Recover and lock a crashed session. Raises SessionError if it was closed, or is being written."""
        recovery.check_resumable(session)
        lock = session.take_lock()
        try:
            recovery.recover_locked(session)
            meta = session.read()
        except BaseException:
            os.close(lock)
            raise
        return replace(meta, selection=selection or meta.selection), lock

    def _initial_records(self, meta: Meta) -> list[Published]:
        """The current state, without records that a resumed session has."""
        recorded = {agent: progress.seq for agent, progress in meta.agents.items()}
        return [record for record in self._initial() if record.seq > recorded.get(record.agent, 0)]

    def _redactor(self, selection: Selection) -> Redactor:
        names = None
        if selection.anonymous:
            hosts = (*self._hosts, platform.node())
            names = Pseudonyms(key_of_this_user(self._folder), hosts, [getpass.getuser()])
        return Redactor(locals_too=selection.locals, pseudonyms=names)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _note_batch(self, records: Sequence[Published]) -> None:
        """Note the last `seq` of a batch, which is of one agent or of the console."""
        last = records[-1]
        if last.agent != self._hub.console_id and self._last_agent.get(last.node) != last.agent:
            self._batches.pop(self._last_agent.get(last.node, ""), None)  # it has ended and needs no acknowledgement
            self._last_agent[last.node] = last.agent
        batches = self._batches.setdefault(last.agent, deque())
        batches.append((self._number, last.seq))
        if len(batches) > _MAX_BATCHES:  # an agent that does not linger is never acknowledged
            self.kept(last.agent, last.seq)
        if self._before_crash and last.agent != self._hub.console_id:
            self._count_gap(records[0])

    def _count_gap(self, first: Published) -> None:
        """Publish a gap with the first record of each node after a crash."""
        for name, nodes in self._before_crash.items():
            before = nodes.pop(self._running[name].name_of(first.node), None)
            if before is not None and first.node:
                gap = _gap(name, first, *before)
                if gap is not None:
                    self._outbox.append(gap)

    def _log(self, *texts: str) -> None:
        self._hub.publish_own(*(Log(source="console", text=text) for text in texts))


def _who(name: str) -> str:
    return f"recording {name}"


def _refused(name: str, place: Path, error: OSError, try_: str = "") -> SessionError:
    return SessionError(f"{name}: cannot record in {place}: {error.strerror or error}{try_}")


def _gap(name: str, first: Published, agent: str, last: AgentProgress) -> Gap | None:
    """The gap between the last record of a node before a crash and its first one after; None if nothing is missing.

    Of the same agent, records are counted; of one that ended, samples are estimated from its interval.
    """
    away_ns = max(0, first.rx - last.rx)
    reason = f"not recorded for {duration(away_ns)}: the console had crashed"
    if first.agent == agent:
        missing = first.seq - last.seq - 1
        if missing <= 0:
            return None
        return Gap(
            node=first.node, source=f"recording {name}", reason=reason, count=missing, first_seq=last.seq + 1,
            last_seq=first.seq - 1,
        )  # fmt: skip
    ticks = int(away_ns / 1e6 / first.sample_interval_ms) if isinstance(first, Node) else None
    return Gap(node=first.node, source=f"recording {name}", reason=reason, count=ticks, first_seq=last.seq + 1)
