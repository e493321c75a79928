"""The black boxes of this user's consoles: list them, delete old ones, and keep the last minutes as a session."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import platformdirs
from msgspec.structs import replace

from ...core.control import KeptRecords
from ...text.sanitize import printable
from ..format import zstd_frames
from ..format.layout import Meta, RecorderRun, Session, SessionError, all_sessions, named
from ..format.writer import RecordCounts, write_frames
from ..format.zstd_frames import Damage, Frame
from ..record.recording import Past, flush
from .retention import Limits, RetainedSession, delete, sessions_to_delete

#: Black boxes of consoles that ended: deleted after this many seconds, and beyond this number. Those of running
#: consoles never are.
ENDED_S: Final = 7 * 86_400.0
MAX_ENDED: Final = 8
#: Seconds to wait for a running console to write what it has gathered.
_FLUSH_S: Final = 5.0
#: Bytes that are copied, and synced, at a time.
_COPY_BYTES: Final = 4 << 20


class BlackBoxFile(msgspec.Struct, frozen=True):
    """One black box on disk."""

    session: Session
    meta: Meta
    is_running: bool
    bytes: int
    records: int
    began: int  # its oldest instant, console CLOCK_REALTIME, ns
    ended: int  # its newest


def find_black_box(text: str) -> Session | None:
    """Return the black box of that name; None if there is none."""
    folder = black_boxes_folder()
    with contextlib.suppress(SessionError):
        session = named(text, folder)
        return session if session.meta_path.is_file() else None
    return None


def black_boxes_folder() -> Path:
    """Return the folder of all black boxes, in the user's state folder."""
    return platformdirs.user_state_path("gconsole") / "black-box"


def list_black_boxes(folder: Path, *, flushed: bool = False) -> list[BlackBoxFile]:
    """Return the readable black boxes that have records, oldest end first. Raises OSError.

    `flushed`: running consoles first write what they have gathered, which takes about a second.
    """
    if flushed:
        flush([session for session in all_sessions(folder) if session.is_being_written()], _FLUSH_S)
    boxes = (_read(session) for session in all_sessions(folder))
    return sorted((box for box in boxes if box is not None), key=lambda box: box.ended)


def delete_stale(folder: Path, max_bytes: int, now_ns: int) -> None:
    """Delete black boxes of consoles that ended: the oldest beyond `max_bytes`, `MAX_ENDED` and `ENDED_S`.

    Raises OSError if the folder cannot be read.
    """
    if not folder.is_dir():
        return
    ended = []
    for session in all_sessions(folder):
        with contextlib.suppress(OSError):
            if not session.is_being_written():
                ended.append(RetainedSession(session, session.size(), _last_write(session)))
    ended.sort(key=lambda retained: retained.ended or 0)
    excess = ended[: max(0, len(ended) - MAX_ENDED)]
    beyond = sessions_to_delete(ended[len(excess) :], Limits(max_bytes, ENDED_S), now_ns)
    for retained in (*excess, *(deletion.retained for deletion in beyond)):
        with contextlib.suppress(OSError, SessionError):  # another console deletes it, too
            delete(retained.session)


def choose(boxes: Sequence[BlackBoxFile], target: str, key: str) -> list[BlackBoxFile]:
    """Return the black boxes of a target, as typed and as `target_key`; with "", of the only target there is.

    A target may also be the name of a cluster or of a black box. Raises SessionError.
    """
    if not target:
        running = {box.meta.target for box in boxes if box.is_running}
        keys = running or {box.meta.target for box in boxes}
        if len(keys) > 1:
            names = ", ".join(sorted({_target_text(box) for box in boxes if box.meta.target in keys}))
            raise SessionError(f"several targets have black boxes; name one as TARGET: {names}")
        return [box for box in boxes if box.meta.target in keys] or _refuse("", boxes)
    chosen = [box for box in boxes if box.meta.target == key]
    chosen = chosen or [box for box in boxes if target in (box.meta.cluster, box.session.name)]
    return chosen or _refuse(f" of {target}", boxes)


def keep_last(boxes: Sequence[BlackBoxFile], last_s: float, name: str, folder: Path) -> KeptRecords:
    """Write the last seconds in these black boxes, of one target, as a session. Slow; raises SessionError, OSError.

    They end with the newest record. Where a console was started anew meanwhile, both parts are kept, in order.
    """
    session = named(name, folder)
    if session.path.exists():
        raise SessionError.name_taken(name)
    wanted_ns = int(last_s * 1e9)
    with _copies(boxes, wanted_ns) as copies:
        meta = Meta(cluster=copies[-1].box.meta.cluster, created=copies[0].began, parts=_runs(copies))
        meta = write_frames(session, (chunk for copy in copies for chunk in copy.chunks()), meta)
    return KeptRecords(
        session.path, copies[0].began, copies[-1].box.ended, meta.records, session.size(), wanted_ns,
        copies[0].is_limited, sum(copy.damaged_bytes for copy in copies), sum(copy.lost for copy in copies),
    )  # fmt: skip


@contextlib.contextmanager
def open_past(boxes: Sequence[BlackBoxFile], last_s: float, before: int) -> Iterator[Past]:
    """Open the last seconds in these black boxes, up to the snapshot of the instant `before`: the past of a recording.

    Raises SessionError, OSError.
    """
    with _copies(boxes, int(last_s * 1e9), before) as copies:
        yield _runs(copies), (chunk for copy in copies for chunk in copy.chunks())


@contextlib.contextmanager
def _copies(boxes: Sequence[BlackBoxFile], wanted_ns: int, before: int | None = None) -> Iterator[list[_Copy]]:
    with contextlib.ExitStack() as files:
        copies = [_Copy(box, part_from, files, before) for box, part_from in _parts(boxes, wanted_ns)]
        copies = [copy for copy in copies if copy.frames]
        if not copies:
            raise SessionError("the black box has no records yet; try again in a few seconds")
        yield copies


def _runs(copies: Sequence[_Copy]) -> tuple[RecorderRun, ...]:
    return (*(copy.run() for copy in copies[:-1]), replace(copies[-1].run(), how="stopped"))


def _parts(boxes: Sequence[BlackBoxFile], wanted_ns: int) -> list[tuple[BlackBoxFile, int]]:
    """The black boxes to copy, oldest first, and the instant from which on; they do not overlap.

    Of consoles that ran at the same time, that one is used which covers the longest time.
    """
    end = max(box.ended for box in boxes)
    begin = covered_from = end - wanted_ns
    is_first, parts = True, list[tuple[BlackBoxFile, int]]()
    for box in sorted(boxes, key=lambda box: (box.is_running, box.ended if not box.is_running else -box.began))[::-1]:
        if is_first or (box.ended <= covered_from and box.ended > begin):
            parts.append((box, begin))
            is_first, covered_from = False, box.began
    return parts[::-1]


class _Copy:
    """The frames of one black box from an instant on; its files stay open, so that they can be read when deleted."""

    def __init__(self, box: BlackBoxFile, from_ns: int, files: contextlib.ExitStack, before: int | None = None) -> None:
        """`before`: the snapshot of this instant, and what follows it, is left out."""
        self.box, self.damaged_bytes, self.lost = box, 0, 0
        opened: list[tuple[BinaryIO, Frame | Damage]] = []
        numbers = []
        for path in box.session.segments():
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue  # its console deleted it meanwhile
            file = files.enter_context(os.fdopen(fd, "rb"))
            numbers.append(path.name)
            opened += [(file, item) for item in zstd_frames.scan_file(file, path)]
        snapshots = [(n, item.label.snapshot) for n, (_, item) in enumerate(opened)
                     if isinstance(item, Frame) and item.label.snapshot]  # fmt: skip
        end = next((n for n, instant in snapshots if instant == before), len(opened))
        instants = [instant for n, instant in snapshots if n < end]
        earlier = [instant for instant in instants if instant <= from_ns]
        self.began = max(earlier, default=min(instants, default=box.began))
        first = next((n for n, instant in snapshots if instant == self.began), 0)
        self.frames = opened[first:end]
        self.is_limited = not earlier and bool(numbers) and not numbers[0].startswith("000001.")

    def run(self) -> RecorderRun:
        """Return the console's run, as far as it is copied."""
        run = self.box.meta.parts[-1] if self.box.meta.parts else RecorderRun(began=self.began)
        return replace(run, began=self.began, ended=self.box.ended, how="crashed" if run.ended is None else "stopped")

    def chunks(self) -> Iterator[tuple[bytes, RecordCounts]]:
        """Yield the frames' bytes, several at a time, with their counts; damaged frames are counted and left out."""
        data, held = bytearray(), list[Frame]()
        snapshot, is_complete = self.began, True
        for file, frame in self.frames:
            if isinstance(frame, Damage):
                is_complete = False
                if frame.what != "torn":  # the end of a ring that is written, or whose console crashed
                    self.damaged_bytes += frame.bytes
                continue
            if frame.label.snapshot not in (0, snapshot):
                if is_complete and not frame.label.lost:
                    continue  # it repeats what the frames before say
                snapshot, is_complete = frame.label.snapshot, True
                self.lost += frame.label.lost
            file.seek(frame.offset)
            packed = file.read(frame.end - frame.offset)
            if not zstd_frames.is_intact(packed[frame.start - frame.offset :], frame.label):
                self.damaged_bytes, is_complete = self.damaged_bytes + len(packed), False
                continue
            data += packed
            held.append(frame)
            if len(data) >= _COPY_BYTES:
                yield bytes(data), _counts(held)
                data, held = bytearray(), []
        if held:
            yield bytes(data), _counts(held)


def _counts(frames: Sequence[Frame]) -> RecordCounts:
    kinds: dict[str, int] = {}
    for frame in frames:
        for kind, number in frame.label.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + number
    labels = [frame.label for frame in frames]
    return RecordCounts(kinds, {}, min(label.first_rx for label in labels), max(label.last_rx for label in labels))


def _read(session: Session) -> BlackBoxFile | None:
    """A black box with the counts of the segments that it has now; None without records, or if it is unreadable."""
    try:
        meta, is_running, total = session.read(), session.is_being_written(), 0
        frames: list[Frame] = []
        for path in session.segments():
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
                frames += [item for item in zstd_frames.scan(path) if isinstance(item, Frame)]
    except (OSError, SessionError):
        return None
    if not frames:
        return None
    instants = [frame.label.snapshot for frame in frames if frame.label.snapshot]
    ended = max(frame.label.last_rx for frame in frames)
    counts = _counts([frame for frame in frames if frame.label.snapshot in (0, min(instants, default=0))])
    began = min(instants, default=meta.created)
    meta = replace(
        meta, records=sum(counts.kinds.values()), counts=counts.kinds, first_rx=counts.first_rx,
        last_rx=counts.last_rx, parts=tuple(replace(part, began=max(part.began, began)) for part in meta.parts),
    )  # fmt: skip
    return BlackBoxFile(session, meta, is_running, total, meta.records, min(began, ended), ended)


def _last_write(session: Session) -> int:
    """When a black box was written last, ns."""
    return max((path.stat().st_mtime_ns for path in (session.path, *session.segments())), default=0)


def _target_text(box: BlackBoxFile) -> str:
    return printable(box.meta.target or box.session.name)


def _refuse(of: str, boxes: Iterable[BlackBoxFile]) -> list[BlackBoxFile]:
    others = ", ".join(sorted({_target_text(box) for box in boxes}))
    text = f"no black box{printable(of)}: none of your consoles has watched it within a week"
    text += " with [console] black_box = true; batch and record keep one if they run for a minute or longer"
    raise SessionError(f"{text}; there is one of: {others}" if others else text)
