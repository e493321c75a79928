"""Reads untrusted files one by one in a child process with bounded memory and CPU time.

A file that exceeds a bound, or fails in an unexpected way, is a problem of that file; the others are read.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Generic, NoReturn, TypeVar, cast

import msgspec

from ...text import format, logs
from ...text.memory_limit import limit_memory

#: Upper bounds of what reading one file may allocate, of its CPU time, and of the results of all files together.
MEMORY_BYTES: Final = 2 << 30
CPU_S: Final = 90.0
RESULT_BYTES: Final = 1 << 30
_LENGTH: Final = 8

Result = TypeVar("Result")


class FileFailure(msgspec.Struct, frozen=True):
    """Why a file was not read: `text` is one sentence."""

    text: str


class _Reply(msgspec.Struct, Generic[Result], frozen=True):
    result: Result | None = None
    failure: str | None = None


def read_each(
    paths: Sequence[Path], read: Callable[[Path], Result], type_: type[Result]
) -> Iterator[tuple[Path, Result | FileFailure]]:
    """Yield every path with what `read` returns for it, which msgspec must be able to encode as `type_`.

    OSError and ValueError of `read` become failures with their text.
    """
    decoder = msgspec.msgpack.Decoder(_Reply[type_])  # type: ignore[valid-type]  # a type at run time
    left, total = list(paths), 0
    while left:
        pid, replies = _start(left, read)
        try:
            with replies:
                while left and (reply := _next_reply(replies)) is not None:
                    total += len(reply)
                    if total > RESULT_BYTES:
                        unread = FileFailure(f"not read: the files before it have {format.size(RESULT_BYTES)} of data")
                        yield from ((path, unread) for path in left)
                        return
                    decoded = decoder.decode(reply)
                    failure = None if decoded.failure is None else FileFailure(decoded.failure)
                    yield left.pop(0), failure or cast("Result", decoded.result)
        finally:
            _kill(pid)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if left:
            yield left.pop(0), FileFailure(_reason_of_exit(status))


def _start(paths: Sequence[Path], read: Callable[[Path], object]) -> tuple[int, BinaryIO]:
    """The pid of a child that reads these files, and the pipe with its replies."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receiving)
        _serve(paths, read, os.fdopen(sending, "wb"))
    os.close(sending)
    return pid, os.fdopen(receiving, "rb")


def _serve(paths: Sequence[Path], read: Callable[[Path], object], replies: BinaryIO) -> NoReturn:
    """In the child: read every file. A timer of the kernel ends it when a file takes too long."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGVTALRM):
            signal.signal(number, signal.SIG_DFL)
        limit_memory(MEMORY_BYTES)
        encoder = msgspec.msgpack.Encoder()
        for path in paths:
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
            reply = _reply_on(path, read, encoder)
            replies.write(len(reply).to_bytes(_LENGTH, "big") + reply)
            replies.flush()
    finally:
        os._exit(1)


def _reply_on(path: Path, read: Callable[[Path], object], encoder: msgspec.msgpack.Encoder) -> bytes:
    try:
        return encoder.encode(_Reply(result=read(path)))
    except OSError as error:
        failure = error.strerror or str(error)
    except MemoryError:
        failure = f"needs more than {format.size(MEMORY_BYTES)} of memory"
    except ValueError as error:
        failure = str(error) or type(error).__name__
    except Exception as error:  # noqa: BLE001 - reported as a problem of this file
        failure = logs.internal_error(error, f"reading {path}")
    return encoder.encode(_Reply[object](failure=failure.encode("utf-8", "backslashreplace").decode()))


def _next_reply(replies: BinaryIO) -> bytes | None:
    """The next reply; None if the child ended before it was complete."""
    head = replies.read(_LENGTH)
    length = int.from_bytes(head, "big")
    reply = replies.read(length) if len(head) == _LENGTH else b""
    return reply if reply and len(reply) == length else None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _reason_of_exit(status: int) -> str:
    if -status == signal.SIGVTALRM:
        return f"not read within {CPU_S:g} s of CPU time"
    return f"not read: the process that reads it ended with {'signal' if status < 0 else 'exit code'} {abs(status)}"
