"""Files of mode 0600, written completely or not at all, and never through a link of another user."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TextIO

#: Links followed before ELOOP, as Linux does.
_MAX_LINKS: Final = 40


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path`, or of the target of an own link, in one step. Raises OSError.

    Pipes and devices (/dev/stdout) are opened and written to instead.
    """
    with open_replacement(path) as file:
        file.write(data)


@contextlib.contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` when the block ends without an error; see `write_atomically`."""
    if path.exists() and not path.is_file():
        _require_ours(path, path.lstat())
        with path.open("wb") as stream:
            yield stream
        return
    with _draft_of(_followed(path)) as file:
        yield file


@contextlib.contextmanager
def _draft_of(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`, which replaces it when the block ends without an error."""
    fd, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_readable(path: Path, data: bytes) -> None:
    """As `write_atomically`, with mode 0644: a file that another user's program reads. Raises OSError."""
    with open_replacement(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), 0o644)
        file.write(data)


def write_new(path: Path, data: bytes) -> None:
    """Create a file, completely or not at all. Raises OSError: FileExistsError if it exists."""
    write_streamed(path, lambda file: file.write(data), replace=False)


def write_streamed(path: Path, write: Callable[[BinaryIO], object], *, replace: bool) -> None:
    """Call `write` with a file that appears at `path` when it is complete. Raises what `write` raises, and OSError:
    FileExistsError if `path` exists and `replace` is false."""
    if not replace:
        with path.open("xb"):  # reserves the name, so that no other file is ever replaced
            pass
    try:
        with open_replacement(path) as file:
            write(file)
    except BaseException:
        if not replace:
            path.unlink(missing_ok=True)
        raise


def create_text(path: Path) -> TextIO:
    """Create a text file; line ends are kept, lone surrogates are escaped.

    Raises OSError: FileExistsError if the name exists, also as a link.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="")


def open_truncated(path: Path) -> BinaryIO:
    """Open a file for writing, truncated; a link is refused. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    file = os.fdopen(fd, "wb", buffering=1 << 16)
    try:
        here = os.fstat(fd)
        _require_ours(path, here)
        if stat.S_ISREG(here.st_mode):
            os.fchmod(fd, 0o600)
            os.truncate(fd, 0)
    except BaseException:
        file.close()
        raise
    return file


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700, whatever the umask is. An existing one is left as it is.

    Raises OSError.
    """
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def replace_same_mode(path: Path, data: bytes) -> None:
    """Replace a file's content in one step; mode and owner stay, and a link still points to it. Raises OSError."""
    target = Path(os.path.realpath(path))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EPERM, "not writable for you", str(path))
    before = target.stat()
    with _draft_of(target) as file:
        with contextlib.suppress(PermissionError):  # only root may give a file away; the mode still holds
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), before.st_mode & 0o7777)
        file.write(data)


def _followed(path: Path) -> Path:
    """The final target of `path`. Raises OSError, also for a link that another user may have created."""
    for _ in range(_MAX_LINKS):
        try:
            here = path.lstat()
        except FileNotFoundError:
            return path
        _require_ours(path, here)
        if not stat.S_ISLNK(here.st_mode):
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _require_ours(path: Path, here: os.stat_result) -> None:
    """Raises PermissionError for another user's file, pipe, link or hard link in a folder that everybody may write to.

    Linux refuses the same if fs.protected_symlinks, _hardlinks, _regular and _fifos are set, which not all machines do.
    """
    folder = path.parent.stat()
    if not folder.st_mode & stat.S_IWOTH:
        return
    has_other_names = stat.S_ISREG(here.st_mode) and here.st_nlink > 1
    if here.st_uid not in (os.geteuid(), folder.st_uid) or has_other_names:
        text = f"another user may have created it ({path.parent} is writable for everybody); write to another folder"
        raise PermissionError(errno.EPERM, text, str(path))
