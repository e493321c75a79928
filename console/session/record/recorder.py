"""Every recording of this console: what begins and ends one, and what an agent may forget."""

from __future__ import annotations

import asyncio
import getpass
import math
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ... import __version__
from ...core.bus import Hub, Published
from ...core.control import ActiveRecording, AgentAdopter, CrashedRecording, Selection
from ...records import Gap, Log, Node, Record
from ..format.layout import AgentProgress, Meta, RecorderRun, Session, SessionError, named, now
from ..format.pseudonyms import Pseudonyms, key_of_this_user
from ..format.redact import Redactor
from ..format.writer import SEGMENT_BYTES, create_session
from ..manage import retention
from . import recovery
from .recording import Recording
from .selection import keeps

EVERYTHING: Final = Selection()
_MOST_BATCHES: Final = 64
#: While something is recorded, the limits of what is kept are looked at so often, s.
RETENTION_S: Final = 60.0


@dataclass
class _Opened:
    """A session about to be recorded, its lock held; `left` where a crash left it."""

    session: Session
    meta: Meta
    lock: int
    redact: Redactor
    left: CrashedRecording | None


class Recorder:
    """A sink of the hub, and the `Recordings` of its console.

    `known` gives what a session needs to begin with; `hosts` are names that pseudonyms stand for. While a recording
    runs, `kept` says how far an agent's records are on the disk: what is acknowledged to it. `bridge` speaks on with
    agents that a crash left.
    """

    def __init__(
        self, hub: Hub, folder: Path, limits: retention.Limits, known: Callable[[], Iterable[Published]],
        cluster: str = "", hosts: Sequence[str] = (), segment_bytes: int = SEGMENT_BYTES,
        retention_s: float = RETENTION_S,
        want_clocks: Callable[[str, bool], object] = lambda who, wanted: None,
    ) -> None:  # fmt: skip
        """`want_clocks` hears which recordings want the clocks to be probed without pause, and which no longer do."""
        self._hub, self._folder, self._limits, self._known = hub, folder, limits, known
        self._cluster, self._hosts, self._segment_bytes = cluster, hosts, segment_bytes
        self.bridge: AgentAdopter | None = None
        self._starting = asyncio.Lock()
        self._retention_s, self._retention_due = retention_s, time.monotonic() + retention_s
        self._retaining: asyncio.Task[None] | None = None
        self._retention_said: set[str] = set()
        self._want_clocks = want_clocks
        self._running: dict[str, Recording] = {}
        self._leaving: set[str] = set()  # those that hear their own end
        self._gone: dict[
            str, dict[str, tuple[str, AgentProgress]]
        ] = {}  # of resumed sessions: node → agent, how far it was
        self._number = 0
        self._heard: dict[str, deque[tuple[int, int]]] = {}  # agent → (batch, its last number in it), oldest first
        self._speaks: dict[str, str] = {}  # node → the agent that was heard there last
        self._ending: list[asyncio.Future[ActiveRecording]] = []  # asked for elsewhere
        self._words: deque[Record] = deque()  # from the threads of recordings, on their way to the hub
        hub.subscribe(self)
        hub.kept = self.kept

    def __call__(self, records: Sequence[Published]) -> None:
        if self._running:
            self._number += 1
            if records:
                self._hear(records)
            for recording in self._running.values():
                recording.offer(self._number, records)
            self._retain_in_time()
        while self._words:
            self._hub.publish_own(self._words.popleft())
        for name in [name for name, one in self._running.items() if one.is_asked_to_end and name not in self._leaving]:
            self._end_soon(name)

    def kept(self, agent: str, seq: int) -> int:
        """Of an agent's records up to `seq`, the last that every recording has on the disk."""
        if not self._running:
            self._heard.clear()
            return seq
        durable = min(recording.durable for recording in self._running.values())
        batches = self._heard.get(agent)
        if not batches:
            return seq  # nothing of it has come since the first of them began
        kept = batches[0][1] if batches[0][0] <= durable else 0
        while len(batches) > 1 and batches[1][0] <= durable:
            batches.popleft()
            kept = batches[0][1]
        return kept

    # -- Recordings --------------------------------------------------------------------------------------------------

    def now(self) -> Sequence[ActiveRecording]:
        return [recording.now() for recording in self._running.values()]

    async def start(self, name: str, selection: Selection | None = None) -> bool:
        async with self._starting:
            return await self._start(name, selection)

    async def _start(self, name: str, selection: Selection | None) -> bool:
        session = named(name, self._folder)
        if name in self._running:
            raise SessionError(f"{name}: it is being recorded already")
        try:
            words = await asyncio.to_thread(retention.keep_within, self._folder, self._limits, now())
            opened = await asyncio.to_thread(self._open, session, selection)
        except OSError as error:
            raise _refused(name, self._folder, error, "; try [sessions] folder") from error
        try:
            bridge = self._bridge_to(opened)
            recording = await asyncio.to_thread(self._enter, opened, bridge is not None)
        except BaseException as error:
            os.close(opened.lock)
            if isinstance(error, OSError):
                raise _refused(name, session.path, error) from error
            raise
        if opened.left is not None:
            self._gone[name] = recovery.last_agents(opened.meta)
            if bridge is not None:
                await bridge.adopt_agents(opened.left)
        recording.begin_with(self._news(opened.meta))
        self._running[name] = recording
        if keeps(opened.meta.selection, "clock_bins"):  # by what is seldom probed nobody can say later who was late
            self._want_clocks(_who(name), True)
        verb = "begins" if opened.left is None else "goes on after a crash"
        self._say(*words, f"recording {name} {verb}: {session.path}")
        return opened.left is not None

    async def stop(self, name: str) -> ActiveRecording:
        if name not in self._running:
            raise SessionError(f"{name}: it is not being recorded")
        return await asyncio.to_thread(self._pop(name).stop)

    async def close(self) -> Sequence[ActiveRecording]:
        """End all of them; what came of each, also of those that were asked to end before."""
        self._retention_due = math.inf
        if self._retaining is not None:
            await self._retaining
        ended = [await self.stop(name) for name in tuple(self._running)]
        return [*await asyncio.gather(*self._ending), *ended]

    def _end_soon(self, name: str) -> None:
        """Somebody asked for it in another terminal."""
        ending = self._pop(name)
        ended = asyncio.ensure_future(asyncio.to_thread(ending.stop))
        self._ending.append(ended)

    def _pop(self, name: str) -> Recording:
        self._leaving.add(name)
        self._say(f"recording {name} ends")  # which it records itself
        self._leaving.discard(name)
        self._gone.pop(name, None)
        self._want_clocks(_who(name), False)
        return self._running.pop(name)

    # -- what is kept ------------------------------------------------------------------------------------------------

    def _retain_in_time(self) -> None:
        """Keep to the limits also while something is recorded for days."""
        if time.monotonic() < self._retention_due or self._limits == retention.Limits():
            return
        if self._retaining is None or self._retaining.done():
            self._retention_due = time.monotonic() + self._retention_s
            self._retaining = asyncio.ensure_future(self._retain())

    async def _retain(self) -> None:
        try:
            words = await asyncio.to_thread(retention.keep_within, self._folder, self._limits, now())
        except OSError as error:
            words = [f"[sessions] max_bytes and max_age cannot be kept to in {self._folder}: {error.strerror or error}"]
        new = [text for text in words if text not in self._retention_said]
        self._retention_said.update(new)
        self._words.extend(Log(source="console", severity="warning", text=text) for text in new)

    # -- how one begins ----------------------------------------------------------------------------------------------

    def _open(self, session: Session, selection: Selection | None) -> _Opened:
        left = None
        is_resumed = session.path.is_dir()
        if is_resumed:
            meta, lock = self._take_up(session, selection)
        else:
            create_session(session, Meta(cluster=self._cluster))
            meta, lock = replace(session.read(), selection=selection or EVERYTHING), session.take_lock()
        try:
            redact = self._redactor(meta.selection)
            meta = replace(meta, cluster=redact.text(meta.cluster))
            if selection is not None and selection.nodes:
                chosen = replace(selection, nodes=tuple(map(redact.node, selection.nodes)))
                meta = replace(meta, selection=chosen)
            if is_resumed:
                left = recovery.left_behind(meta, redact.node)
        except BaseException:
            os.close(lock)
            raise
        return _Opened(session, meta, lock, redact, left)

    def _bridge_to(self, opened: _Opened) -> AgentAdopter | None:
        """Who brings what the agents of the crashed console have kept since; None where nothing can be brought.

        Raises SessionError where another recording is in the way: it would lose the agents that it hears.
        """
        left, bridge = opened.left, self.bridge
        if (
            left is None
            or bridge is None
            or left.console_id == self._hub.console_id
            or not bridge.may_have_agents(left)
        ):
            return None
        if self._running:
            text = "the agents still keep what came since its crash, and hand it over once nothing else is recorded"
            raise SessionError(f"{opened.session.name}: {text}; end first: {', '.join(self._running)}")
        return bridge

    def _enter(self, opened: _Opened, is_bridged: bool) -> Recording:
        """Say in the session who records it from now on. Raises OSError."""
        console, was = self._hub.console_id, ""
        if is_bridged and opened.left is not None:
            console, was = opened.left.console_id, console
        part = RecorderRun(began=now(), console=console, was=was, version=__version__)
        opened.meta = replace(opened.meta, parts=(*opened.meta.parts, part), state="recording", closed=None)
        opened.session.write(opened.meta)
        return Recording(
            opened.session, opened.meta, opened.lock, opened.redact, self._words.append, self._segment_bytes
        )

    def _take_up(self, session: Session, selection: Selection | None) -> tuple[Meta, int]:
        """A session that a crashed console left. Raises SessionError for one that was closed, or is being written."""
        recovery.check(session)
        lock = session.take_lock()
        try:
            recovery.recover_locked(session)
            meta = session.read()
        except BaseException:
            os.close(lock)
            raise
        return replace(meta, selection=selection or meta.selection), lock

    def _news(self, meta: Meta) -> list[Published]:
        """What is known already, and not in the session."""
        recorded = {agent: heard.seq for agent, heard in meta.agents.items()}
        return [record for record in self._known() if record.seq > recorded.get(record.agent, 0)]

    def _redactor(self, selection: Selection) -> Redactor:
        names = None
        if selection.anonymous:
            hosts = (*self._hosts, platform.node())
            names = Pseudonyms(key_of_this_user(self._folder), hosts, [getpass.getuser()])
        return Redactor(locals_too=selection.locals, pseudonyms=names)

    # -- what comes --------------------------------------------------------------------------------------------------

    def _hear(self, records: Sequence[Published]) -> None:
        """A batch is of one agent, or of the console itself."""
        last = records[-1]
        if last.agent != self._hub.console_id and self._speaks.get(last.node) != last.agent:
            self._heard.pop(self._speaks.get(last.node, ""), None)  # it has ended: nobody asks how far it is kept
            self._speaks[last.node] = last.agent
        batches = self._heard.setdefault(last.agent, deque())
        batches.append((self._number, last.seq))
        if len(batches) > _MOST_BATCHES:  # of an agent that does not linger nobody asks
            self.kept(last.agent, last.seq)
        if self._gone and last.agent != self._hub.console_id:
            self._count_gap(records[0])

    def _count_gap(self, first: Published) -> None:
        """The first word of a node since the crash tells what is missing of it."""
        for name, nodes in self._gone.items():
            before = nodes.pop(self._running[name].name_of(first.node), None)
            if before is not None and first.node:
                gap = _gap(name, first, *before)
                if gap is not None:
                    self._words.append(gap)

    def _say(self, *texts: str) -> None:
        self._hub.publish_own(*(Log(source="console", text=text) for text in texts))


def _who(name: str) -> str:
    return f"recording {name}"


def _refused(name: str, place: Path, error: OSError, try_: str = "") -> SessionError:
    return SessionError(f"{name}: no recording in {place}: {error.strerror or error}{try_}")


def _gap(name: str, first: Published, agent: str, heard: AgentProgress) -> Gap | None:
    """What is missing between the last record of a node before a crash and its first one after; None: nothing.

    Records are counted where the same agent spoke on; of one that had ended nobody can count them, but its ticks can.
    """
    away_s = max(0, first.rx - heard.rx) / 1e9
    reason = f"nothing was recorded for {away_s:.1f} s: the console had crashed"
    if first.agent == agent:
        missing = first.seq - heard.seq - 1
        if missing <= 0:
            return None
        return Gap(
            node=first.node, source=f"recording {name}", reason=reason, count=missing, first_seq=heard.seq + 1,
            last_seq=first.seq - 1,
        )  # fmt: skip
    ticks = int(away_s * 1000 / first.sample_interval_ms) if isinstance(first, Node) else None
    return Gap(node=first.node, source=f"recording {name}", reason=reason, count=ticks, first_seq=heard.seq + 1)
