"""Evaluates one expression in the process of a rank, through gdb and a pending call of CPython.

gdb attaches, maps a page, writes the program into it, registers `PyRun_SimpleString` by `Py_AddPendingCall`, and
detaches, all within a fraction of a second: neither call needs the GIL or the allocator. The main thread then runs the
program between two bytecodes. If it does not reach one in time, the program is replaced by an empty one.

gdb runs as the user of the rank, without capabilities, and opens no file that the rank could name: it gets no symbols,
and addresses that were read from the rank's memory.
"""

import os
import random
import re
import struct
import time

from ..agent import commands
from ..agent.requests import RequestError
from ..proc import programs
from ..proc.procfs import ProcFs, printable
from ..proc.symbols import BadImage, find_symbol
from ..proc.user_files import RightsOf
from . import eval_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent
    from ..samplers.base import Fields

GDB = "/usr/bin/gdb"
MAX_EXPRESSION = 4096
#: Seconds. Limit of gdb, and of waiting for the main thread.
GDB_S, MOST_WAIT_S = 20.0, 60.0
POLL_S = 0.02
#: Bytes of the mapped region: the program, then the result.
PROGRAM_BYTES, RESULT_BYTES = 32768, 32768
#: Versions of CPython that this was tried with.
OLDEST, NEWEST = (3, 6), (3, 13)
_PAGE = 4096
#: Where regions are mapped: below libraries and heap, above ET_EXEC programs.
_LOWEST, _HIGHEST = 0x200000000000, 0x400000000000
_LIBC = re.compile(rb"/(?:libc[.-][^/]*so[^/]*|ld-musl[^/]*)$")
_PYTHON = re.compile(rb"/(?:libpython|python|pypy)[^/]*$")
_DONE = re.compile(rb"gconsole call (-?\d+)")
#: Calls of one process that timed out; CPython has room for 32 until its main thread executes bytecode.
_MOST_TIMEOUTS = 8
_timeouts: "dict[tuple[int, int], int]" = {}


def run_eval(agent: "Agent", args: "Fields") -> "Fields":
    """{"outcome": "value" or "error", "place", "type", "text", "paused_s"}. Raises RequestError."""
    if agent.config.get("allow_eval") is not True:
        raise RequestError("eval_off", "eval is off on this node", "set [agent] allow_eval = true for it")
    text, pid, ticks = args["expression"], int(args["pid"]), int(args["start_ticks"])
    if not isinstance(text, str) or not 0 < len(text) <= MAX_EXPRESSION or "\0" in text:
        raise RequestError("bad_request", "an expression has 1 to %d characters" % MAX_EXPRESSION)
    procfs = ProcFs()
    _require_rank(agent, procfs, pid, ticks)
    if _timeouts.get((pid, ticks), 0) >= _MOST_TIMEOUTS:
        raise RequestError("eval_pending", "%d calls wait for the main thread of pid %d" % (_MOST_TIMEOUTS, pid))
    wait_s = min(MOST_WAIT_S, max(0.1, float(args["timeout_s"])))
    address = _free_address(procfs.maps(pid))
    source = _source(text, time.time() + wait_s + GDB_S, address)
    agent.outbox.post([("log", {"source": "agent", "severity": "warning",
                                "text": "an expression is evaluated in pid %d" % pid})])  # fmt: skip
    paused_s = _register(procfs, pid, address, source)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        result = _result(pid, address + PROGRAM_BYTES)
        if result is not None:
            return dict(_parsed(result), paused_s=paused_s)
        time.sleep(POLL_S)
    _cancel(pid, address)
    _timeouts[pid, ticks] = _timeouts.get((pid, ticks), 0) + 1
    problem = "the main thread executed no Python bytecode within %.0f s: it is in a call of C code" % wait_s
    raise RequestError("eval_timeout", problem, "it is not evaluated later; a stack shows where the thread is")


def _require_rank(agent: "Agent", procfs: "ProcFs", pid: int, ticks: int) -> None:
    """Raises RequestError unless the process is a rank of this node that this can be done to."""
    snapshot = agent.context.shared.get("processes")
    ranks = {(rank.pid, rank.start_ticks) for rank in (snapshot.ranks if snapshot is not None else ())}
    if (pid, ticks) not in ranks:
        raise RequestError("no_rank", "pid %d is not a rank of this node" % pid)
    if not os.access(GDB, os.X_OK):
        raise RequestError("no_debugger", "%s is not installed on this node" % GDB, "install gdb")
    if os.uname().machine != "x86_64":
        raise RequestError("unsupported", "eval was not tried on %s" % os.uname().machine)
    version = programs.version_of(procfs, pid)
    if version is None or version.free_threaded or not OLDEST <= tuple(version.number) <= NEWEST:
        name = str(version) if version is not None else "a Python of unknown version"
        raise RequestError("unsupported", "eval was not tried with %s" % name, "CPython 3.6 to 3.13 with a GIL")
    fields = dict(line.split(b":", 1) for line in procfs.read_at_once(pid, "status").splitlines() if b":" in line)
    if fields.get(b"TracerPid", b"0").strip() != b"0":
        raise RequestError("traced", "pid %d is traced by another program" % pid)
    if fields.get(b"State", b" ").split()[0] in (b"T", b"t", b"Z", b"X", b"D"):
        raise RequestError("not_running", "pid %d is stopped, ended or hangs in the kernel" % pid)


def _register(procfs: "ProcFs", pid: int, address: int, source: bytes) -> float:
    """Register the program in the process; seconds for which it was paused at most. Raises RequestError."""
    addresses = _addresses(procfs, pid)
    script = _script(addresses, address, source)
    began = time.monotonic()
    try:
        status, out, err = commands.run_apart(
            "gdb_call", GDB_S, pid=pid, given=script, user=RightsOf.of_process(procfs, pid), may_trace=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except commands.CommandTimeout:
        raise RequestError("no_debugger", "gdb did not finish within %.0f s" % GDB_S)
    except OSError as error:
        raise RequestError("no_debugger", "gdb cannot be run: %s" % error)
    took_s = time.monotonic() - began
    done = _DONE.search(out)
    if done is None:
        lines = [line for line in err.decode("utf-8", "replace").splitlines() if not line.startswith("warning")]
        refused = [line for line in lines if "not permitted" in line]
        text = printable((refused or lines or ["exit status %s" % status])[-1], 300)
        try_ = "kernel.yama.ptrace_scope, or the capabilities of a container, may forbid to trace" if refused else ""
        raise RequestError("no_permission" if refused else "debugger_failed", "gdb: %s" % text, try_)
    if int(done.group(1)) != 0:
        raise RequestError("eval_pending", "the process has too many pending calls")
    return took_s


def _addresses(procfs: "ProcFs", pid: int) -> "dict[bytes, int]":
    """Addresses of the functions to call, from the symbol tables in memory. Raises RequestError."""
    images: "dict[bytes, int]" = {}
    for line in procfs.maps(pid).splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and (_LIBC.search(words[5]) or _PYTHON.search(words[5])):
            images.setdefault(words[5], int(words[0].split(b"-")[0], 16))
    addresses: "dict[bytes, int]" = {}
    for path, base in images.items():
        wanted = (b"mmap",) if _LIBC.search(path) else (b"Py_AddPendingCall", b"PyRun_SimpleString")
        for name in wanted:
            try:
                offset = find_symbol(lambda place, size: _read(pid, place, size), base, name)
            except (BadImage, OSError):
                continue
            if offset is not None:
                addresses.setdefault(name, base + offset)
    for name in (b"mmap", b"Py_AddPendingCall", b"PyRun_SimpleString"):
        if name not in addresses:
            raise RequestError("unsupported", "%s was not found in pid %d" % (name.decode(), pid))
    return addresses


def _script(addresses: "dict[bytes, int]", address: int, source: bytes) -> bytes:
    """The commands for gdb. They consist of numbers: no text of a user is in them."""
    lines = [
        "set confirm off", "set pagination off", "set unwindonsignal on", "set language c",
        "handle all nostop noprint pass",
        "set $page = ((long (*)(long, long, long, long, long, long)) %d)(%d, %d, 3, 34, -1, 0)"
        % (addresses[b"mmap"], address, PROGRAM_BYTES + RESULT_BYTES),
        "if $page == %d" % address,
    ]  # fmt: skip
    padded = source + b"\0" * (8 - len(source) % 8)
    for offset in range(0, len(padded), 8):
        (word,) = struct.unpack_from("<Q", padded, offset)
        lines.append("set *(unsigned long *) %d = %dUL" % (address + offset, word))
    call = "((int (*)(long, long)) %d)(%d, %d)" % (
        addresses[b"Py_AddPendingCall"], addresses[b"PyRun_SimpleString"], address
    )  # fmt: skip
    lines += ['printf "gconsole call %d\\n", ' + call, "end", "detach", "quit"]
    return ("\n".join(lines) + "\n").encode("ascii")


def _source(text: str, until_s: float, address: int) -> bytes:
    """The program as text for PyRun_SimpleString, which must not raise."""
    program = "%s\n\nrun(%r, %r, %d, %d)\n" % (
        commands.source_of(eval_program.__name__), text, until_s, address + PROGRAM_BYTES,
        RESULT_BYTES - eval_program.HEADER_BYTES,
    )  # fmt: skip
    started = "try:\n exec(compile(%a, %a, 'exec'), {'__name__': 'gconsole_eval'})\nexcept BaseException:\n pass\n"
    source = (started % (program, eval_program.FILE)).encode("ascii")
    if len(source) >= PROGRAM_BYTES:
        raise RequestError("bad_request", "the expression is too long")
    return source


def _free_address(maps: bytes) -> int:
    """A random address where nothing is mapped."""
    taken = [tuple(int(part, 16) for part in line.split(None, 1)[0].split(b"-")) for line in maps.splitlines() if line]
    size = PROGRAM_BYTES + RESULT_BYTES
    for _ in range(100):
        address = random.randrange(_LOWEST, _HIGHEST, _PAGE)
        if not any(begin < address + size and address < end for begin, end in taken):
            return address
    raise RequestError("unsupported", "no free address")


def _read(pid: int, address: int, size: int) -> bytes:
    fd = os.open("/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, address)
    finally:
        os.close(fd)


def _cancel(pid: int, address: int) -> None:
    """Replace a program that has not started by an empty one. Raises RequestError."""
    try:
        fd = os.open("/proc/%d/mem" % pid, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, b"\0", address)
        finally:
            os.close(fd)
    except OSError as error:
        raise RequestError("gone", "the expression cannot be cancelled: %s" % error)


def _result(pid: int, address: int) -> "bytes | None":
    """The result in the memory of the process; None as long as there is none. Raises RequestError."""
    try:
        header = _read(pid, address, eval_program.HEADER_BYTES)
        length, is_done = struct.unpack("<II", header)
        if is_done != 1:
            return None
        return _read(pid, address + eval_program.HEADER_BYTES, min(length, RESULT_BYTES - eval_program.HEADER_BYTES))
    except (OSError, struct.error, ValueError, OverflowError) as error:
        raise RequestError("gone", "the result cannot be read: %s" % error)


def _parsed(data: bytes) -> "Fields":
    """The fields of a result; the rank may have written anything."""
    parts: "list[Any]" = data.decode("utf-8", "replace").split("\n", 3)
    outcome, place, kind, text = parts + [""] * (4 - len(parts))
    is_value = outcome == "value"
    return {
        "outcome": "value" if is_value else "error", "place": printable(place, 300) or None,
        "type": printable(kind, 100), "text": text,
    }  # fmt: skip
