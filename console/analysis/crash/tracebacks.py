"""Python tracebacks in the lines of one stream: frames, chains, groups, exceptions of threads and worker processes."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..hang.verdict import Site
from ..stacks.frames import is_library
from .progress_lines import counted_step

#: Lines of a message after its first one, and of a traceback with its message.
MAX_DETAILS: Final = 40
#: Tracebacks within the messages of others.
MAX_DEPTH: Final = 8
_HEADER: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(
    r'^[\s|+>]*File "(?P<file>[^"]{1,2000})", line (?P<line>[0-9]{1,9})(?:, in (?P<function>.{1,400}))?$'
)
_BOXED_FRAME: Final = re.compile(r"│ (?P<file>[^\s:]{1,1000}):(?P<line>[0-9]{1,9}) in (?P<function>\S{1,300})\s+│")
_BOXED_SOURCE: Final = re.compile(r"│ ❱ *[0-9]{1,9} │ *(?P<source>\S.{0,500}?)\s*│")
_REPEATED: Final = re.compile(r"^[\s|]*\[Previous line repeated [0-9]+ more times?\]$")
_EXCEPTION: Final = re.compile(
    r"^(?P<type>[A-Za-z_][\w.<>]{0,300}(?:\([A-Za-z_]\w{0,100}\))?)(?::\s?(?P<message>.*))?$"
)
#: Words that begin a line as an exception does, but are none.
_NOT_TYPES: Final = frozenset(
    ("Traceback", "File", "During", "The", "wandb", "Epoch", "Step", "step", "epoch", "INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL",
     "FATAL", "NOTE", "Warning", "Info", "Note", "Loss", "Rank", "Iteration", "UserWarning", "FutureWarning", "DeprecationWarning")
)  # fmt: skip
#: Lines of other processes that a traceback tolerates among its own, and how far its next line may be.
_STRAY_LINES: Final = 40
_STRAY_RUN: Final = 8
#: Functions in which a traceback of an uncaught exception begins: a module, a thread, a process, a task of a framework.
_OUTERMOST: Final = frozenset(
    ("<module>", "_run_module_as_main", "_run_code", "_bootstrap_inner", "_bootstrap", "_wrap", "wrapper", "_inner", "run", "spawn_main",
     "apply", "process_task", "actor_method_executor", "_worker_loop", "worker")
)  # fmt: skip
_DIRECT: Final = "The above exception was the direct cause of the following exception:"
_DURING: Final = "During handling of the above exception, another exception occurred:"
_ORIGIN: Final = re.compile(
    r"^(?:Exception in thread |Process \S+:$|Exception ignored in|Unhandled exception in thread |Error in atexit|Error in sys\.excepthook|--- Logging error ---|Task exception was never|Future exception was never|Exception in callback)"
)
#: Headers of a traceback within the message of the exception that another process passed on.
_INNER: Final = re.compile(
    r"^(?:Original |Remote )Traceback \(most recent call last\):$|^ray::\S.{0,400}\(pid=|^\"\"\"$"
    r"|^Traceback \(most recent call last\): \(RANK (?P<rank>[0-9]{1,7})\)$"  # torch.distributed.checkpoint
    r"|^-- Process (?P<process>[0-9]{1,6}) terminated with the following error:"
)
#: A log line, or another line that does not continue a message.
_LOGGED: Final = re.compile(
    r"^(?:\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[ T_]|\[?[IWEF][0-9]{4} [0-9]{2}:|\[?[0-9]{2}:[0-9]{2}:[0-9]{2}|\[?(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b"
    r"|srun: |slurmstepd: |mpirun |\S+:[0-9]+:[0-9]+ \[[0-9]+\] NCCL |wandb: |\[W|\[E)"
)


class PythonFrame(msgspec.Struct, frozen=True):
    """One frame of a traceback, the outermost first."""

    file: str
    line: int
    function: str
    source: str | None = None


class PythonError(msgspec.Struct):
    """One exception with its traceback. `cause` is the one before it in a chain; `inner` one that its message holds."""

    type: str
    message: str
    details: list[str]
    frames: list[PythonFrame]
    first: int  # index of its first line in the stream
    end: int  # index behind its last line
    head_end: int  # index behind the first line of its message: what follows may be another line of it, or not
    origin: str = ""  # the line before, where it names a thread or a process: its exception does not end the rank
    cause: PythonError | None = None
    inner: PythonError | None = None
    process: int | None = None  # rank of the process that raised it: of mp.spawn, of a checkpoint
    open_headers: int = 0  # tracebacks that began within it and did not end
    is_torn: bool = False  # lines of other processes are among its lines: its frames are not known

    @property
    def is_caught(self) -> bool:
        """Whether a handler printed it: the traceback begins in a function, where the handler is, not in a module."""
        if not self.frames or self.is_torn:
            return False
        outermost = self.frames[0]
        return outermost.function not in _OUTERMOST and not outermost.file.startswith("<")

    @property
    def site(self) -> Site | None:
        """The innermost frame in code that is not a library's, else the innermost one; None if unknown."""
        if self.is_torn or not self.frames:
            return None
        own = [frame for frame in self.frames if not _is_foreign(frame.file)]
        frame = own[-1] if own else self.frames[-1]
        return Site(frame.function, frame.file, frame.line, frame.source)


def is_header(line: str) -> bool:
    """Whether a traceback begins with this line."""
    return line.endswith(_HEADER) or _is_boxed(line)


def _is_boxed(line: str) -> bool:
    """Whether it is the first line of a traceback that rich draws."""
    return "─ Traceback (most recent call last) ─" in line


def parse_traceback(lines: list[str], index: int, depth: int = 0) -> tuple[PythonError | None, int]:
    """The traceback whose header is at `index`, with its chain, and the index behind it. None where it is cut off.

    `depth`: messages around it that contain it.
    """
    error, index = _single(lines, index, depth)
    while error is not None:
        after = _after_blanks(lines, index)
        link = lines[after].strip(" |") if after < len(lines) else ""
        if link not in (_DIRECT, _DURING):
            break
        after = _after_blanks(lines, after + 1)
        if after >= len(lines) or not is_header(lines[after]):
            break
        following, end = _single(lines, after, depth)
        if following is None:
            break
        following.cause, following.first = error, error.first
        following.origin = following.origin or error.origin
        error, index = following, end
    return error, index


def parse_torn_head(lines: list[str]) -> tuple[PythonError | None, int]:
    """The traceback whose header is before the first line of a stream that begins in the middle of it."""
    for index, line in enumerate(lines[:3]):
        if _FRAME.match(line):
            return _read(lines, 0, index, 0, 0)
        if (index and not line.startswith(" ")) or is_header(line) or "most recent call first" in line:
            break
    return None, 0


def _single(lines: list[str], index: int, depth: int) -> tuple[PythonError | None, int]:
    header = lines[index]
    if _is_boxed(header):
        return _boxed(lines, index, depth)
    column = max(0, len(header) - len(_HEADER))
    before = header[:column]
    margin = column if not before.strip(" |+") else 0
    if before.rstrip().endswith("Exception Group"):
        margin = len(before) - len(before.lstrip(" "))
    elif re.fullmatch(r"\s*traceback : ", before):  # the table of torchrun
        margin = 2
    error, end = _read(lines, index, index + 1, margin, depth)
    if error is not None:
        error.origin = _origin(lines, index)
    return error, end


def _boxed(lines: list[str], index: int, depth: int) -> tuple[PythonError | None, int]:
    """A traceback in a box; the exception is behind it."""
    frames: list[PythonFrame] = []
    end = min(len(lines), index + 4_000)
    for number in range(index + 1, end):
        line = lines[number]
        if "╰─" in line:
            error, behind = _read(lines, index, number + 1, 0, depth)
            if error is not None:
                error.frames = frames
            return error, behind
        if match := _BOXED_FRAME.search(line):
            frames.append(PythonFrame(match["file"], int(match["line"]), match["function"]))
        elif frames and (match := _BOXED_SOURCE.search(line)):
            frames[-1] = msgspec.structs.replace(frames[-1], source=match["source"][:500])
    return None, end


def _origin(lines: list[str], index: int) -> str:
    previous = lines[index - 1].strip() if index else ""
    return previous if _ORIGIN.match(previous) else ""


def parse_rest(lines: list[str], index: int) -> PythonError | None:
    """One more exception of those that began within a traceback: its frames are mixed with those of others."""
    error, _ = _read(lines, index, index, 0, 0)
    if error is not None:
        error.is_torn = True
    return error


def _read(lines: list[str], first: int, index: int, margin: int, depth: int) -> tuple[PythonError | None, int]:
    """Frames from `index` on, then the exception; headers in between belong to other processes."""
    frames: list[PythonFrame] = []
    open_headers, stray, start = 0, 0, index
    end = min(len(lines), index + 8_000)
    while index < end:
        line = lines[index]
        if match := _FRAME.match(line):
            frames.append(PythonFrame(match["file"], int(match["line"]), match["function"] or "<module>"))
        elif is_header(line):
            open_headers += 1
        elif _is_within(line, margin, bool(frames)):
            source = line.strip(" |")
            if frames and frames[-1].source is None and source and not re.fullmatch(r"[~^ ]+", source):
                frames[-1] = msgspec.structs.replace(frames[-1], source=source[:500])
        elif (match := _exception(_unindented(line, margin))) is not None or not (frames or index == start):
            break
        else:
            stray += 1
            if stray > _STRAY_LINES or not _goes_on(lines, index + 1, margin):
                return None, index
        index += 1
    if index >= end:
        return None, index
    match = _exception(_unindented(lines[index], margin))
    if match is None:
        return None, index
    error = PythonError(
        match["type"], match["message"] or "", [], frames, first, index + 1, index + 1, open_headers=open_headers,
        is_torn=open_headers > 0,
    )  # fmt: skip
    _read_message(lines, error, margin, depth)
    return error, error.end


def _unindented(line: str, margin: int) -> str:
    return line[margin:] if not line[:margin].strip() else line


def _goes_on(lines: list[str], index: int, margin: int) -> bool:
    """Whether a frame, or the exception, follows within a few lines."""
    return any(
        _FRAME.match(line) or (_exception(_unindented(line, margin)) is not None and not is_header(line))
        for line in lines[index : index + _STRAY_RUN]
    )


def _is_within(line: str, margin: int, has_frames: bool) -> bool:
    """Whether a line is source, carets or another part of the frames."""
    if _REPEATED.match(line):
        return True
    text = line.replace("|", " ") if margin and "|" in line[: margin + 4] else line
    indent = len(text) - len(text.lstrip(" \t"))
    if not has_frames:
        return False
    return indent > margin + 1 and (indent >= margin + 3 or not text.strip()) if text.strip() else False


def _exception(text: str) -> re.Match[str] | None:
    match = _EXCEPTION.match(text.lstrip(" |"))
    if match is None or match["type"] in _NOT_TYPES:
        return None
    name = match["type"].rsplit(".", 1)[-1]
    return (
        match if name[:1].isupper() or "." in match["type"] or name.lower().endswith(("error", "exception")) else None
    )


def _read_message(lines: list[str], error: PythonError, margin: int, depth: int) -> None:
    """The further lines of the message, with a traceback in it."""
    if depth >= MAX_DEPTH:
        return
    index = error.end
    if "RayTaskError(" in error.type and index < len(lines) and _FRAME.match(lines[index]):
        error.inner, index = _read(lines, index, index, 0, depth + 1)
        if error.inner is not None:
            error.end, error.head_end = error.inner.end, error.inner.head_end
        return
    while index < len(lines) and index < error.end + MAX_DETAILS:
        line = _unindented(lines[index], margin)
        if error.open_headers and (_FRAME.match(line) or _exception(line) is not None):
            break
        if passed := _INNER.match(line.strip()):
            inner, index = _inner(lines, index, depth + 1)
            if inner is not None:
                error.inner, error.end = inner, max(index, error.end)
                error.head_end = inner.head_end
                number = passed["process"] or passed["rank"]
                error.process = int(number) if number else None
                return
            break
        is_blank = not line.strip()
        if _LOGGED.match(line) or line.strip() in (_DIRECT, _DURING) or is_header(line) or line.startswith("====="):
            break
        if (is_blank and not _continues(lines, index)) or counted_step(line) is not None:
            break
        if _ORIGIN.match(line):
            break
        error.details.append(line.rstrip()[:500])
        index += 1
    while error.details and not error.details[-1].strip():
        error.details.pop()
    error.end += len(error.details)


def _continues(lines: list[str], index: int) -> bool:
    """Whether a message goes on behind this blank line: known multi-part messages do."""
    following = lines[index + 1].strip() if index + 1 < len(lines) else ""
    return following.startswith(("-- Process ", "Original Traceback", "CUDA kernel errors", "For debugging", "Compile with",
                                 "Last error", "Exception raised from", "ray::"))  # fmt: skip


def _inner(lines: list[str], index: int, depth: int) -> tuple[PythonError | None, int]:
    while index < len(lines) and not is_header(lines[index]) and not _FRAME.match(lines[index]):
        index += 1
    if index >= len(lines):
        return None, index
    if is_header(lines[index]):
        return parse_traceback(lines, index, depth)
    return _read(lines, index, index, 0, depth)


def _after_blanks(lines: list[str], index: int) -> int:
    while index < len(lines) and not lines[index].strip(" |"):
        index += 1
    return index


def _is_foreign(file: str) -> bool:
    """Whether a file belongs to Python, to an installed package, or is none at all."""
    return file.startswith("<") or is_library(file) or "/lib/python3" in file or "/site-packages/" in file
