"""Unpacks a tar archive that a client sent, so that nothing in it leaves the new folder.

`tarfile` parses; what it would follow, create or hold in memory beyond files, folders and links is refused here:
extraction filters (PEP 706) came after some of the Python releases that gconsole supports.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Final

from ..text.format import size
from .code_folder import LEFT_OUT, MAX_BYTES, MAX_FILES, BadFolder

#: Entries of an archive: files, folders and links, and those that are left out.
MAX_ENTRIES: Final = 8 * MAX_FILES
#: Bytes that the headers of one entry may take; `tarfile` reads them into memory. Long names and their charsets fit.
MAX_HEADERS: Final = 1 << 18
#: Bytes of an unpacked archive: files, each with a header and padding.
MAX_UNPACKED: Final = MAX_BYTES + MAX_ENTRIES * 2048
#: Limits of Linux.
_MAX_PATH, _MAX_NAME = 4096, 255
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
#: The end of an archive, of two blocks.
_END: Final = bytes(2 * tarfile.BLOCKSIZE)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, plain or compressed by gzip, into a folder that does not exist yet.

    Like `read_folder` it leaves out `.git` and `__pycache__`. Raises BadFolder, OSError; the folder is then incomplete.
    """
    with archive.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    plain = archive.with_name(archive.name + ".tar") if is_compressed else archive
    folder.mkdir(mode=0o700)
    try:
        if is_compressed:
            _decompress(archive, plain)
        with plain.open("rb") as file:
            _extract(_BoundedFile(file), folder)
    except (tarfile.TarError, RecursionError, UnicodeError, ValueError, EOFError) as error:
        if isinstance(error, BadFolder):
            raise
        raise BadFolder(f"not a tar archive: {error}; send the output of: tar -C DIR -cz .") from error
    finally:
        if is_compressed:
            plain.unlink(missing_ok=True)


def _decompress(archive: Path, target: Path) -> None:
    """Write what a gzip file contains. Raises BadFolder if it is damaged or too large."""
    written = 0
    with archive.open("rb") as file, target.open("xb") as output:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        data = file.read(_CHUNK)
        while data:
            try:
                part = stream.decompress(data, _CHUNK)
            except zlib.error as error:
                raise BadFolder(f"damaged gzip data: {error}") from error
            written += output.write(part)
            if written > MAX_UNPACKED:
                raise _too_large()
            data = stream.unconsumed_tail or (b"" if stream.eof else file.read(_CHUNK))
        if not stream.eof:
            raise BadFolder("the gzip data ends early; send it again")


class _BoundedFile:
    """A file whose reads count against `budget`, unless that is None. Raises BadFolder beyond it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.budget: int | None = None
        self.seek, self.tell = file.seek, file.tell

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes."""
        if self.budget is not None:
            self.budget -= count
            if count < 0 or self.budget < 0:
                raise BadFolder(f"the headers of one entry have more than {size(MAX_HEADERS)}")
        return self._file.read(count)


def _extract(file: _BoundedFile, folder: Path) -> None:
    links: dict[Path, str] = {}
    files: dict[PurePosixPath, Path] = {}
    entries = total = 0
    file.budget = MAX_HEADERS
    with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="strict") as archive:  # type: ignore[call-overload]
        while True:
            file.budget = MAX_HEADERS
            entry = archive.next()
            file.budget = None
            archive.members.clear()  # it would keep all of them
            if entry is None:
                file.seek(archive.offset)
                if file.read(len(_END)) != _END:  # `tarfile` takes whatever is no header as the end
                    raise BadFolder("the archive ends early; was tar interrupted? Send it again")
                break
            entries += 1
            if entries > MAX_ENTRIES:
                raise BadFolder(f"more than {MAX_ENTRIES:,} entries; send only the folder with the code")
            name = _checked(entry.name)
            if not name.parts or LEFT_OUT.intersection(name.parts):
                continue
            path = folder.joinpath(*name.parts)
            if path in links or not set(path.parents).isdisjoint(links):
                raise BadFolder(f"{_shown(name)}: an entry below or instead of a link")
            _make_folder(path if entry.isdir() else path.parent, name)
            if entry.issym():
                links[path] = entry.linkname
            elif (entry.isreg() and not entry.issparse()) or entry.islnk():
                source = files.get(_checked(entry.linkname)) if entry.islnk() else None
                if entry.islnk() and source is None:
                    raise BadFolder(f"{_shown(name)}: a hard link to a file that is not in the archive before it")
                total += source.stat().st_size if source is not None else entry.size
                if total > MAX_BYTES or len(files) >= MAX_FILES:
                    raise _too_large()
                _write(archive, entry, path, source, name)
                files[name] = path
            elif not entry.isdir():
                raise BadFolder(f"{_shown(name)} is not a plain file, folder or link; leave it out")
    for path, target in links.items():  # last: nothing was written through one
        if not target or "\0" in target or len(target.encode()) >= _MAX_PATH:
            raise BadFolder(f"{path.name}: a link with an invalid target")
        if path.exists() or path.is_symlink():
            raise BadFolder(f"{path.name}: an entry below or instead of a link")
        path.symlink_to(target)


def _checked(name: str) -> PurePosixPath:
    """The path of an entry within the folder. Raises BadFolder."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or ".." in parts or "\0" in name:
        raise BadFolder(f"{_shown(path)}: an entry outside of the folder; send the output of: tar -C DIR -cz .")
    if len(name.encode()) >= _MAX_PATH or any(len(part.encode()) > _MAX_NAME for part in parts):
        raise BadFolder(f"{_shown(path)}: the name is too long")
    return PurePosixPath(*parts)


def _make_folder(path: Path, name: PurePosixPath) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadFolder(f"{_shown(name)} is below a file") from error


def _write(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, source: Path | None, name: PurePosixPath
) -> None:
    """Write one file; `source` is the file that a hard link names."""
    mode = (stat.S_IMODE(entry.mode) if source is None else stat.S_IMODE(source.stat().st_mode)) & 0o777 | stat.S_IRUSR
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, IsADirectoryError) as error:
        raise BadFolder(f"{_shown(name)} is in the archive twice") from error
    with os.fdopen(number, "wb") as file:
        os.fchmod(number, mode)
        content = archive.extractfile(entry) if source is None else source.open("rb")
        if content is None:
            raise BadFolder(f"{_shown(name)} has no content")
        with content:
            shutil.copyfileobj(content, file, _CHUNK)
        if source is None and file.tell() != entry.size:
            raise BadFolder(f"the archive ends within {_shown(name)}; send it again")


def _shown(name: PurePosixPath) -> str:
    return repr(str(name)[:200])


def _too_large() -> BadFolder:
    return BadFolder(f"more than {MAX_FILES:,} files or {size(MAX_BYTES)}; send only the folder with the code")
