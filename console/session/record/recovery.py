"""Recovery of a session after a crash: truncate the torn end, recount, close it, or resume its recording.

Sealed segments are counted by their labels; the segment that was being written is read. `verify` reads everything and
checks every file against its digest.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from ...core.bus import Sink
from ...core.control import CrashedRecording
from ...records import UNREADABLE, BadRecord, decode
from ...records.kinds import names_where
from ..format import reader, zstd_frames
from ..format.layout import (
    AgentProgress,
    Meta,
    NewerSchema,
    RecorderRun,
    SegmentSeal,
    Session,
    SessionError,
    digest_of,
    now,
    segment_number,
    sync_folder,
)  # fmt: skip
from ..format.manifest import CompactedRange, check_part, pieces, read_manifest, survey
from ..format.reader import RecordFilter
from ..format.writer import RecordCounts, add_counts
from ..format.zstd_frames import Damage, Frame

_log = logging.getLogger(__name__)

#: Called with the bytes read so far and in total.
Progress = Callable[[int, int], None]
#: Kinds that describe the state of the cluster: folded again, they restore the store.
_RESUMED: Final = names_where(lambda spec: spec.is_resumed)


class RecoveryReport(msgspec.Struct):
    """The result of recovering or verifying a session."""

    records: int = 0
    frames: int = 0
    cut_bytes: int = 0  # of a torn end
    damages: list[Damage] = msgspec.field(default_factory=list)  # within files; not repairable
    unknown: list[str] = msgspec.field(default_factory=list)  # lines that do not parse as records: of other versions
    missing: int = 0  # records counted in session.json that no file has

    @property
    def is_sound(self) -> bool:
        """Whether every byte was readable."""
        return not self.damages and not self.unknown


class _AgentFields(msgspec.Struct):
    """The fields of a record that name its agent."""

    kind: str = ""
    node: str = ""
    agent: str = ""
    seq: int = 0
    rx: int = 0


_heads: Final = msgspec.json.Decoder(_AgentFields)


def _no_progress(done: int, total: int) -> None:
    """Report nothing."""


def recover(session: Session, progress: Progress = _no_progress) -> RecoveryReport:
    """Truncate the torn end of a crashed session, recount its records, and close it.

    A session without a readable session.json gets a new one. Raises SessionError if it is being written or a newer
    gconsole wrote it, OSError.
    """
    with session.lock():
        return recover_locked(session, progress)


def recover_locked(session: Session, progress: Progress = _no_progress) -> RecoveryReport:
    """`recover` for a caller that holds the lock."""
    meta = _meta_or_new(session)
    report = RecoveryReport()
    fresh = replace(meta, records=0, counts={}, first_rx=None, last_rx=None, agents=dict(meta.agents), sealed=0)
    parts = _pieces(session)
    total, done = _total_bytes(parts), 0
    seals: list[SegmentSeal] = []
    for piece in parts:
        if isinstance(piece, CompactedRange):
            _count_parquet(session, piece, fresh, report)
            seals += (seal for seal in meta.seals if piece.first <= seal.number <= piece.last)
            continue
        done += piece.stat().st_size
        torn_at = _count_segment(piece, fresh, report, decompress=segment_number(piece) > meta.sealed)
        if torn_at is not None:
            report.cut_bytes += _truncate(piece, torn_at)
        seals += _seal_of(piece)
        progress(done, total)
    report.missing = max(0, meta.records - report.records)
    last_compacted = (part.last for part in parts if isinstance(part, CompactedRange))
    fresh.sealed = max([*map(segment_number, session.segments()), *last_compacted], default=0)
    fresh.state = "closed" if report.is_sound else "torn"
    fresh.closed = fresh.closed or fresh.last_rx or now()
    fresh.seals = tuple(seals)
    fresh.parts = tuple(_ended(part, fresh.last_rx) for part in fresh.parts)
    session.write(fresh)
    _log.info("session %s recovered: %d records, %d bytes cut, %d damaged parts, %d records missing", session.name,
              report.records, report.cut_bytes, len(report.damages), report.missing)  # fmt: skip
    return report


def verify(session: Session, progress: Progress = _no_progress) -> RecoveryReport:
    """Read everything and check all checksums; change nothing. Raises SessionError, OSError.

    Records are decoded, except those of a sealed segment of this version whose digest is right. For deleted segments
    their Parquet is read.
    """
    report = RecoveryReport()
    try:
        meta = session.read()
    except SessionError:
        meta = Meta()
    parts, damages = survey(session)
    seals = {seal.number: seal.digest for seal in meta.seals}
    changed = {damage.path for damage in damages}
    report.damages += damages
    total, done = _total_bytes(parts), 0
    unreadable = _damaged_parquet(session, report)
    for piece in parts:
        if isinstance(piece, CompactedRange):
            if unreadable.isdisjoint(part.path for part in piece.parts):
                report.records += sum(1 for _ in reader.compacted_records(session, piece))
            continue
        before = len(report.damages)
        if meta.is_own and piece not in changed and seals.get(segment_number(piece)) == digest_of(piece):
            _count_intact(piece, report)  # the bytes that this version wrote: its records need not be read
            done += piece.stat().st_size
            progress(done, total)
            continue
        for item in zstd_frames.contents(piece):
            if not isinstance(item, Damage):
                _check_records(piece, *item, report)
                progress(done + item[0].end, total)
            elif item.what == "torn" and piece == parts[-1] and piece not in changed:
                report.cut_bytes = item.bytes
            else:
                report.damages.append(item)
        is_known = len(report.damages) > before or piece in changed
        if not is_known and seals.get(segment_number(piece), "") not in ("", digest_of(piece)):
            report.damages.append(Damage(piece, 0, piece.stat().st_size, "damaged"))
        done += piece.stat().st_size
    report.missing = max(0, meta.records - report.records)
    return report


def _damaged_parquet(session: Session, report: RecoveryReport) -> set[str]:
    """Check the digests of all Parquet files; return the damaged ones."""
    if any(damage.what == "replaced" for damage in report.damages):
        return set()  # of a damaged manifest, which is reported
    damaged = {}
    for part in read_manifest(session).parts:
        for damage in check_part(session, part):
            damaged[part.path] = damage
    report.damages += damaged.values()
    return set(damaged)


def _pieces(session: Session) -> list[Path | CompactedRange]:
    """The parts of a session; its segments alone if the manifest is damaged. Raises SessionError without segments."""
    try:
        return pieces(session)
    except SessionError:
        if not session.segments():
            raise
        return [*session.segments()]


def _total_bytes(parts: Sequence[Path | CompactedRange]) -> int:
    return sum(part.stat().st_size for part in parts if isinstance(part, Path))


def _count_parquet(session: Session, part: CompactedRange, meta: Meta, report: RecoveryReport) -> None:
    """Count the Parquet of deleted segments. Raises SessionError if it is damaged."""
    try:
        span = reader.compacted_span(session, part)
    except OSError as error:
        raise reader.Damaged(f"{session.path}: cannot read its Parquet: {error}; the segments were deleted") from error
    kinds = Counter[str]()
    for file in part.parts:
        kinds[file.table] += file.rows
    report.records += kinds.total()
    if span is not None:
        add_counts(meta, RecordCounts(dict(kinds), {}, *span))


def _count_intact(path: Path, report: RecoveryReport) -> None:
    """Count the frames of a segment whose digest is right by their labels, and check their checksums."""
    with path.open("rb") as file:
        for item in zstd_frames.scan(path):
            if isinstance(item, Frame):
                file.seek(item.start)
                if zstd_frames.is_intact(file.read(item.label.bytes), item.label):
                    report.frames += 1
                    report.records += item.label.records
                    continue
                item = Damage(path, item.offset, item.end - item.offset, "damaged")
            report.damages.append(item)


def _check_records(path: Path, frame: Frame, raw: bytes, report: RecoveryReport) -> None:
    lines = raw.split(b"\n")[:-1]
    report.frames += 1
    report.records += len(lines)
    place = f"{path.name} at {frame.offset}"
    for line in lines:
        try:
            decode(line)
        except BadRecord as error:
            report.unknown.append(f"{place}: {error}")
    if len(lines) != frame.label.records:
        report.unknown.append(f"{place}: {len(lines)} records, but its label counts {frame.label.records}")


def _count_segment(path: Path, meta: Meta, report: RecoveryReport, *, decompress: bool) -> int | None:
    """Count the records of a segment; return the offset of its torn end, if it has one."""
    for item in zstd_frames.contents(path) if decompress else zstd_frames.scan(path):
        if isinstance(item, Damage):
            if item.what == "torn":
                return item.offset
            report.damages.append(item)
            continue
        frame = item[0] if isinstance(item, tuple) else item
        agents = _agents(item[1]) if isinstance(item, tuple) else {}
        label = frame.label
        add_counts(meta, RecordCounts(label.kinds, agents, label.first_rx, label.last_rx))
        report.frames += 1
        report.records += label.records
    return None


def _agents(raw: bytes) -> dict[str, AgentProgress]:
    """The last record of each agent in the lines of a frame; lines without a head are left to `verify`."""
    agents: dict[str, AgentProgress] = {}
    for line in raw.splitlines():
        try:
            head = _heads.decode(line)
        except UNREADABLE:
            continue
        last = agents.get(head.agent)
        if last is None or last.seq < head.seq:
            agents[head.agent] = AgentProgress(head.node, head.seq, head.rx)
    return agents


def _seal_of(path: Path) -> list[SegmentSeal]:
    """Return the seal of a segment as it is now; an empty segment is removed and has none."""
    if not path.exists():
        return []
    if size := path.stat().st_size:
        return [SegmentSeal(segment_number(path), size, zstd_frames.first_crc(path) or 0, digest_of(path))]
    path.unlink()
    sync_folder(path.parent)
    return []


def _truncate(path: Path, size: int) -> int:
    """Truncate a file to that size, or remove it at 0; return the bytes cut off."""
    before = path.stat().st_size
    if size == 0:
        path.unlink()
        sync_folder(path.parent)
        return before
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)
    return before - size


def _meta_or_new(session: Session) -> Meta:
    try:
        return session.read()
    except NewerSchema:
        raise
    except SessionError:
        if not session.segments_folder.is_dir():
            raise
        frames = (item for path in session.segments() for item in zstd_frames.scan(path) if isinstance(item, Frame))
        first = next(frames, None)
        created = now() if first is None else first.label.first_rx
        return Meta(name=session.name, id=_compacted_id(session) or secrets.token_hex(8), created=created)


def _compacted_id(session: Session) -> str:
    """Return the session's id as compaction noted it; "" if it did not."""
    try:
        return read_manifest(session).session
    except SessionError:
        return ""


def _ended(part: RecorderRun, last_rx: int | None) -> RecorderRun:
    return part if part.how != "recording" else replace(part, how="crashed", ended=last_rx or part.began)


# -- resuming ----------------------------------------------------------------------------------------------------------


def check_resumable(session: Session) -> Meta:
    """Return the metadata of a session left by a crash. Raises SessionError if its recording was stopped."""
    meta = session.read()
    if not meta.parts or meta.parts[-1].how == "stopped":
        raise SessionError.name_taken(session.name)
    return meta


def resume_crashed(session: Session, name_of: Callable[[str], str]) -> CrashedRecording:
    """Recover a session and return how to resume it. `name_of` gives the recorded name of a node.

    Raises SessionError if its recording was stopped, or is running; OSError.
    """
    check_resumable(session)
    recover(session)
    return crashed_recording(session.read(), name_of)


def crashed_recording(meta: Meta, name_of: Callable[[str], str]) -> CrashedRecording:
    """Return how to resume a session that was recovered."""
    console = meta.parts[-1].console
    own = meta.agents.get(console)
    agents = {node: (agent, progress.seq) for node, (agent, progress) in last_agents(meta).items()}
    return CrashedRecording(console, own.seq if own is not None else 0, agents, name_of, meta.last_rx or 0)


def refold(session: Session, sink: Sink) -> None:
    """Send the recorded state to a sink: an agent that lingered does not send it again."""
    for record in reader.lenient(session.path, reader.ignore_damage, RecordFilter(kinds=_RESUMED)):
        sink([record])


def last_agents(meta: Meta) -> dict[str, tuple[str, AgentProgress]]:
    """Return per node, by its recorded name, the last agent and its last recorded record."""
    consoles = meta.console_ids()
    oldest_first = sorted(meta.agents.items(), key=lambda item: item[1].rx)
    return {progress.node: (agent, progress) for agent, progress in oldest_first
            if progress.node and agent not in consoles}  # fmt: skip
