"""Writes a binary that the console sends, into the cache or into memory."""

import errno
import os
import sys

from .cache import BLOB_MODE, UnusableCache, new_sha256, unlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cache import Cache


class BlobWriter(object):
    """Writes one binary in chunks, verifies its SHA-256 and moves it into place; a damaged one is removed."""

    def __init__(self, cache: "Cache", digest: str, fd: int, draft: "str | None") -> None:
        self.cache, self.digest, self.draft = cache, digest, draft
        self.fd: int | None = fd
        self._hash = new_sha256()

    def write(self, data: bytes) -> None:
        """Append a chunk. Raises OSError."""
        self._hash.update(data)
        assert self.fd is not None
        while data:
            data = data[os.write(self.fd, data) :]

    def finish(self) -> str:
        """The path of the finished binary. Raises OSError, and UnusableCache if its SHA-256 is wrong."""
        if self._hash.hexdigest() != self.digest:
            raise UnusableCache("a binary arrived damaged (SHA-256 %s…)" % self._hash.hexdigest()[:12])
        assert self.fd is not None
        os.fchmod(self.fd, BLOB_MODE)
        if self.draft is None:
            fd, self.fd = self.fd, None
            return self.cache.keep_in_memory(self.digest, fd)
        self._close()
        path = os.path.join(os.path.dirname(self.draft), self.digest)
        os.rename(self.draft, path)
        self.draft = None
        return path

    def abandon(self) -> None:
        """Delete what was written, unless it was finished."""
        self._close()
        if self.draft is not None:
            draft, self.draft = self.draft, None
            unlink(draft)

    def _close(self) -> None:
        if self.fd is not None:
            fd, self.fd = self.fd, None
            os.close(fd)


def memory_file(name: str) -> int:
    """The descriptor of a nameless file in memory (memfd), inherited by no child unless passed on."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    import ctypes  # Python 3.6 and 3.7 lack the call; the numbers are the kernel's for these machines

    number = {"x86_64": 319, "aarch64": 279}.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "no memfd on %s with Python %d.%d" % ((os.uname().machine,) + sys.version_info[:2]))
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(number, name.encode("ascii"), 1)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_create: " + os.strerror(ctypes.get_errno()))
    return fd
