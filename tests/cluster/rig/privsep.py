"""/run/sshd, which sshd requires under root: created for the rigs that need it, removed after the last of them."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/run/sshd")
MARK = FOLDER / "made-by-gct"


@contextlib.contextmanager
def folder() -> Iterator[None]:
    """Create the folder if needed. Each user holds a shared lock; the last one can lock exclusively and removes it."""
    if os.geteuid() != 0:
        yield
        return
    if not FOLDER.exists():
        FOLDER.mkdir(0o755, parents=True)
        MARK.touch()
    descriptor = os.open(FOLDER, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        yield
    finally:
        _remove_if_unused(descriptor)
        os.close(descriptor)


def _remove_if_unused(descriptor: int) -> None:
    if not MARK.exists():
        return  # not created by a rig
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another rig still needs it
    MARK.unlink()
    FOLDER.rmdir()
