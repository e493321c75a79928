"""Program that evaluates one expression in the process of a rank: `gconsole eval` sends its source there.

It runs in the main thread, between two bytecodes, and leaves nothing behind: no name, no module, no reference. Nothing
that goes wrong in it may reach the job. Python 3.6 to 3.14.
"""

import ast
import builtins
import os
import reprlib
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable

#: File name of this program's code in the process.
FILE = "<gconsole eval>"
#: Bytes of the header that precedes the result in memory: length, and 1 once the result is complete.
HEADER_BYTES = 8
#: Folders of code that is not the job's own.
_LIBRARIES = ("-packages/", "/lib/python", "<frozen")
_MOST_FRAMES = 1000


def run(text: str, until_s: float, write: "Callable[[bytes], None]", limit: int) -> None:
    """Evaluate `text` and write the result, at most `limit` bytes. After `until_s` do nothing."""
    if time.time() > until_s:
        return
    try:
        result = evaluate(text, limit)
    except BaseException as error:  # noqa: BLE001 - the job must not see it
        try:
            result = "error\n\n%s\n%s" % (type(error).__name__, error)
        except Exception:  # noqa: BLE001 - the text of an error may fail, too
            result = "error\n\n%s\n" % type(error).__name__
    write(result.encode("utf-8", "backslashreplace")[:limit])


def into_memory(address: int) -> "Callable[[bytes], None]":
    """Writes a result to an address of this process, and then that it is complete."""

    def write(data: bytes) -> None:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(address + HEADER_BYTES)
            memory.write(data)
            memory.seek(address)
            memory.write(len(data).to_bytes(4, "little") + b"\1\0\0\0")

    return write


def into_file(path: str) -> "Callable[[bytes], None]":
    """Writes a result into a new file, which has its name when it is complete."""

    def write(data: bytes) -> None:
        draft = path + ".new"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.rename(draft, path)

    return write


def evaluate(text: str, limit: int) -> str:
    """`value`, the place whose variables were used, the type and the repr, a line each (the repr may have several)."""
    code = compile(text, FILE, "eval")
    names = free_names(text)
    frame = frame_with(names)
    scope = dict(frame.f_globals)
    scope.update(frame.f_locals)
    place = "%s:%d %s" % (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    del frame
    value = None
    try:
        value = eval(code, scope)
        return "value\n%s\n%s\n%s" % (place.replace("\n", " "), type(value).__name__, short_repr(value, limit))
    finally:
        scope.clear()
        del value, scope


def free_names(text: str) -> "set[str]":
    """Names that an expression reads and does not bind itself; without builtins."""
    names: "set[str]" = set()
    bound: "set[str]" = set()
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name):
            (names if isinstance(node.ctx, ast.Load) else bound).add(node.id)
    return {name for name in names - bound if not hasattr(builtins, name)}


def frame_with(names: "set[str]") -> "FrameType":
    """The innermost frame that has all names, of the job's own code if possible. Raises NameError."""
    frames = frames_of_job()
    try:
        own = [frame for frame in frames if not any(part in frame.f_code.co_filename for part in _LIBRARIES)]
        for frame in own + frames:
            variables = frame.f_locals
            if all(name in variables or name in frame.f_globals for name in names):
                return frame
        raise NameError("no frame of the main thread has %s" % ", ".join(sorted(names)))
    finally:
        del frames[:]  # they would keep the variables of the job alive


def frames_of_job() -> "list[FrameType]":
    """The frames of this thread below this program, innermost first."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == FILE:
        frame = frame.f_back
    frames: "list[Any]" = []
    below = frame.f_back  # `frame` is the text that started this program
    while below is not None and len(frames) < _MOST_FRAMES:
        frames.append(below)
        below = below.f_back
    return frames


def short_repr(value: "Any", limit: int) -> str:
    """The repr of a value; containers and texts are shortened before it is made."""
    maker = reprlib.Repr()
    maker.maxlevel, maker.maxlist, maker.maxtuple, maker.maxdict, maker.maxset = 4, 100, 100, 100, 100
    maker.maxstring = maker.maxother = maker.maxlong = limit
    return maker.repr(value)[:limit]
