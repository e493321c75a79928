"""How this program writes files: 0600, whole or not at all, never through a link that somebody else made."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TextIO

#: As many links as Linux follows.
_MOST_LINKS: Final = 40


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path` (or of what it links to, where that link is ours) in one step. Raises OSError.

    What is no file (a pipe, /dev/stdout) is written to: replacing it would take it away from everybody.
    """
    with being_written(path) as file:
        file.write(data)


@contextlib.contextmanager
def being_written(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` once all is written, and never where that failed.

    As `write_atomically`, for what is too much to hold at once. Raises OSError.
    """
    if path.exists() and not path.is_file():
        _require_ours(path, path.lstat())
        with path.open("wb") as stream:
            yield stream
        return
    path = _followed(path)
    fd, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, whole or not at all. Raises OSError: FileExistsError where it is."""
    with path.open("xb"):  # the name is ours from here on; nobody else's file is ever replaced
        pass
    try:
        write_atomically(path, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_streamed(path: Path, write: Callable[[BinaryIO], None], *, replace: bool) -> None:
    """Let `write` fill a file that is there only once it is whole. Raises what `write` raises, and OSError:
    FileExistsError where it is there already and is not to be replaced."""
    if not replace:
        with path.open("xb"):  # the name is ours from here on
            pass
    try:
        with being_written(path) as file:
            write(file)
    except BaseException:
        if not replace:
            path.unlink(missing_ok=True)
        raise


def new_text(path: Path) -> TextIO:
    """A text file that was not there; line ends are written as they come, and so is what is no text, escaped.

    Raises OSError: FileExistsError where it is there, also as a link.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="")


def open_new(path: Path) -> BinaryIO:
    """An empty file of ours to append to; an existing one is emptied, a link refused. Raises OSError."""
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
    """Make a folder that is for nobody else, and so are those above it that are missing, whatever the umask is.

    One that is there stays as it is. Raises OSError.
    """
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _followed(path: Path) -> Path:
    """Where `path` leads, link after link. Raises OSError, also for one that somebody else may have put there."""
    for _ in range(_MOST_LINKS):
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
    """Raises PermissionError for what lies in a folder where everybody may put things and is not our own there: a link
    to one of our files, a second name of it, a file or a pipe that its owner reads.

    Linux refuses the same where fs.protected_symlinks, _hardlinks, _regular and _fifos are set; not every machine has
    them.
    """
    folder = path.parent.stat()
    if not folder.st_mode & stat.S_IWOTH:
        return
    has_other_names = stat.S_ISREG(here.st_mode) and here.st_nlink > 1
    if here.st_uid not in (os.geteuid(), folder.st_uid) or has_other_names:
        text = f"somebody else may have put it there ({path.parent} is open to everybody): write to another folder"
        raise PermissionError(errno.EPERM, text, str(path))
