"""Closes rigs at program exit, also on SIGTERM."""

import atexit
import os
import signal
import threading
from types import FrameType
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


_open: dict[Closable, int] = {}  # with the pid that opened it: a forked child must not close it
_previous: signal.Handlers | object | None = None


def watch(rig: Closable) -> None:
    """Close `rig` at program exit, unless `forget` is called first."""
    global _previous
    if not _open and threading.current_thread() is threading.main_thread():
        _previous = signal.signal(signal.SIGTERM, _on_sigterm)
    _open[rig] = os.getpid()


def forget(rig: Closable) -> None:
    global _previous
    _open.pop(rig, None)
    if not _open and _previous is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _previous)
        _previous = None


def close_all() -> None:
    for rig, pid in list(_open.items()):
        if pid == os.getpid():
            rig.close()


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Close every rig, then run the signal's previous handler."""
    previous = _previous
    close_all()
    if callable(previous):
        previous(number, frame)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


atexit.register(close_all)
