"""Folders of code that clients have sent for jobs, on the disk of this server until they expire or it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
import platformdirs

from ..core.job_protocol import SyncFolder
from ..launch.archive import MAX_UNPACKED, unpack
from ..launch.code_folder import BadFolder, read_folder
from ..text.format import size
from .problems import http_problem

#: Folders of one server, and bytes of their files.
MAX_FOLDERS: Final = 16
MAX_TOTAL: Final = 4 << 30
#: Folders that are received at a time; further clients have to retry.
AT_ONCE: Final = 2
#: Seconds that a folder is kept without being used.
KEPT_S: Final = 3600.0
#: Seconds. A client that sends nothing for this long is given up.
STALL_S: Final = 30.0
_LOCK: Final = "lock"
#: Seconds. A folder without a lock may be that of a server which is just making it; later it was left.
YOUNG_S: Final = 60.0


class Upload(msgspec.Struct):
    """A folder that was received; `used_s` is the monotonic time of its last use, `users` how many use it now."""

    id: str
    folder: SyncFolder
    sha256: str  # of the archive
    used_s: float
    users: int = 0


class Uploads:
    """The folders of one server.

    They are in a folder of its own, which it holds a lock on: the next server removes those of servers that were
    killed.
    """

    def __init__(self, parent: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._parent = parent or platformdirs.user_state_path("gconsole") / "uploads"
        self._clock = clock
        self._root: Path | None = None
        self._lock: IO[bytes] | None = None
        self._uploads: dict[str, Upload] = {}
        self._receiving = 0

    def open(self) -> None:
        """Remove what servers have left that were killed."""
        for root in self._parent.glob("*") if self._parent.is_dir() else ():
            with contextlib.suppress(OSError):
                if not (root / _LOCK).exists() and time.time() - root.stat().st_mtime < YOUNG_S:
                    continue
                with (root / _LOCK).open("ab") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: that server is alive
                    shutil.rmtree(root, ignore_errors=True)

    def close(self) -> None:
        """Remove all folders."""
        self._uploads.clear()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def all(self) -> list[Upload]:
        """The folders that have not expired, oldest first."""
        self._expire()
        return list(self._uploads.values())

    def left_s(self, upload: Upload) -> float:
        """Seconds until a folder expires unless it is used."""
        return max(0.0, upload.used_s + KEPT_S - self._clock())

    def remove(self, id: str) -> None:
        """Remove a folder. Raises HttpProblemError if there is none, or a job that starts uses it."""
        upload = self._of(id)
        if upload.users:
            raise http_problem(409, "folder_in_use", f"folder {id} is being copied to nodes", "retry after the start")
        self._drop(upload)

    @contextlib.contextmanager
    def using(self, id: str | None) -> Iterator[SyncFolder | None]:
        """A folder, which is kept meanwhile; None for none. Raises HttpProblemError if it is unknown or expired."""
        if id is None:
            yield None
            return
        upload = self._of(id)
        upload.users += 1
        try:
            yield upload.folder
        finally:
            upload.users -= 1
            upload.used_s = self._clock()

    async def receive(self, name: str, parts: AsyncIterator[bytes]) -> Upload:
        """Store the archive that a client sends as the folder `name`. Raises HttpProblemError."""
        self._expire()
        if self._receiving >= AT_ONCE:
            raise http_problem(503, "busy", f"{AT_ONCE} folders are being received", "retry after 1 s", Retry_After="1")
        if len(self._uploads) + self._receiving >= MAX_FOLDERS:
            raise http_problem(413, "too_many_folders", f"{MAX_FOLDERS} folders are kept",
                               "DELETE /folders/{id} of one that is not needed any more")  # fmt: skip
        self._receiving += 1
        id = secrets.token_hex(8)
        place = self._own_root() / id
        try:
            place.mkdir(mode=0o700)
            sha256 = await _store(place / "archive", parts, MAX_TOTAL - self._total)
            unpacking = asyncio.ensure_future(asyncio.to_thread(_unpacked, place, name))
            try:
                folder = await asyncio.shield(unpacking)
            except asyncio.CancelledError:
                await asyncio.wait({unpacking})  # the thread goes on writing, and what it writes is removed below
                raise
            if folder.bytes > MAX_TOTAL - self._total:
                raise _no_room()
        except BadFolder as error:
            raise http_problem(400, "bad_folder", str(error)) from error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise http_problem(413, "no_space", "the disk of the server is full", "make room there") from error
        else:
            upload = self._uploads[id] = Upload(id, folder, sha256, self._clock())
            return upload
        finally:
            self._receiving -= 1
            if id not in self._uploads:
                await asyncio.to_thread(shutil.rmtree, place, True)

    @property
    def _total(self) -> int:
        return sum(upload.folder.bytes for upload in self._uploads.values())

    def _own_root(self) -> Path:
        if self._root is None:
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            root = Path(tempfile.mkdtemp(prefix="", dir=self._parent))
            self._lock = (root / _LOCK).open("xb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._root = root
        return self._root

    def _of(self, id: str) -> Upload:
        self._expire()
        upload = self._uploads.get(id)
        if upload is None:
            raise http_problem(404, "no_such_folder", f"no folder {id}; it may have expired", "send it again")
        return upload

    def _expire(self) -> None:
        for upload in [upload for upload in self._uploads.values() if not upload.users and not self.left_s(upload)]:
            self._drop(upload)

    def _drop(self, upload: Upload) -> None:
        del self._uploads[upload.id]
        shutil.rmtree(self._own_root() / upload.id, ignore_errors=True)


async def _store(path: Path, parts: AsyncIterator[bytes], most: int) -> str:
    """Write a request body to a file; its SHA-256. Raises HttpProblemError."""
    digest, count, iterator = hashlib.sha256(), 0, aiter(parts)
    with path.open("xb") as file:
        while True:
            try:
                async with asyncio.timeout(STALL_S):
                    part = await anext(iterator, None)
            except TimeoutError:
                raise http_problem(408, "too_slow", f"nothing was received for {STALL_S:g} s") from None
            if part is None:
                return digest.hexdigest()
            count += len(part)
            if count > min(most, MAX_UNPACKED):
                raise _no_room()
            digest.update(part)
            file.write(part)


def _unpacked(place: Path, name: str) -> SyncFolder:
    archive, folder = place / "archive", place / "folder" / name
    folder.parent.mkdir(mode=0o700)
    unpack(archive, folder)
    archive.unlink()
    return read_folder(folder)


def _no_room() -> Exception:
    return http_problem(413, "too_large", f"all folders together may have {size(MAX_TOTAL)}",
                        "send only the code, or DELETE /folders/{id} of one that is not needed any more")  # fmt: skip
