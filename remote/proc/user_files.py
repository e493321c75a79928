"""Files whose paths a process of another user chose: opened with the rights of that user, and only regular ones.

A process names its source files, dumps and logs. An agent that runs as root must neither read for it what its user
could not, nor open a device, whose mere opening has effects: a terminal, a tape.
"""

import errno
import os
import stat
from itertools import islice

from .threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, TypeVar

    from .procfs import ProcFs

    Made = TypeVar("Made")

#: setgroups of this thread alone; the function of the C library changes all threads (asm/unistd.h).
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
#: setresuid and setresgid of this thread alone.
_SETRES = {"x86_64": (117, 119), "aarch64": (147, 149)}
#: prctl(2), capabilities(7): linux/prctl.h, linux/capability.h.
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CAP_SYS_PTRACE, _CAPABILITIES = 38, 47, 19, 0x20080522
#: openat2(2), Linux 5.6: the same number everywhere. RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS of linux/openat2.h.
_OPENAT2, _IN_ROOT = 437, 0x10 | 0x02
MOST_GROUPS = 1024
_KINDS = {stat.S_ISREG: "regular file", stat.S_ISDIR: "folder"}
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
        """The rights of the user of a process; of a set-user-ID program of root, those of the user who started it.

        Raises the errors of /proc.
        """
        ids: "dict[bytes, list[int]]" = {}
        for line in procfs.read_at_once(pid, "status").split(b"\n"):
            name, _, values = line.partition(b":")
            if name in (b"Uid", b"Gid", b"Groups"):
                ids[name] = [int(value) for value in values.split()]
        effective = 1 if ids[b"Uid"][1] else 0
        gids = ids.get(b"Gid")
        return cls(
            ids[b"Uid"][effective], gids[effective] if gids else None, tuple(ids.get(b"Groups", ())[:MOST_GROUPS])
        )

    @property
    def key(self) -> "tuple[int | None, int | None, tuple[int, ...]]":
        """Equal for equal rights."""
        return self._uid, self._gid, self._groups

    @property
    def is_other(self) -> bool:
        """Whether they differ from those of the agent, which can take them: it is root, and the user is not."""
        return os.geteuid() == 0 and self._uid != 0

    def __enter__(self) -> "RightsOf":
        if not self.is_other:
            return self
        if self._uid is None:
            raise PermissionError(errno.EPERM, "the user of the process is not known")
        self._libc = _libc()
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

    def call(self, function: "Callable[[], Made]", traced: "int | None" = None) -> "Made":
        """What a function returns on a thread that has become this user: files, sockets and programs it starts are his.

        Such a program cannot regain rights. With `traced`, the pid of a process of this user, it may trace: the kernel
        may allow that to no other process (kernel.yama.ptrace_scope). Raises as the function, and PermissionError.
        """
        if not self.is_other:
            return function()
        results: "list[Made]" = []
        errors: "list[BaseException]" = []

        def run() -> None:
            try:
                self._become(traced)
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)

        thread = Thread(target=run, name="gconsole-user")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def drop(self) -> None:
        """Become this user for good, in a child process of one thread. Raises PermissionError."""
        if self.is_other:
            if self._uid is None:
                raise PermissionError(errno.EPERM, "the user of the process is not known")
            os.setgroups(self._groups)
            gid = self._uid if self._gid is None else self._gid
            os.setresgid(gid, gid, gid)
            os.setresuid(self._uid, self._uid, self._uid)
        forbid_new_rights()  # a child has loaded what this needs before it was forked: see `prepare`

    def _become(self, traced: "int | None") -> None:
        """The calling thread becomes this user for good; what it executes has no way back. Raises PermissionError."""
        import ctypes

        if self._uid is None:
            raise PermissionError(errno.EPERM, "the user of the process is not known")
        numbers = _SETRES.get(os.uname().machine)
        if numbers is None:
            raise PermissionError(errno.EPERM, "cannot become another user on %s" % os.uname().machine)
        self._libc = _libc()
        gid = self._uid if self._gid is None else self._gid
        self._set_groups(self._groups)
        # the saved ids stay those of root: nobody else may then signal or trace the agent. exec replaces them
        for number, own in ((numbers[1], gid), (numbers[0], self._uid)):
            if self._libc.syscall(number, own, own, 0):
                raise PermissionError(ctypes.get_errno(), "cannot become uid %d" % self._uid)
        if traced is not None and not _may_trace(traced):
            self._keep_tracing()
        forbid_new_rights()

    def _keep_tracing(self) -> None:
        """Let programs of this thread trace any process, and have no other capability. Without effect before 4.3."""
        import ctypes

        head = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
        sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then those of the second 32 capabilities
        if self._libc.capget(head, sets) == 0:
            sets[0] = sets[2] = sets[1] & 1 << _CAP_SYS_PTRACE
            sets[3] = sets[5] = 0
            if self._libc.capset(head, sets) == 0:
                self._libc.prctl(_PR_CAP_AMBIENT, 2, _CAP_SYS_PTRACE, 0, 0)

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


def forbid_new_rights() -> None:
    """No program that this thread, or this process of one thread, executes gains rights by doing so (prctl(2))."""
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def prepare() -> None:
    """Load what a child needs to drop its rights: after a fork, the lock of an import may never be released."""
    _libc()


_libraries: "list[Any]" = []


def _libc() -> "Any":
    """The C library, loaded once."""
    if not _libraries:
        import ctypes  # late: it costs memory

        _libraries.append(ctypes.CDLL(None, use_errno=True))
    return _libraries[0]


def _may_trace(pid: int) -> bool:
    """Whether the calling thread may trace a process: its memory may be opened under the same conditions."""
    try:
        os.close(os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return True  # gone
    except OSError:
        return False
    return True


def exists(procfs: "ProcFs", pid: int, path: str) -> bool:
    """Whether there is something at a path as a process sees it, for its user."""
    return state(procfs, pid, path) is not None


def state(procfs: "ProcFs", pid: int, path: str) -> "os.stat_result | None":
    """The state of what is at a path as a process sees it; None if its user cannot see it."""
    try:
        with RightsOf.of_process(procfs, pid):
            handle = _handle(procfs, pid, path)
            try:
                return os.fstat(handle)
            finally:
                os.close(handle)
    except (OSError, KeyError, ValueError):
        return None


def names_in(procfs: "ProcFs", pid: int, path: str, most: int) -> "list[str]":
    """At most that many names in a folder at a path as a process sees it. Raises OSError."""
    with RightsOf.of_process(procfs, pid):
        folder = open_checked(procfs, pid, path, stat.S_ISDIR, FLAGS | os.O_DIRECTORY)
        try:
            with os.scandir("/proc/self/fd/%d" % folder) as entries:  # a descriptor itself: from Python 3.7 on
                return [entry.name for entry in islice(entries, most)]
        finally:
            os.close(folder)


def open_handle(procfs: "ProcFs", pid: int, path: str, is_wanted: "Callable[[int], bool]") -> int:
    """An O_PATH descriptor of what is at a path as a process sees it, if its mode is accepted. Raises OSError."""
    handle = _handle(procfs, pid, path)
    if is_wanted(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not of the expected kind", path)


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
            raise OSError(errno.EINVAL, "not a %s" % _KINDS.get(is_wanted, "pipe"), path)
        with _WithoutCapabilities():  # the file that was checked, whatever its name leads to now
            return os.open("/proc/self/fd/%d" % handle, flags)
    finally:
        os.close(handle)


class _WithoutCapabilities(object):
    """The calling thread has no capability while this context is open, if it has taken the rights of a user.

    That of tracing stays with them, and opens files in /proc of any process.
    """

    def __init__(self) -> None:
        self._sets: "Any" = None

    def __enter__(self) -> None:
        if os.geteuid() != 0 or _libc().setfsuid(-1) == 0:
            return
        import ctypes

        head = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
        sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then those of the second 32 capabilities
        if _libc().capget(head, sets) == 0:
            self._sets = (ctypes.c_uint32 * 6)(*sets)
            sets[0] = sets[3] = 0
            _libc().capset(head, sets)

    def __exit__(self, *_: "Any") -> None:
        if self._sets is not None:
            import ctypes

            _libc().capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), self._sets)


def _handle(procfs: "ProcFs", pid: int, path: str) -> int:
    """An O_PATH descriptor: no device is opened by it."""
    if not path.startswith("/"):
        return os.open(procfs.path(pid, "cwd/") + path, os.O_PATH | os.O_CLOEXEC)
    handle = _beneath(procfs.path(pid, "root"), path)
    return os.open(procfs.path(pid, "root") + path, os.O_PATH | os.O_CLOEXEC) if handle is None else handle


def _beneath(root: str, path: str) -> "int | None":
    """A path with all its links resolved below a root, as a container sees them; None where the kernel lacks it."""
    import ctypes

    libc = _libc()
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
