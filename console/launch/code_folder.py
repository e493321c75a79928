"""A local folder of code, read before it is copied to the nodes of a job."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ..core.job_protocol import SyncFile, SyncFolder, SyncLink
from ..text.format import size

#: Not copied: a repository's history, and bytecode, which Python makes anew.
LEFT_OUT = frozenset({".git", "__pycache__"})
#: Limits of a folder of code; data sets belong on a shared file system.
MAX_FILES, MAX_BYTES = 10_000, 2 << 30


class BadFolder(ValueError):
    """The folder cannot be copied to nodes; the message states the cause and the remedy."""


def read_folder(folder: Path) -> SyncFolder:
    """Everything in a folder but `LEFT_OUT`. Raises BadFolder, also for links that lead out of it."""
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise BadFolder(f"{folder} is not a folder")
    files: list[SyncFile] = []
    links: list[SyncLink] = []
    total = 0
    try:
        for path in _below(root):
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                links.append(SyncLink(name, _target(root, path)))
                continue
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise BadFolder(f"{path} is not a file; sockets, pipes and devices cannot be copied")
            total += info.st_size
            if total > MAX_BYTES or len(files) >= MAX_FILES:
                raise BadFolder(f"{folder} has more than {MAX_FILES:,} files or {size(MAX_BYTES)}; "
                                "choose the subfolder with the code")  # fmt: skip
            files.append(SyncFile(name, info.st_size, _sha256(path), stat.S_IMODE(info.st_mode) & 0o777))
    except OSError as error:
        raise BadFolder(f"{error.filename or folder}: {error.strerror}") from error
    return SyncFolder(str(root), tuple(files), tuple(links))


def has_program(folder: SyncFolder, program: str) -> bool:
    """Whether a program is in the folder: `./run.sh`, `bin/train`."""
    return "/" in program and has_file(folder, program)


def has_file(folder: SyncFolder, name: str) -> bool:
    """Whether a file is in the folder: `train.py`, `./bin/train`."""
    path = PurePosixPath(name)
    return not path.is_absolute() and str(path) in {file.path for file in folder.files}


def _below(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        linked = [name for name in folders if Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in sorted([*names, *linked]) if name not in LEFT_OUT)


def _raise(error: OSError) -> None:
    raise error


def _target(root: Path, link: Path) -> str:
    """The relative target of a link. Raises BadFolder if it is outside of the folder: it would dangle on a node."""
    try:
        link.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:  # of which `resolve` makes a RuntimeError before Python 3.13
            raise BadFolder(f"{link} leads to itself; remove it") from error
    there = link.resolve()
    if not there.is_relative_to(root):
        raise BadFolder(f"{link} links to {there}, outside of the folder; "
                        "copy what it needs into the folder, or give the path on the nodes")  # fmt: skip
    return os.path.relpath(there, link.parent.resolve())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
