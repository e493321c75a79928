"""Fatal failures that are not Python tracebacks: signals, C++ exceptions, watchdogs, CUDA kernels, MPI, JAX, arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ..hang.verdict import Site
from ..stacks.frames import is_library
from .categories import CATEGORIES, category_of
from .launchers import SIGNAL_NAMES, SIGNALS
from .verdict import CrashFailure

#: Lines of a native stack or of the details of a C++ exception.
MAX_LINES: Final = 60
#: A line without any of these is none of the failures below.
FATAL_TRIGGER: Final = re.compile(
    r"Fatal Python error|terminate called|libc\+\+abi|corrupt|free\(\)|malloc\(\)|munmap_chunk|stack smashing|ault|[Ss]ignal|SIG|Killed|Aborted|Bus error|Illegal instr"
    r"|Assertion|: error: |\[E|\[W|NCCL WARN|^F[0-9]|\bF[0-9]{4} |Check failed|MPI_|panicked at|ProcessGroup|Terminating process because|core dumped|Floating point exception"
)
_SIGNAL_CATEGORY: Final = {6: "abort", 9: "killed", 15: "terminated", 2: "interrupted"}
_STACK_FRAME: Final = re.compile(
    r'^\s*File "(?P<file>[^"]{1,2000})", line (?P<line>[0-9]{1,9}),? in (?P<function>.{1,400})$'
)
_C10D: Final = re.compile(
    r"^\[(?P<level>[EW])(?:[0-9]{4} \S+)? ?(?:[0-9]+ )?\S{0,200}\.(?:cpp|cc|hpp|h|cu):[0-9]+\] (?P<message>.*)$|^\[(?P<level2>[EW]) (?P<message2>.*)$"
)
_GLOG: Final = re.compile(
    r"^F[0-9]{4} [0-9:. ]+ {0,4}[0-9]* \S{1,300}\] (?P<message>.*)$|^\S{0,300}\.(?:cc|cpp|h):[0-9]+\] Check failed: (?P<check>.*)$"
)
_NAMES: Final = "Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception|Killed|Terminated"
_SHELL: Final = re.compile(
    rf"^(?:\S{{1,300}}: line [0-9]+: +)?(?P<pid>[0-9]{{1,9}})? *(?P<name>{_NAMES})(?P<core> +\(core dumped\))?(?: {{2,}}(?P<command>\S.*))?$"
)
_HANDLER: Final = re.compile(
    r"\*\*\* (?P<absl>SIG[A-Z]{2,6}) (?:\(@\S+\) )?received (?:at time|by PID)|!!!!!!! Segfault encountered|^\[[^\]]{1,200}\] Signal: (?P<mpi>[A-Za-z ]{3,40}?) \([0-9]+\)"
    r"|Caught signal (?P<ucx>[0-9]{1,2}) \("
)
_CUDA_ASSERT: Final = re.compile(
    r"^(?P<file>\S{1,500}\.(?:cu|cuh|h|hpp)):(?P<line>[0-9]{1,7}): (?P<function>.{1,300}?): block: \[.{1,60}\], thread: \[.{1,60}\],? Assertion `(?P<condition>.{1,300})` failed"
)
_C_ASSERT: Final = re.compile(
    r"^\S{1,200}: (?P<file>\S{1,500}):(?P<line>[0-9]{1,7}): (?P<function>.{1,300}): Assertion [`'](?P<condition>.{1,300})' failed"
)
_GLIBC: Final = re.compile(
    r"^(?:\*\*\* (?:Error in|stack smashing detected).*|(?:double free or corruption|malloc\(\)|free\(\)|munmap_chunk\(\)|realloc\(\)|corrupted (?:size|double-linked)|malloc_consolidate\(\)|tcache_thread_shutdown\(\)).{0,200})$"
)
_USAGE: Final = re.compile(r"^(?P<program>[\w./-]{1,200}): error: (?P<message>.{1,500})$")
_MPI_ERROR: Final = re.compile(
    r"^(?:\[[^\]]{1,200}\] )?\*\*\* (?P<what>An error occurred in MPI_\w+)|^Fatal error in (?P<fatal>P?MPI_\w+: .{1,300})"
)
_PANIC: Final = re.compile(r"^thread '(?P<thread>[^']{0,100})' (?:\([0-9]+\) )?panicked at (?P<message>.{1,500})$")


class Fatal(msgspec.Struct, frozen=True):
    """One failure, and the index behind its lines."""

    type: str
    message: str
    category: str
    end: int
    details: tuple[str, ...] = ()
    site: Site | None = None
    pid: int | None = None
    rank: int | None = None

    def failure(self, redacted: Callable[[str, int], str]) -> CrashFailure:
        """As a failure whose texts are passed through `redacted`."""
        return CrashFailure(
            type=redacted(self.type, 200), message=redacted(self.message, 500), category=self.category,
            role=CATEGORIES[self.category].role, details=redacted("\n".join(self.details), 2_000), site=self.site,
            pid=self.pid, rank=self.rank, is_uncaught=self.type not in ("c10d", "NCCL WARN", "CUDA assertion"),
        )  # fmt: skip


def fatal_at(lines: list[str], index: int) -> Fatal | None:
    """The failure that begins in this line; None if none does."""
    for parse in _PARSERS:
        if (fatal := parse(lines, index)) is not None:
            return fatal
    return None


def _python(lines: list[str], index: int) -> Fatal | None:
    """`Fatal Python error`, with the stack of the thread that caused it, innermost call first."""
    _, sep, message = lines[index].partition("Fatal Python error: ")
    if not sep:
        return None
    end, frames, is_current = index + 1, [], False
    while end < len(lines) and end < index + 2_000:
        line = lines[end]
        if match := _STACK_FRAME.match(line):
            if is_current:
                frames.append(Site(match["function"], match["file"], int(match["line"]), None))
        elif re.match(r"^(?:Current thread|Thread) 0x", line):
            is_current = line.startswith("Current")
        elif line.strip() and not line.startswith(
            ("Python runtime state", "  ", "Extension modules", "Current thread's C", "<")
        ):
            break
        end += 1
    own = [frame for frame in frames if not is_library(frame.file) and not frame.file.startswith("<")]
    site = own[0] if own else frames[0] if frames else None
    name = message.split("\n")[0].strip().lower()
    category = (
        _category_of_signal(SIGNALS.get(name.replace("-", " "), 0)) if name.replace("-", " ") in SIGNALS else "abort"
    )
    return Fatal("Fatal Python error", message, category, end, (), site)


def _cpp(lines: list[str], index: int) -> Fatal | None:
    match = re.search(
        r"terminate called after throwing an instance of '(.{1,300})'|libc\+\+abi: terminating (?:due to|with) uncaught exception of type (.{1,300})",
        lines[index],
    )
    if match is None:
        if "terminate called without an active exception" in lines[index]:
            return Fatal("std::terminate", "called without an active exception", "teardown_noise", index + 1)
        return None
    message, end, details = "", index + 1, []
    if end < len(lines) and (what := re.match(r"^\s*what\(\):\s+(.*)$", lines[end])):
        message, end = what[1], end + 1
        while (
            end < len(lines)
            and end < index + MAX_LINES
            and lines[end].strip()
            and not lines[end].startswith("Traceback")
        ):
            if re.match(r"^(?:\[[EWIF]|[EWIF][0-9]{4} )", lines[end]):
                break
            details.append(lines[end][:500])
            end += 1
    name = match[1] or match[2]
    category = category_of("\n".join((f"{name}: {message}", *details[:8]))).id
    site = _raised_from(details)
    return Fatal(name, message, "native_exception" if category == "exception" else category, end, tuple(details), site)


def _raised_from(details: list[str]) -> Site | None:
    for line in details:
        if match := re.match(r"^Exception raised from (.{1,300}) at (\S{1,500}):([0-9]{1,7})", line):
            return Site(match[1], match[2], int(match[3]), None)
    return None


def _c10d(lines: list[str], index: int) -> Fatal | None:
    """An error that PyTorch's process groups and stores log from C++."""
    match = _C10D.match(lines[index])
    if match is None:
        return None
    message = match["message"] or match["message2"] or ""
    category = category_of(f"c10d: {message}")
    if category.role != "consequence" and (match["level"] or match["level2"]) != "E":
        return None
    if category.id in ("exception", "nan", "exit", "assertion", "file_missing", "permission"):
        return None
    rank = re.match(
        r"\[PG (?:ID )?0\b[^\]]{0,200} Rank ([0-9]{1,7})\]", message
    )  # of other groups it is the rank in it
    return Fatal("c10d", message, category.id, index + 1, rank=int(rank[1]) if rank else None)


def _nccl(lines: list[str], index: int) -> Fatal | None:
    _, sep, message = lines[index].partition("NCCL WARN ")
    if not sep:
        return None
    category = category_of(f"NCCL WARN: {message}")
    if category.id in ("exception", "nan", "file_missing", "permission", "exit", "limit"):
        return None
    return Fatal("NCCL WARN", message, category.id, index + 1)


def _signal(lines: list[str], index: int) -> Fatal | None:
    line = lines[index]
    if match := _HANDLER.search(line):
        name = (match["absl"] or match["mpi"] or "SIGSEGV").lower()
        number = int(match["ucx"]) if match["ucx"] else SIGNALS.get(name, 11)
        end = index + 1
        while (
            end < len(lines)
            and end < index + MAX_LINES
            and re.match(r"^\s*(?:@|PC:|\[ ?[0-9]+\]|\[[^\]]{1,200}\] |=+|frame #|[0-9]+ +0x|\s)", lines[end])
        ):
            end += 1
        return Fatal(
            _name_of(number), line.strip(" *!"), _category_of_signal(number), end, tuple(lines[index + 1 : end])
        )
    match = _SHELL.match(line.strip())
    if match and (
        match["pid"] or match["core"] or line.strip() in ("Killed", "Segmentation fault", "Bus error", "Aborted")
    ):
        number = SIGNALS[match["name"].lower()]
        command = f": {match['command']}" if match["command"] else ""
        pid = int(match["pid"]) if match["pid"] else None
        return Fatal(_name_of(number), f"{match['name']}{command}", _category_of_signal(number), index + 1, pid=pid)
    return None


def _assertion(lines: list[str], index: int) -> Fatal | None:
    """A failed assertion of a CUDA kernel, which every thread prints, or of C code."""
    line = lines[index]
    if match := _CUDA_ASSERT.match(line):
        end = index + 1
        while end < len(lines) and _CUDA_ASSERT.match(lines[end]):
            end += 1
        message = f"`{match['condition']}` failed in {match['function']} at {match['file']}:{match['line']}"
        return Fatal("CUDA assertion", message, "device_assert", end)
    if match := _C_ASSERT.match(line):
        site = Site(match["function"], match["file"], int(match["line"]), None)
        return Fatal("Assertion", f"`{match['condition']}` failed", "abort", index + 1, site=site)
    return Fatal("SIGABRT", line.strip(), "abort", index + 1) if _GLIBC.match(line) else None


def _log(lines: list[str], index: int) -> Fatal | None:
    """A fatal line of glog or absl: XLA, JAX, gRPC; a Rust panic; an error of MPI; rejected arguments."""
    line = lines[index]
    if match := _GLOG.match(line):
        message = match["message"] or f"Check failed: {match['check']}"
        category = category_of(f"F: {message}").id
        category = "abort" if category in ("exception", "assertion") else category
        details = tuple(text[:500] for text in lines[index + 1 : index + 6] if not _GLOG.match(text))
        return Fatal("fatal check", message, category, index + 1, details)
    if match := _PANIC.match(line):
        return Fatal("panic", match["message"], "native_exception", index + 1)
    if match := _MPI_ERROR.match(line):
        text = "\n".join(lines[index : index + 6])
        category = category_of(text).id
        return Fatal(
            "MPI", match["what"] or match["fatal"], "unknown_exit" if category == "exception" else category, index + 1
        )
    if (match := _USAGE.match(line)) and any(
        before.lower().lstrip().startswith("usage:") for before in lines[max(0, index - 200) : index]
    ):
        return Fatal("arguments", match["message"], "usage", index + 1)
    return None


def _category_of_signal(number: int) -> str:
    return _SIGNAL_CATEGORY.get(number, "segfault" if number in (4, 5, 7, 8, 11) else "unknown_exit")


def _name_of(number: int) -> str:
    return SIGNAL_NAMES.get(number, f"signal {number}")


_PARSERS: Final = (_python, _cpp, _c10d, _nccl, _signal, _assertion, _log)
