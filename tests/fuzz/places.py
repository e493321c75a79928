"""Where fuzzed input lies: a folder in memory that is used again, and a /proc without files."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gconsole.monitor.imports.isolated_files import FileFailure
from gconsole_remote.proc.procfs import ProcFs

#: In memory, because thousands of files per second are written.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
_folders: dict[int, list[Path]] = {}  # by process: those that are free


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder; it is emptied and used again, which takes a third of the time of a new one."""
    free = _folders.setdefault(os.getpid(), [])
    if free:
        folder = free.pop()
    else:
        folder = Path(tempfile.mkdtemp(prefix="gcy-fuzz-", dir=MEMORY))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        yield folder
    finally:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)  # noqa: PTH108 - a Path of each takes longer than its removal
        free.append(folder)


@contextlib.contextmanager
def folder_with(name: str, data: bytes) -> Iterator[Path]:
    """A folder with one file."""
    with scratch() as folder:
        (folder / name).write_bytes(data)
        yield folder


@contextlib.contextmanager
def in_this_process(*modules: ModuleType) -> Iterator[None]:
    """Importers read files in this process: in a child, whatever fails would be a line about its file."""
    originals = [module.read_each for module in modules]
    for module in modules:
        module.read_each = _read_here  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.read_each = original  # type: ignore[attr-defined]


def _read_here(paths: Sequence[Path], read: Callable[[Path], Any], type_: Any) -> Iterator[tuple[Path, Any]]:
    """As `read_each`; what a file may fail with is a failure of it."""
    for path in paths:
        try:
            yield path, msgspec.msgpack.decode(msgspec.msgpack.encode(read(path)), type=type_)
        except (OSError, ValueError) as error:
            yield path, FileFailure(str(error))


class MemoryProcFs(ProcFs):
    """A /proc whose files have the given content, for each process; `net__unix` is net/unix."""

    def __init__(self, **files: bytes) -> None:
        super().__init__("/nowhere")
        self._files = {name.replace("__", "/"): data for name, data in files.items()}
        self.opened = -1  # a descriptor for `open`

    def read(self, pid: int | str, name: str, limit: int = 1 << 20) -> bytes:
        if name not in self._files:
            raise FileNotFoundError(2, "no such file", name)
        return self._files[name][: limit + 65535]

    def read_at_once(self, pid: int | str, name: str) -> bytes:
        return self.read(pid, name)[:16384]

    def open(self, pid: int | str, name: str) -> int:
        if name != "mem" or self.opened < 0:
            raise FileNotFoundError(2, "no such file", name)
        return self.opened

    def release(self, fd: int) -> None:
        pass

    def link(self, pid: int | str, name: str) -> str:
        return "/usr/bin/python3.11"
