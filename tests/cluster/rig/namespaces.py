"""Starts processes in other namespaces, as children of this process.

setns() and unshare() act on one thread, so a new thread enters the namespaces, starts the process and
ends. Unlike with nsenter(1) in between, the Popen's pid, signals and exit status are those of the process itself.
"""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

# <sched.h>
CLONE_FS = 0x00000200
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
# <sys/mount.h>
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)
_Result = TypeVar("_Result")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int) -> None:
    _check(_libc.setns(descriptor, 0), "setns")


def bind_mount(source: Path, target: str) -> None:
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), f"bind {source} on {target}")


def make_mounts_private() -> None:
    """Prevent mounts made from here on from propagating to the parent namespace."""
    _check(_libc.mount(None, b"/", None, MS_PRIVATE | MS_REC, None), "make / private")


def in_own_thread(act: Callable[[], _Result]) -> _Result:
    """Run `act` in a thread that ends afterwards, together with the namespaces it entered."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(act())
        except BaseException as error:
            errors.append(error)  # raised again below, in the calling thread

    thread = threading.Thread(target=body, name="gct-namespaces")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def start_init(network: Path, argv: Sequence[str], **popen: Any) -> subprocess.Popen:
    """Start `argv` as process 1 of new PID, UTS and mount namespaces, in the network namespace at `network`."""

    def act() -> subprocess.Popen:
        descriptor = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(descriptor)
        finally:
            os.close(descriptor)
        unshare(CLONE_FS | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID)
        return subprocess.Popen(argv, **popen)

    return in_own_thread(act)


class NodeProcess(subprocess.Popen):
    """A process on a node. A `with` block that fails kills it: one that runs without end would be waited for."""

    def __exit__(self, exc_type: type[BaseException] | None, *details: Any) -> None:
        if exc_type is not None:
            self.kill()
        super().__exit__(exc_type, *details)


class Namespaces:
    """The namespaces of a running process, held open."""

    def __init__(self, pid: int) -> None:
        self._descriptors: list[int] = []
        # mnt last: entering it changes how later paths resolve.
        for name in ("net", "uts", "pid", "mnt"):
            self._descriptors.append(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))
        self.pid_inode = os.fstat(self._descriptors[2]).st_ino

    def popen(self, argv: Sequence[str], **popen: Any) -> subprocess.Popen:
        """subprocess.Popen inside the namespaces; `cwd` and a path in argv[0] are resolved there."""

        def act() -> subprocess.Popen:
            unshare(CLONE_FS)  # the kernel lets a thread change its mount namespace only without a shared cwd
            for descriptor in self._descriptors:
                setns(descriptor)
            return NodeProcess(argv, **popen)

        return in_own_thread(act)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
