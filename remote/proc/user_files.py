"""Files whose paths a process of another user chose: opened with the rights of that user, and only regular ones.

A process names its source files, dumps and logs. An agent that runs as root must neither read for it what its user
could not, nor open a device, whose mere opening has effects: a terminal, a tape.
"""

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable

    from .procfs import ProcFs

#: setgroups of this thread alone; the function of the C library changes all threads (asm/unistd.h).
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
#: openat2(2), Linux 5.6: the same number everywhere. RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS of linux/openat2.h.
_OPENAT2, _IN_ROOT = 437, 0x10 | 0x02
MOST_GROUPS = 1024
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class RightsOf(object):
    """The calling thread accesses files with the rights of a user while this context is open.

    Without effect unless the agent is root and the user is not. Raises PermissionError if the rights cannot be dropped.
    """

    def __init__(self, uid: "int | None", gid: "int | None" = None, groups: "tuple[int, ...]" = ()) -> None:
        self._uid, self._gid, self._groups = uid, gid, groups
        self._libc: "Any" = None

    @classmethod
    def of_process(cls, procfs: "ProcFs", pid: int) -> "RightsOf":
        """The rights of the user of a process. Raises the errors of /proc."""
        ids: "dict[bytes, list[int]]" = {}
        for line in procfs.read_at_once(pid, "status").split(b"\n"):
            name, _, values = line.partition(b":")
            if name in (b"Uid", b"Gid", b"Groups"):
                ids[name] = [int(value) for value in values.split()]
        return cls(ids[b"Uid"][1], ids[b"Gid"][1], tuple(ids.get(b"Groups", ())[:MOST_GROUPS]))

    def __enter__(self) -> "RightsOf":
        if os.geteuid() != 0 or self._uid == 0:
            return self
        if self._uid is None:
            raise PermissionError(errno.EPERM, "the user of the process is not known")
        import ctypes  # late: it costs memory

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._set_groups(self._groups)
        self._libc.setfsgid(self._uid if self._gid is None else self._gid)
        self._libc.setfsuid(self._uid)
        if self._libc.setfsuid(-1) != self._uid:  # an invalid id changes nothing, and the current one is returned
            self._restore()
            raise PermissionError(errno.EPERM, "cannot take the rights of uid %d" % self._uid)
        return self

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "TracebackType | None"
    ) -> None:
        if self._libc is not None:
            self._restore()

    def _restore(self) -> None:
        self._libc.setfsuid(0)
        self._libc.setfsgid(os.getegid())
        self._set_groups(tuple(os.getgroups()))
        self._libc = None

    def _set_groups(self, groups: "tuple[int, ...]") -> None:
        import ctypes

        number = _SETGROUPS.get(os.uname().machine)
        if number is not None:
            self._libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups))


def open_regular(procfs: "ProcFs", pid: int, path: str) -> int:
    """A descriptor, for reading, of a regular file at a path as a process sees it. Raises OSError."""
    return open_checked(procfs, pid, path, stat.S_ISREG, FLAGS)


def open_checked(procfs: "ProcFs", pid: int, path: str, is_wanted: "Callable[[int], bool]", flags: int) -> int:
    """The same for another kind of file. It is opened only after `is_wanted` has accepted its mode. Raises OSError."""
    return _reopen(_handle(procfs, pid, path), path, is_wanted, flags)


def open_regular_at(path: str) -> int:
    """A descriptor, for reading, of a regular file at a path of the agent. Raises OSError."""
    return _reopen(os.open(path, os.O_PATH | os.O_CLOEXEC), path, stat.S_ISREG, FLAGS)


def _reopen(handle: int, path: str, is_wanted: "Callable[[int], bool]", flags: int) -> int:
    try:
        if not is_wanted(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a %s" % ("regular file" if is_wanted is stat.S_ISREG else "pipe"), path)
        return os.open("/proc/self/fd/%d" % handle, flags)  # the file that was checked, whatever its name leads to now
    finally:
        os.close(handle)


def _handle(procfs: "ProcFs", pid: int, path: str) -> int:
    """An O_PATH descriptor: no device is opened by it."""
    if not path.startswith("/"):
        return os.open(procfs.path(pid, "cwd/") + path, os.O_PATH | os.O_CLOEXEC)
    handle = _beneath(procfs.path(pid, "root"), path)
    return os.open(procfs.path(pid, "root") + path, os.O_PATH | os.O_CLOEXEC) if handle is None else handle


def _beneath(root: str, path: str) -> "int | None":
    """A path with all its links resolved below a root, as a container sees them; None where the kernel lacks it."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)
        handle: int = libc.syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(24))
    finally:
        os.close(folder)
    if handle >= 0:
        return handle
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.E2BIG, errno.EINVAL):
        return None
    raise OSError(code, os.strerror(code), path)
