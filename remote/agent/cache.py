"""The cache folder, the only one the agent writes: its modules, compiled code, binaries by digest, sockets, jobs.

It must be 0700 and owned by the agent's user. Modules and binaries are checked against their SHA-256 before they are
executed.
"""

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .blob_writer import BlobWriter

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]  # Python up to 3.11
    except ImportError:
        from hashlib import sha256  # last: it loads OpenSSL, 4 MB of memory

#: Of binaries: an agent that is root starts them as the user of a rank, by a descriptor; no other user enters it.
BLOB_MODE = 0o755
#: Its subfolders; a cache with jobs has one more (see jobs/job_dir.py).
PARTS = ("blob", "code", "run")
#: Archives of the agent's modules are files in "blob" with this prefix; the last used ones are kept, for consoles of
#: different releases that take turns.
_PAYLOAD, KEPT_PAYLOADS = "payload-", 4
#: Seconds after which an incomplete file belongs to a process that was killed; no transfer takes so long.
_DRAFT, _ABANDONED_S = ".draft-", 86400.0


class UnusableCache(Exception):
    """A folder that cannot be the cache; the text is the reason."""


def places(configured: str, uid: int) -> "list[str]":
    """Candidate folders, best first; the home is last, because a shared home may hang."""
    if configured:
        return [os.path.expanduser(configured)]
    name = "gconsole-%d" % uid
    return [
        os.path.join("/var/tmp", name),
        os.path.join("/tmp", name),
        os.path.join(os.path.expanduser("~"), ".cache", "gconsole-agent"),
    ]


def check(path: str, uid: int) -> None:
    """Raise UnusableCache unless `path` is a folder owned by `uid`, mode 0700 and writable."""
    _check_info(os.lstat(path), path, uid)
    if not os.access(path, os.W_OK):
        raise UnusableCache("%s cannot be written" % path)


def check_above(path: str) -> None:
    """Raise UnusableCache if other users could replace `path`.

    They can if they may write to a folder above it that is not sticky (as /tmp is). A group-writable folder of our own
    is accepted: private groups are usual.
    """
    uid, above = os.geteuid(), os.path.dirname(os.path.abspath(path))
    for folder in dict.fromkeys(_lineage(above) + _lineage(os.path.realpath(above))):
        try:
            info = os.stat(folder)
        except OSError:
            continue  # it will be created
        group = info.st_mode & stat.S_IWGRP and info.st_gid != 0 and info.st_uid != uid
        if (group or info.st_mode & stat.S_IWOTH) and not info.st_mode & stat.S_ISVTX:
            mode = stat.S_IMODE(info.st_mode)
            raise UnusableCache(
                "%s is below %s, where others may rename it (mode %o, not sticky)" % (path, folder, mode)
            )


def _lineage(folder: str) -> "list[str]":
    """A folder and all above it."""
    folders = [folder]
    while os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return folders


def opened(path: str, uid: int) -> "tuple[int, int]":
    """(descriptor of the parent folder, descriptor of `path`), both checked. Raises UnusableCache and OSError.

    The descriptors stay valid for the checked folders, whatever replaces their names.
    """
    check(path, uid)
    parent, name = os.path.split(os.path.abspath(path))
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError:
        os.close(above)
        raise
    try:
        _check_info(os.fstat(folder), path, uid)
    except UnusableCache:
        os.close(above)
        os.close(folder)
        raise
    return above, folder


def _check_info(info: "os.stat_result", path: str, uid: int) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise UnusableCache("%s is a link" % path)
    if not stat.S_ISDIR(info.st_mode):
        raise UnusableCache("%s is not a folder" % path)
    if info.st_uid != uid:
        raise UnusableCache("%s belongs to uid %d" % (path, info.st_uid))
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise UnusableCache("%s may be entered by others (mode %o)" % (path, stat.S_IMODE(info.st_mode)))


def is_noexec(path: str) -> bool:
    """Whether the file system of `path` is mounted noexec."""
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


class Cache(object):
    """The cache folder in use; `root` is None if ephemeral or if no candidate is usable (see `refused`)."""

    def __init__(self, configured: str = "", ephemeral: bool = False) -> None:
        self.root: str | None = None
        self.noexec = False
        self.refused: list[str] = []  # why better candidates were not used
        self._memory: dict[str, int] = {}  # sha256 -> file descriptor, for binaries that live in memory
        if ephemeral:
            return
        uid = os.geteuid()
        for path in places(configured, uid):
            try:
                self._open(path, uid)
                noexec = is_noexec(path)
            except (OSError, UnusableCache) as error:
                self.refused.append(str(error))
                continue
            if self.root is None or (self.noexec and not noexec):
                self.root, self.noexec = path, noexec
            if not self.noexec:
                break
            self.refused.append("%s is mounted noexec" % path)

    @staticmethod
    def _open(path: str, uid: int) -> None:
        check_above(path)
        for create, folder in [(os.makedirs, path)] + [(os.mkdir, os.path.join(path, name)) for name in PARTS]:
            try:
                create(folder, 0o700)
            except FileExistsError:
                pass  # checked below
            check(folder, uid)

    def folder(self, name: str) -> "str | None":
        """A subfolder of the cache ("code", "run"), or None without a cache."""
        return os.path.join(self.root, name) if self.root else None

    def find(self, digest: str) -> "str | None":
        """The path of the binary with that SHA-256, which is verified; or None."""
        if digest in self._memory:
            return self._memory_path(digest)
        if self.root is None or self.noexec:
            return None
        path = os.path.join(self.root, "blob", digest)
        try:
            info = os.lstat(path)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                return None
            if sha256_of(path) != digest:
                return None
            if stat.S_IMODE(info.st_mode) != BLOB_MODE:
                os.chmod(path, BLOB_MODE)  # of an earlier version
            return path
        except OSError:
            return None

    def writer(self, digest: str) -> "BlobWriter":
        """A `BlobWriter` for the binary with that SHA-256: in the cache, or in memory if that cannot execute it."""
        from .blob_writer import BlobWriter, memory_file  # a node that has the binaries needs no writer

        if self.root is None or self.noexec:
            return BlobWriter(self, digest, memory_file("gconsole-" + digest[:8]), None)
        draft, path = self._create_draft()
        return BlobWriter(self, digest, draft, path)

    def payload(self, digest: str, size: int) -> "bytes | None":
        """The archive of the agent's modules with that SHA-256 and size; None if absent, damaged or not private.

        The bytes that are verified are those that are returned: a file that is replaced meanwhile is not read again.
        """
        if self.root is None:
            return None
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self._payload_path(digest), flags), "rb") as f:
                info = os.fstat(f.fileno())
                is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077
                if not is_ours or info.st_size != size:
                    return None
                content = f.read(size)
                if not has_digest(content, digest):
                    return None
        except OSError:
            return None
        try:
            os.utime(self._payload_path(digest))  # the last used ones are kept
        except OSError:
            pass  # pruned meanwhile
        return content

    def keep_payload(self, digest: str, content: bytes) -> None:
        """Store an archive, and remove those of releases that were not used for longest; a failure costs a transfer."""
        if self.root is None:
            return
        draft = None
        try:
            fd, draft = self._create_draft()
            with open(fd, "wb") as f:
                f.write(content)
            os.rename(draft, self._payload_path(digest))
            draft = None
            self._prune()
        except OSError:
            pass  # a full or read-only disk: the next start requests it again
        finally:
            if draft is not None:
                unlink(draft)

    def _create_draft(self) -> "tuple[int, str]":
        """(descriptor, path) of a new file of mode 0600. Raises OSError. The module tempfile takes 0.5 MB."""
        path = os.path.join(self.root or "", "blob", _DRAFT + os.urandom(8).hex())
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path

    def _payload_path(self, digest: str) -> str:
        return os.path.join(self.root or "", "blob", _PAYLOAD + digest)

    def _prune(self) -> None:
        """Remove all but the last used archives, and incomplete files of processes that were killed."""
        folder = os.path.join(self.root or "", "blob")
        used = {name: os.lstat(os.path.join(folder, name)).st_mtime for name in os.listdir(folder)}
        payloads = sorted((name for name in used if name.startswith(_PAYLOAD)), key=lambda name: -used[name])
        abandoned = [n for n in used if n.startswith(_DRAFT) and used[n] < time.time() - _ABANDONED_S]
        for name in payloads[KEPT_PAYLOADS:] + abandoned:
            unlink(os.path.join(folder, name))

    def keep_in_memory(self, digest: str, fd: int) -> str:
        """Adopt the descriptor of a binary in memory; its path for as long as this process lives."""
        self._memory[digest] = fd
        return self._memory_path(digest)

    def _memory_path(self, digest: str) -> str:
        return "/proc/%d/fd/%d" % (os.getpid(), self._memory[digest])


def unlink(path: str) -> None:
    """Remove a file, if it is still there."""
    try:
        os.unlink(path)
    except OSError:
        pass  # already removed


def short_name(*texts: str) -> str:
    """12 hex digits that stand for these texts, for a file's name."""
    return str(sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:12])


def has_digest(content: bytes, digest: str) -> bool:
    """Whether that is the hex SHA-256 of `content`."""
    return bool(sha256(content).hexdigest() == digest)


def new_sha256() -> "Any":
    """A SHA-256 of nothing yet."""
    return sha256()


def sha256_of(path: str) -> str:
    """Hex SHA-256 of a file's content."""
    digest = sha256()
    with open(path, "rb") as f:
        for piece in iter(lambda: f.read(1 << 16), b""):
            digest.update(piece)
    return str(digest.hexdigest())
