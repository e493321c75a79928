"""Recover a session after a crash, verify it, and resume its recording."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from ...core.bus import Sink
from ...core.control import CrashedRecording
from ...records import UNREADABLE, BadRecord, decode
from ...records.kinds import names_where
from ..format import reader
from ..format import zstd_frames as frames
from ..format.layout import AgentProgress, Meta, NewerSchema, RecorderRun, Session, SessionError, now, sync_folder
from ..format.manifest import Step, pieces
from ..format.reader import Choice
from ..format.writer import RecordCounts, add_counts
from ..format.zstd_frames import Damage, Frame

#: Called now and then with the bytes done and the bytes there are.
Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Nobody wants to know."""


@dataclass
class RecoveryReport:
    """What was found in a session's files."""

    records: int = 0
    frames: int = 0
    cut_bytes: int = 0  # of a torn tail
    damages: list[Damage] = field(default_factory=list)  # in the middle of a file: nothing can be done about those
    unknown: list[str] = field(default_factory=list)  # lines that are no records, of other versions
    missing: int = 0  # records that session.json counts, and that are nowhere

    @property
    def is_sound(self) -> bool:
        return not self.damages and not self.unknown


class _Head(msgspec.Struct):
    """What of a record says whose it is."""

    kind: str = ""
    node: str = ""
    agent: str = ""
    seq: int = 0
    rx: int = 0


_heads: Final = msgspec.json.Decoder(_Head)


def recover(session: Session, progress: Progress = _silent) -> RecoveryReport:
    """Make a session whole that nobody closed: its torn end is cut, its counts are made true, it is closed.

    A session without a readable session.json gets a new one. Raises SessionError where it is being written, or of a
    newer gconsole; OSError.
    """
    with session.lock():
        return recover_locked(session, progress)


def recover_locked(session: Session, progress: Progress = _silent) -> RecoveryReport:
    """The same, for a caller who holds the lock."""
    meta = _meta_or_new(session)
    found = RecoveryReport()
    fresh = replace(meta, records=0, counts={}, first_rx=None, last_rx=None, agents=dict(meta.agents), sealed=0)
    parts = _pieces(session)
    total, done = _bytes_of(parts), 0
    for piece in parts:
        if isinstance(piece, Step):
            _take_in_parquet(session, piece, fresh, found)
            continue
        done += piece.stat().st_size
        is_sealed = _number(piece) <= meta.sealed
        end = _take_in(piece, fresh, found, read=not is_sealed)
        if end is not None:
            found.cut_bytes += _cut(piece, end)
        progress(done, total)
    found.missing = max(0, meta.records - found.records)
    fresh.sealed = max([*map(_number, session.segments()), *(part.last for part in parts if isinstance(part, Step))],
                       default=0)  # fmt: skip
    fresh.state = "closed" if found.is_sound else "torn"
    fresh.closed = fresh.closed or fresh.last_rx or now()
    fresh.parts = tuple(_ended(part, fresh.last_rx) for part in fresh.parts)
    session.write(fresh)
    return found


def verify(session: Session, progress: Progress = _silent) -> RecoveryReport:
    """Read everything, check every checksum and every record; nothing is changed. Raises SessionError, OSError.

    Where segments are gone after compaction, what stands for them is read.
    """
    found, counted = RecoveryReport(), _counted(session)
    parts = _pieces(session)
    total, done = _bytes_of(parts), 0
    for piece in parts:
        if isinstance(piece, Step):
            found.records += sum(1 for _ in reader.compacted_part(session, piece))
            continue
        for item in frames.contents(piece):
            if isinstance(item, Damage):
                if item.what == "torn" and piece == parts[-1]:
                    found.cut_bytes = item.bytes
                else:
                    found.damages.append(item)
                continue
            frame, raw = item
            _check(piece, frame, raw, found)
            progress(done + frame.end, total)
        done += piece.stat().st_size
    found.missing = max(0, counted - found.records)
    return found


def _counted(session: Session) -> int:
    """How many records its sealed segments had; none where nobody can tell."""
    try:
        return session.read().records
    except SessionError:
        return 0


def _pieces(session: Session) -> list[Path | Step]:
    """What it is put together from; all its segments, where nobody can tell what else there is. Raises SessionError."""
    try:
        return pieces(session)
    except SessionError:
        if not session.segments():
            raise
        return [*session.segments()]


def _bytes_of(parts: Sequence[Path | Step]) -> int:
    return sum(part.stat().st_size for part in parts if isinstance(part, Path))


def _take_in_parquet(session: Session, step: Step, meta: Meta, found: RecoveryReport) -> None:
    """Count what stands for segments that are gone. Raises SessionError where it is damaged."""
    from ..format import parquet_reader  # what reads Parquet takes long to load

    try:
        span = parquet_reader.span(session.parquet_folder, step.parts)
    except (*parquet_reader.ParquetErrors, OSError) as error:
        what = str(error).partition("\n")[0]
        raise SessionError(f"{session.path}: its Parquet is damaged: {what}; there are no segments of it") from error
    kinds = Counter[str]()
    for part in step.parts:
        kinds[part.table] += part.rows
    found.records += kinds.total()
    if span is not None:
        add_counts(meta, RecordCounts(dict(kinds), {}, *span))


def _check(path: Path, frame: Frame, raw: bytes, found: RecoveryReport) -> None:
    lines = raw.split(b"\n")[:-1]
    found.frames += 1
    found.records += len(lines)
    for line in lines:
        try:
            decode(line)
        except BadRecord as error:
            found.unknown.append(f"{path.name} at {frame.at}: {error}")
    if len(lines) != frame.label.records:
        text = f"{len(lines)} records, where {frame.label.records} were counted"
        found.unknown.append(f"{path.name} at {frame.at}: {text}")


def _take_in(path: Path, meta: Meta, found: RecoveryReport, *, read: bool) -> int | None:
    """Count what is in a segment; where its end is torn, the place to cut it at."""
    for item in frames.contents(path) if read else frames.scan(path):
        if isinstance(item, Damage):
            if item.what == "torn":
                return item.at
            found.damages.append(item)
            continue
        frame = item[0] if isinstance(item, tuple) else item
        agents = _agents(item[1]) if isinstance(item, tuple) else {}
        label = frame.label
        add_counts(meta, RecordCounts(label.kinds, agents, label.first_rx, label.last_rx))
        found.frames += 1
        found.records += label.records
    return None


def _agents(raw: bytes) -> dict[str, AgentProgress]:
    heard: dict[str, _Head] = {}
    for line in raw.splitlines():
        try:
            head = _heads.decode(line)
        except UNREADABLE:
            continue  # `verify` names it; whose it was, nobody can tell
        known = heard.get(head.agent)
        if known is None or known.seq < head.seq:
            heard[head.agent] = head
    return {agent: AgentProgress(head.node, head.seq, head.rx) for agent, head in heard.items()}


def _cut(path: Path, at: int) -> int:
    """Cut a file there; how much that was. A file of which nothing is left is removed."""
    size = path.stat().st_size
    if at == 0:
        path.unlink()
        sync_folder(path.parent)
        return size
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, at)
        os.fsync(fd)
    finally:
        os.close(fd)
    return size - at


def _meta_or_new(session: Session) -> Meta:
    try:
        return session.read()
    except NewerSchema:
        raise
    except SessionError:
        if not session.segments_folder.is_dir():
            raise
        return Meta(name=session.name, id=secrets.token_hex(8), created=_oldest(session.segments()))


def _oldest(files: Sequence[Path]) -> int:
    for path in files:
        for item in frames.scan(path):
            if isinstance(item, Frame):
                return item.label.first_rx
    return now()


def _ended(part: RecorderRun, last_rx: int | None) -> RecorderRun:
    return part if part.how != "recording" else replace(part, how="crashed", ended=last_rx or part.began)


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


#: Kinds that describe the state of the cluster: folded again, they restore the store.
_RESUMED: Final = names_where(lambda spec: spec.is_resumed)


def check(session: Session) -> Meta:
    """What is known of a session that can go on. Raises SessionError for one that was ended orderly."""
    meta = session.read()
    crashed = bool(meta.parts) and meta.parts[-1].how != "stopped"
    if not crashed:
        text = f"try another name, or: gconsole sessions delete {session.name}"
        raise SessionError(f"{session.name}: there is such a session already; {text}")
    return meta


def take_up(session: Session, name_of: Callable[[str], str]) -> CrashedRecording:
    """Recover a session, and say how to go on with it. `name_of` gives what a node is called in the session.

    Raises SessionError where it was ended orderly, or is being written; OSError.
    """
    check(session)
    recover(session)
    return left_behind(session.read(), name_of)


def left_behind(meta: Meta, name_of: Callable[[str], str]) -> CrashedRecording:
    """How to go on with a session that was recovered."""
    console = meta.parts[-1].console
    own = meta.agents.get(console)
    agents = {node: (agent, heard.seq) for node, (agent, heard) in last_agents(meta).items()}
    return CrashedRecording(console, own.seq if own is not None else 0, agents, name_of, meta.last_rx or 0)


def refold(session: Session, sink: Sink) -> None:
    """Tell a store what was known when the recording broke off: an agent that lingers does not say it again."""
    for record in reader.lenient(session.path, _never_mind, Choice(kinds=_RESUMED)):
        sink([record])


def _never_mind(damage: Damage) -> None:
    """`recover` has told it already."""


def last_agents(meta: Meta) -> dict[str, tuple[str, AgentProgress]]:
    """By node, the agent that was heard last there, and how far it is recorded; nodes as they are called in there."""
    consoles = {name for part in meta.parts for name in (part.console, part.was)}
    oldest_first = sorted(meta.agents.items(), key=lambda item: item[1].rx)
    return {heard.node: (agent, heard) for agent, heard in oldest_first if heard.node and agent not in consoles}
