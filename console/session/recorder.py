"""Every recording of this console: what begins and ends one, and what an agent may forget."""

from __future__ import annotations

import asyncio
import getpass
import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from .. import __version__
from ..hub import Hub, Published, RecordingNow
from ..records import Gap, Log, Node, Record
from . import recovery, resuming, retention
from .layout import Heard, Meta, Part, Selection, Session, SessionError, named, now
from .making import begin
from .pseudonyms import Pseudonyms, key_of_this_user
from .recording import Recording
from .redact import Redactor
from .segments import SEGMENT_BYTES
from .selection import keeps

EVERYTHING: Final = Selection()
_MOST_BATCHES: Final = 64


class Recorder:
    """A sink of the hub, and the `Recordings` of its console.

    `known` gives what a session needs to begin with; `hosts` are names that pseudonyms stand for. While a recording
    runs, `kept` says how far an agent's records are on the disk: what is acknowledged to it.
    """

    def __init__(
        self, hub: Hub, folder: Path, limits: retention.Limits, known: Callable[[], Iterable[Published]],
        cluster: str = "", hosts: Sequence[str] = (), segment_bytes: int = SEGMENT_BYTES,
        want_clocks: Callable[[str, bool], object] = lambda who, wanted: None,
    ) -> None:  # fmt: skip
        """`want_clocks` hears which recordings want the clocks to be probed without pause, and which no longer do."""
        self._hub, self._folder, self._limits, self._known = hub, folder, limits, known
        self._cluster, self._hosts, self._segment_bytes = cluster, hosts, segment_bytes
        self._want_clocks = want_clocks
        self._running: dict[str, Recording] = {}
        self._leaving: set[str] = set()  # those that hear their own end
        self._gone: dict[str, dict[str, tuple[str, Heard]]] = {}  # of resumed sessions: node → agent, how far it was
        self._number = 0
        self._heard: dict[str, deque[tuple[int, int]]] = {}  # agent → (batch, its last number in it), oldest first
        self._ending: list[asyncio.Future[RecordingNow]] = []  # asked for elsewhere
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
        while self._words:
            self._hub.say(self._words.popleft())
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

    def now(self) -> Sequence[RecordingNow]:
        return [recording.now() for recording in self._running.values()]

    async def start(self, name: str, selection: Selection | None = None) -> bool:
        session = named(name, self._folder)
        if name in self._running:
            raise SessionError(f"{name}: it is being recorded already")
        try:
            words = await asyncio.to_thread(retention.keep_within, self._folder, self._limits, now())
            begun = await asyncio.to_thread(self._begin, session, selection)
        except OSError as error:
            text = f"{name}: no recording in {self._folder}: {error.strerror or error}"
            raise SessionError(f"{text}; try [sessions] folder") from error
        meta, lock, is_resumed, redact = begun
        if is_resumed:
            self._gone[name] = resuming.last_agents(meta)
        try:
            recording = Recording(session, meta, lock, redact, self._words.append, self._segment_bytes)
        except OSError as error:
            os.close(lock)
            raise SessionError(f"{name}: no recording in {session.path}: {error.strerror or error}") from error
        recording.begin_with(self._news(meta))
        self._running[name] = recording
        if keeps(meta.selection, "clock_bins"):  # by what is seldom probed nobody can say later who was late
            self._want_clocks(_who(name), True)
        verb = "goes on after a crash" if is_resumed else "begins"
        self._say(*words, f"recording {name} {verb}: {session.path}")
        return is_resumed

    async def stop(self, name: str) -> RecordingNow:
        if name not in self._running:
            raise SessionError(f"{name}: it is not being recorded")
        return await asyncio.to_thread(self._pop(name).stop)

    async def close(self) -> Sequence[RecordingNow]:
        """End all of them; what came of each, also of those that were asked to end before."""
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

    # -- how one begins ----------------------------------------------------------------------------------------------

    def _begin(self, session: Session, selection: Selection | None) -> tuple[Meta, int, bool, Redactor]:
        is_resumed = session.path.is_dir()
        if is_resumed:
            meta, lock = self._take_up(session, selection)
        else:
            begin(session, Meta(cluster=self._cluster))
            meta, lock = replace(session.read(), selection=selection or EVERYTHING), session.take_lock()
        try:
            redact = self._redactor(meta.selection)
            if selection is not None and selection.nodes:
                chosen = replace(selection, nodes=tuple(map(redact.node, selection.nodes)))
                meta = replace(meta, selection=chosen)
            part = Part(began=now(), console=self._hub.console_id, version=__version__)
            meta = replace(meta, parts=(*meta.parts, part), state="recording", closed=None)
            session.write(meta)
        except BaseException:
            os.close(lock)
            raise
        return meta, lock, is_resumed, redact

    def _take_up(self, session: Session, selection: Selection | None) -> tuple[Meta, int]:
        """A session that a crashed console left. Raises SessionError for one that was closed, or is being written."""
        resuming.check(session)
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
        self._hub.say(*(Log(source="console", text=text) for text in texts))


def _who(name: str) -> str:
    return f"recording {name}"


def _gap(name: str, first: Published, agent: str, heard: Heard) -> Gap | None:
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
