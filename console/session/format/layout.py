"""Where a session lies on disk, and what is known of it without reading its records.

    SESSIONS/NAME/            0700; SESSIONS is `[sessions] folder`, else the user's data folder
      session.json            `Meta`, 0600, replaced atomically; what it counts holds for `sealed` segments
      lock                    held (flock) by whoever writes: a session that says `recording` and is not locked, crashed
      segments/000001.ndjson.zst
                              zstd frames, each of whole lines of JSON, a record each (`records.encode`), in the order
                              of arrival; before each a skippable frame that says what is in it (`frames`). Only
                              appended to.
      parquet/KIND/hour=YYYY-MM-DDTHH/part-*.parquet
                              what compaction made of them

`zstd -dc segments/*.zst` gives plain NDJSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import platformdirs

from ...core.control import Selection
from ...records import UNREADABLE
from ...text.atomic_files import write_atomically

SCHEMA: Final = "gconsole.session/1"
#: What this version can read: names before the slash must match, numbers after it must not be above.
_FAMILY, _NEWEST = "gconsole.session", 1
NAME_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
SEGMENT_SUFFIX: Final = ".ndjson.zst"

_SEGMENT: Final = re.compile(r"\d{1,9}" + re.escape(SEGMENT_SUFFIX), re.ASCII)

State = Literal["recording", "closed", "torn"]


class SessionError(Exception):
    """Something is wrong with a session; the text is one line that says which, what, and what to try."""


class NewerSchema(SessionError):
    """A session that a newer gconsole wrote: it is not touched."""


class RecorderRun(msgspec.Struct, frozen=True, kw_only=True):
    """One uninterrupted run of a recorder."""

    began: int  # console CLOCK_REALTIME, ns
    ended: int | None = None
    how: Literal["recording", "stopped", "crashed"] = "recording"
    console: str = ""  # id of the console that wrote it
    was: str = ""  # its id until then, where it took that of the console that had crashed
    version: str = ""  # of gconsole


class AgentProgress(msgspec.Struct, frozen=True):
    """How far one agent has been recorded."""

    node: str
    seq: int  # of its last record
    rx: int  # when that came, console CLOCK_REALTIME, ns


class Meta(msgspec.Struct, kw_only=True):
    """What is known of a session without reading it. What `counts` and `agents` say holds for the sealed segments."""

    schema: str = SCHEMA
    name: str = ""
    id: str = ""
    cluster: str = ""
    state: State = "recording"
    created: int = 0  # console CLOCK_REALTIME, ns
    closed: int | None = None
    selection: Selection = msgspec.field(default_factory=Selection)
    parts: tuple[RecorderRun, ...] = ()
    sealed: int = 0  # the last segment that nobody writes to any more
    records: int = 0  # in the sealed segments
    counts: dict[str, int] = msgspec.field(default_factory=dict)  # kind → records
    agents: dict[str, AgentProgress] = msgspec.field(default_factory=dict)  # the last of each node, and the consoles
    first_rx: int | None = None
    last_rx: int | None = None
    merged: tuple[str, ...] = ()  # names of the sessions it was merged from


@dataclass(frozen=True)
class Session:
    """The folder of one session."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def meta_path(self) -> Path:
        return self.path / "session.json"

    @property
    def segments_folder(self) -> Path:
        return self.path / "segments"

    @property
    def parquet_folder(self) -> Path:
        return self.path / "parquet"

    def segments(self) -> list[Path]:
        """Its segments, oldest first."""
        found = self.segments_folder.glob(f"*{SEGMENT_SUFFIX}")
        return sorted(path for path in found if _SEGMENT.fullmatch(path.name) and is_file(path))

    def segment(self, number: int) -> Path:
        return self.segments_folder / f"{number:06d}{SEGMENT_SUFFIX}"

    def size(self) -> int:
        """Bytes on disk, of everything in it."""
        return sum(found.stat().st_size for found in self.path.rglob("*") if found.is_file())

    def read(self) -> Meta:
        """What is known of it. Raises SessionError, NewerSchema for what a newer version wrote."""
        try:
            data = self.meta_path.read_bytes()
        except OSError as error:
            raise SessionError(f"{self.path}: no session ({error.strerror})") from error
        check_schema(self.path, data)
        try:
            return msgspec.json.decode(data, type=Meta)
        except UNREADABLE as error:
            text = f"{self.meta_path}: damaged: {error}; try: gconsole sessions recover {self.name}"
            raise SessionError(text) from error

    def write(self, meta: Meta) -> None:
        """Replace what is known of it, in one step. Raises OSError."""
        write_atomically(self.meta_path, msgspec.json.format(msgspec.json.encode(meta), indent=1) + b"\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else writes here meanwhile. Raises SessionError where somebody does, OSError where none can."""
        fd = self.take_lock()
        try:
            yield
        finally:
            os.close(fd)

    def take_lock(self) -> int:
        """A descriptor that holds the lock until it is closed, also by the end of this process."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise SessionError(f"{self.name}: it is being written to; stop its recording first") from error
        except OSError:
            os.close(fd)
            raise
        return fd

    def is_being_written(self) -> bool:
        """Whether a recorder, here or in another process, holds it."""
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


def is_file(path: Path) -> bool:
    """Whether it is a file, and no link to one, which leads out of a session, nor a pipe, into which nobody writes."""
    return stat.S_ISREG(path.lstat().st_mode)


def inside(folder: Path, name: str) -> Path:
    """The file of that name in a folder of a session, which may have been sent: no link leads out of it on the way.

    Raises SessionError where one does, or where something else than a file is there. There need not be any.
    """
    path = folder / name
    if os.path.realpath(path) != str(Path(os.path.realpath(folder.parent)) / folder.name / name):
        raise SessionError(f"{path}: a link leads there, and a session has none")
    if path.exists() and not is_file(path):
        raise SessionError(f"{path}: it is a folder or a pipe, and should be a file")
    return path


class _Schema(msgspec.Struct):
    schema: str = ""


def check_schema(path: Path, data: bytes) -> None:
    """Raises NewerSchema, or SessionError, where JSON does not begin as that of a session that this version reads."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
    except UNREADABLE:
        return  # what is wrong with it is said where it is read
    family, _, number = schema.partition("/")
    if family != _FAMILY or not number.isdecimal():
        raise SessionError(f"{path}: session.json is not of a session, but of {schema[:60]!r}")
    if int(number) > _NEWEST:
        raise NewerSchema(f"{path}: written by a newer gconsole ({schema}; this one reads {SCHEMA}): update gconsole")


def sessions_folder(folder: str | None = None) -> Path:
    """Where sessions are kept: what `[sessions] folder` says, else its environment variable, else the data folder."""
    folder = folder or os.environ.get("GCONSOLE_SESSIONS_FOLDER")
    return Path(folder) if folder else platformdirs.user_data_path("gconsole") / "sessions"


def named(name: str, folder: Path) -> Session:
    """The session of that name, there or not. Raises SessionError for what cannot be a name."""
    if not re.fullmatch(NAME_PATTERN, name):
        text = "letters, digits, _ . - and at most 64 of them, not beginning with . or -"
        raise SessionError(f"{name[:80]!r} is no name for a session: {text}")
    return Session(folder / name)


def find(text: str, folder: Path) -> Session:
    """The session that `text` means: a name, or a path to its folder. Raises SessionError where there is none."""
    as_path = Path(text)
    if ("/" in text or not re.fullmatch(NAME_PATTERN, text)) and (as_path / "session.json").exists():
        return Session(as_path.resolve())
    if "/" in text:
        raise SessionError(f"{text}: no folder of a session: there is no session.json in it")
    session = named(text, folder)
    if not session.path.is_dir():
        if (as_path / "session.json").exists():
            return Session(as_path.resolve())
        raise SessionError(f"{text}: no such session in {folder}; there are: gconsole sessions list")
    return session


def all_sessions(folder: Path) -> list[Session]:
    """Every session of a folder, by name; also those whose session.json cannot be read."""
    if not folder.is_dir():
        return []
    return [Session(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".") and _is_one(path)]


def _is_one(path: Path) -> bool:
    """A folder that looks like a session; also one that nobody may look into."""
    try:
        return path.is_dir() and ((path / "segments").is_dir() or (path / "session.json").exists())
    except PermissionError:
        return True


def now() -> int:
    """Console CLOCK_REALTIME, ns."""
    return time.time_ns()


def sync_folder(path: Path) -> None:
    """Make names that were made or removed in a folder outlive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
