"""Layout of a session on disk, and its metadata, which is read without its records.

    SESSIONS/NAME/            0700; SESSIONS is `[sessions] folder`, else the user's data folder
      session.json            `Meta`, 0600, replaced atomically; its counts cover the `sealed` segments
      lock                    flock held by the writer: a session in state `recording` without it has crashed
      segments/000001.ndjson.zst
                              zstd frames of NDJSON (`records.encode`), a record per line, in order of arrival; before
                              each a skippable frame with its label (`zstd_frames`). Append-only.
      parquet/KIND/hour=YYYY-MM-DDTHH/part-*.parquet
                              written by compaction

`zstd -dc segments/*.zst` gives plain NDJSON.

No byte is believed unchecked: frames carry a CRC, `Meta.seals` the size and digest of each sealed segment, the manifest
of compaction the digest of each Parquet file, and every JSON file a digest of itself (`write_checked`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

import msgspec
import platformdirs

from ... import GconsoleError, __version__
from ...core.control import Selection
from ...records import UNREADABLE
from ...text.atomic_files import write_atomically

SCHEMA: Final = "gconsole.session/1"
#: Schemas this version reads: this family, up to this number.
_FAMILY, _NEWEST = "gconsole.session", 1
NAME_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
SEGMENT_SUFFIX: Final = ".ndjson.zst"

_SEGMENT: Final = re.compile(r"\d{1,9}" + re.escape(SEGMENT_SUFFIX), re.ASCII)

State = Literal["recording", "closed", "torn"]


class SessionError(GconsoleError):
    """A session cannot be used; the text is one line: which session, what is wrong, what to try."""

    @classmethod
    def name_taken(cls, name: str) -> Self:
        """Return the error for a new session of an existing name."""
        return cls(f"session {name} exists already; try another name, or: gconsole sessions delete {name}")

    @classmethod
    def locked(cls, name: str) -> Self:
        """Return the error for a session that a recorder writes to."""
        return cls(f"{name}: it is being written to; stop its recording first")


class NewerSchema(SessionError):
    """A session of a newer gconsole; never modified."""


class RecorderRun(msgspec.Struct, frozen=True, kw_only=True):
    """One uninterrupted run of a recorder."""

    began: int  # console CLOCK_REALTIME, ns
    ended: int | None = None
    how: Literal["recording", "stopped", "crashed"] = "recording"
    console: str = ""  # id of the console that wrote it
    was: str = ""  # its own id, if it adopted that of a crashed console
    version: str = ""  # of gconsole


class AgentProgress(msgspec.Struct, frozen=True):
    """The last recorded record of one agent."""

    node: str
    seq: int
    rx: int  # its arrival, console CLOCK_REALTIME, ns


class SegmentSeal(msgspec.Struct, frozen=True, array_like=True):
    """What a sealed segment has to be; a missing, shortened or exchanged one would lack records silently."""

    number: int
    bytes: int
    first_crc: int  # CRC-32 of its first frame: tells it from another segment without reading it
    digest: str  # SHA-256 of the file


class Meta(msgspec.Struct, kw_only=True):
    """Metadata of a session (session.json). `records`, `counts` and `agents` cover the sealed segments."""

    schema: str = SCHEMA
    checksum: str = ""  # of the file (`write_checked`)
    name: str = ""
    id: str = ""
    cluster: str = ""
    state: State = "recording"
    created: int = 0  # console CLOCK_REALTIME, ns
    closed: int | None = None
    selection: Selection = msgspec.field(default_factory=Selection)
    parts: tuple[RecorderRun, ...] = ()
    sealed: int = 0  # number of the last sealed segment
    seals: tuple[SegmentSeal, ...] = ()  # of sealed segments; none of those that versions before wrote
    records: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # kind → records
    agents: dict[str, AgentProgress] = msgspec.field(default_factory=dict)  # last agent per node, and consoles
    first_rx: int | None = None
    last_rx: int | None = None
    merged: tuple[str, ...] = ()  # names of the sessions it was merged from
    target: str = ""  # of a black box: the file or nodes that its console watches (`config.target_key`)

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last instant that it covers, ns; None without records. The initial state arrived before."""
        if self.first_rx is None or self.last_rx is None:
            return None
        began = self.parts[0].began if self.parts else 0
        return (began if self.first_rx <= began <= self.last_rx else self.first_rx), self.last_rx

    @property
    def is_own(self) -> bool:
        """Whether this version wrote all its records, so that their lines are as this version encodes them."""
        return bool(self.parts) and all(part.version == __version__ for part in self.parts)

    def console_ids(self) -> set[str]:
        """Return the ids under which consoles wrote records of their own."""
        return {name for part in self.parts for name in (part.console, part.was)}


class Session(msgspec.Struct, frozen=True):
    """The folder of one session."""

    path: Path

    @property
    def name(self) -> str:
        """The session's name."""
        return self.path.name

    @property
    def meta_path(self) -> Path:
        """Path of session.json."""
        return self.path / "session.json"

    @property
    def segments_folder(self) -> Path:
        """Folder of the segments."""
        return self.path / "segments"

    @property
    def parquet_folder(self) -> Path:
        """Folder of the compacted tables."""
        return self.path / "parquet"

    def segments(self) -> list[Path]:
        """Return the paths of its segments, oldest first."""
        paths = self.segments_folder.glob(f"*{SEGMENT_SUFFIX}")
        return sorted(path for path in paths if _SEGMENT.fullmatch(path.name) and is_file(path))

    def segment(self, number: int) -> Path:
        """Return the path of the segment of that number."""
        return self.segments_folder / f"{number:06d}{SEGMENT_SUFFIX}"

    def size(self) -> int:
        """Return the bytes on disk of all its files."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def read(self) -> Meta:
        """Return its metadata. Raises SessionError, NewerSchema if a newer version wrote it."""
        try:
            data = self.meta_path.read_bytes()
        except OSError as error:
            raise SessionError(f"{self.path}: cannot read session.json ({error.strerror})") from error
        check_schema(self.path, data)
        try:
            return decode_checked(data, Meta)
        except UNREADABLE as error:
            text = f"{self.meta_path}: damaged: {error}; try: gconsole sessions recover {self.name}"
            raise SessionError(text) from error

    def write(self, meta: Meta) -> None:
        """Replace its metadata atomically. Raises OSError."""
        write_checked(self.meta_path, meta)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock. Raises SessionError if another writer holds it, OSError."""
        fd = self.take_lock()
        try:
            yield
        finally:
            os.close(fd)

    def take_lock(self) -> int:
        """Return a descriptor that holds the lock until it is closed or this process ends."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise SessionError.locked(self.name) from error
        except OSError:
            os.close(fd)
            raise
        return fd

    def is_being_written(self) -> bool:
        """Whether a recorder in this or another process holds the lock."""
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without locks
        finally:
            os.close(fd)
        return False


_Document = TypeVar("_Document", bound=msgspec.Struct)
_NO_DIGEST: Final = b"0" * 64
_CHECKSUM: Final = re.compile(rb'"checksum": *"([0-9a-f]{64})"')


def write_checked(path: Path, document: msgspec.Struct) -> None:
    """Replace a JSON file atomically, with the SHA-256 of itself in the field `checksum`. Raises OSError."""
    blank = msgspec.structs.replace(document, checksum=_NO_DIGEST.decode())
    data = msgspec.json.format(msgspec.json.encode(blank), indent=1) + b"\n"
    write_atomically(path, data.replace(_NO_DIGEST, _checksum(data, type(document)), 1))


def decode_checked(data: bytes, kind: type[_Document]) -> _Document:
    """Return the document that `write_checked` wrote. Raises one of `UNREADABLE`, also for a wrong checksum.

    Versions before wrote none: then a field that this version does not know may be a damaged `checksum`.
    """
    document = msgspec.json.decode(data, type=kind)
    match = _CHECKSUM.search(data)
    if match is None:
        fields = {field.encode_name for field in msgspec.structs.fields(kind)} - {"checksum"}
        if unknown := set(msgspec.json.decode(data, type=dict[str, msgspec.Raw])) - fields:
            raise msgspec.ValidationError(f"no checksum, and the unknown field {min(unknown)[:60]!r}")
    elif _checksum(data[: match.start(1)] + _NO_DIGEST + data[match.end(1) :], kind) != match[1]:
        raise msgspec.ValidationError("the checksum does not match the content")
    return document


def _checksum(data: bytes, kind: type[msgspec.Struct]) -> bytes:
    """The kind is part of it: one file must not be taken for another."""
    return hashlib.sha256(kind.__name__.encode() + data).hexdigest().encode()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, read once per process unless its size or time of change differ. Raises OSError."""
    here = path.stat()
    return _digest(path, here.st_ino, here.st_size, here.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _digest(path: Path, *_: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def segment_number(path: Path) -> int:
    """Return the number of a segment file."""
    return int(path.name.partition(".")[0])


def is_file(path: Path) -> bool:
    """Whether it is a regular file: a link may lead out of the session, a pipe may block the reader."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False  # the segments of a black box are deleted while it is read


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a session's folder, which may come from an untrusted source; it need not exist.

    Raises SessionError if a link leads elsewhere, or it is not a regular file.
    """
    path = folder / name
    if os.path.realpath(path) != str(Path(os.path.realpath(folder.parent)) / folder.name / name):
        raise SessionError(f"{path}: symbolic link; a session contains none")
    if path.exists() and not is_file(path):
        raise SessionError(f"{path}: not a regular file")
    return path


class _Schema(msgspec.Struct):
    schema: str = ""


def check_schema(path: Path, data: bytes) -> None:
    """Raises NewerSchema for the JSON of a newer version, SessionError for JSON that is not of a session."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except UNREADABLE:
        return  # whoever parses it next reports the error
    family, _, number = schema.partition("/")
    if family != _FAMILY or not number.isdecimal():
        raise SessionError(f"{path}: session.json has schema {schema[:60]!r}, expected {SCHEMA}")
    if int(number) > _NEWEST:
        raise NewerSchema(f"{path}: written by a newer gconsole ({schema}; this one reads {SCHEMA}): update gconsole")


def sessions_folder(folder: str | None = None) -> Path:
    """Return the folder of all sessions: `[sessions] folder`, else its environment variable, else the data folder."""
    folder = folder or os.environ.get("GCONSOLE_SESSIONS_FOLDER")
    return Path(folder) if folder else platformdirs.user_data_path("gconsole") / "sessions"


def named(name: str, folder: Path) -> Session:
    """Return the session of that name, which need not exist. Raises SessionError for an invalid name."""
    if not re.fullmatch(NAME_PATTERN, name):
        rule = "use at most 64 letters, digits, _ . -, and begin with neither . nor -"
        raise SessionError(f"{name[:80]!r} is not a valid session name: {rule}")
    return Session(folder / name)


def find(text: str, folder: Path) -> Session:
    """Return the session of that name or path. Raises SessionError if it does not exist."""
    as_path = Path(text)
    if ("/" in text or not re.fullmatch(NAME_PATTERN, text)) and (as_path / "session.json").exists():
        return Session(as_path.resolve())
    if "/" in text:
        if as_path.is_file():
            raise _is_a_file(text)
        if not as_path.exists():
            raise SessionError(f"{text}: no such file or folder")
        raise SessionError(f"{text}: not a session folder: session.json not found")
    session = named(text, folder)
    if not session.path.is_dir():
        if (as_path / "session.json").exists():
            return Session(as_path.resolve())
        if as_path.is_file():
            raise _is_a_file(text)
        raise SessionError(f"no session {text} in {folder}; list them: gconsole sessions list")
    return session


def _is_a_file(text: str) -> SessionError:
    return SessionError(f"{text}: a file, not a session; import it first: gconsole sessions import {text}")


def all_sessions(folder: Path) -> list[Session]:
    """Return every session of a folder, by name; also those whose session.json cannot be read."""
    if not folder.is_dir():
        return []
    return [Session(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".") and _is_session(path)]


def _is_session(path: Path) -> bool:
    """Whether a folder has the layout of a session, or is unreadable."""
    try:
        return path.is_dir() and ((path / "segments").is_dir() or (path / "session.json").exists())
    except PermissionError:
        return True


def now() -> int:
    """Return console CLOCK_REALTIME, ns."""
    return time.time_ns()


def sync_folder(path: Path) -> None:
    """Sync a folder to disk, so that created and removed names outlive a power cut. Raises OSError."""
    sync_file(path, os.O_DIRECTORY)


def sync_file(path: Path, flags: int = 0) -> None:
    """Sync a closed file to disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
