"""Evaluates one expression in the process of a rank: by `sys.remote_exec` (`remote_exec`), or through gdb and a pending
call of CPython.

gdb attaches, maps a page, writes the program into it, registers `PyRun_SimpleString` by `Py_AddPendingCall`, and
detaches, all within a fraction of a second: neither call needs the GIL or the allocator. The main thread then runs the
program between two bytecodes. If it does not reach one in time, the program is replaced by an empty one.

gdb runs as the user of the rank, without capabilities, and opens no file that the rank could name: it gets no symbols,
and addresses that were read from the rank's memory. First it calls a function in a process that it starts itself.
"""

import os
import random
import re
import struct
import time

from ..agent import commands
from ..agent.requests import RequestError
from ..proc import limited, programs
from ..proc.apart import as_fields, as_number, as_text
from ..proc.memory_readers import MemoryReaders
from ..proc.procfs import ProcFs, printable
from ..proc.symbols import BadImage, find_symbol
from ..proc.user_files import RightsOf
from . import eval_program, remote_exec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent
    from ..samplers.base import Fields

GDB = "/usr/bin/gdb"
#: How an expression is evaluated.
DEBUGGER, REMOTE_EXEC = "gdb", "remote_exec"
MAX_EXPRESSION = 4096
#: Seconds. Limit of gdb, and of waiting for the main thread.
GDB_S, MOST_WAIT_S = 20.0, 60.0
POLL_S = 0.02
#: Bytes of the mapped region: the program, then the result.
PROGRAM_BYTES, RESULT_BYTES = 32768, 32768
#: Versions of CPython that this was tried with.
OLDEST, NEWEST = (3, 6), (3, 14)
_PAGE = 4096
#: Where regions are mapped: below libraries and heap, above ET_EXEC programs.
_LOWEST, _HIGHEST = 0x200000000000, 0x400000000000
_LIBC = re.compile(rb"/(?:libc[.-][^/]*so[^/]*|ld-musl[^/]*)$")
_PYTHON = re.compile(rb"/(?:libpython|python|pypy)[^/]*$")
_DONE = re.compile(rb"gconsole call (-?[0-9]{1,4})\b")
#: What is called: one of libc, then those of Python.
_FUNCTIONS = (b"mmap", b"Py_AddPendingCall", b"PyRun_SimpleString")
#: Characters of a problem of gdb; of the place, the type and the text of a result.
MAX_PROBLEM, _LONGEST = 300, (300, 100, RESULT_BYTES)
#: Calls of one process that timed out; CPython has room for 32 until its main thread executes bytecode.
_MOST_TIMEOUTS = 8
_timeouts: "dict[tuple[int, int], int]" = {}
#: For gdb: start gdb itself, which stops at its first instruction, and call that, after it has become a return.
_CHECK = b"""set confirm off
set pagination off
set startup-with-shell off
set disable-randomization off
set language c
file /usr/bin/gdb
starti
set *(unsigned char *) $pc = 0xc3
printf "gconsole call %d\\n", 0 * ((int (*)(long, long)) $pc)(0, 0)
kill
quit
"""
#: Not empty once gdb has called a function.
_checked: "list[bool]" = []


def run_eval(agent: "Agent", args: "Fields") -> "Fields":
    """{"outcome": "value" or "error", "place", "type", "text", "way", "paused_s"}. Raises RequestError."""
    if agent.config.get("allow_eval") is not True:
        raise RequestError("eval_off", "eval is off on this node", "set [agent] allow_eval = true for it")
    text, pid, ticks = args["expression"], int(args["pid"]), int(args["start_ticks"])
    if not isinstance(text, str) or not 0 < len(text) <= MAX_EXPRESSION or "\0" in text:
        raise RequestError("bad_request", "an expression has 1 to %d characters" % MAX_EXPRESSION)
    procfs = ProcFs()
    way = _way(agent, procfs, pid, ticks)
    wait_s = min(MOST_WAIT_S, max(0.1, float(args["timeout_s"])))
    if way == REMOTE_EXEC:
        return _executed(agent, pid, text, wait_s)
    if _timeouts.get((pid, ticks), 0) >= _MOST_TIMEOUTS:
        raise RequestError("eval_pending", "%d calls wait for the main thread of pid %d" % (_MOST_TIMEOUTS, pid))
    memory = MemoryReaders(procfs, (read_addresses, read_result), (pid,), GDB_S)
    try:
        return _evaluated(agent, memory, pid, ticks, text, wait_s)
    finally:
        memory.close()


def _evaluated(agent: "Agent", memory: "MemoryReaders", pid: int, ticks: int, text: str, wait_s: float) -> "Fields":
    address, addresses = _addresses(memory, pid)
    source = _source(text, time.time() + wait_s + GDB_S, "into_memory(%d)" % (address + PROGRAM_BYTES))
    _report(agent, pid)
    paused_s = _register(pid, _script(addresses, address, source))
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        result = _result(memory, pid, address + PROGRAM_BYTES)
        if result is not None:
            return dict(result, way=DEBUGGER, paused_s=paused_s)
        time.sleep(POLL_S)
    _cancel(pid, address)
    _timeouts[pid, ticks] = _timeouts.get((pid, ticks), 0) + 1
    raise remote_exec.timeout(wait_s)


def _executed(agent: "Agent", pid: int, text: str, wait_s: float) -> "Fields":
    _report(agent, pid)
    source = _source(text, time.time() + wait_s + remote_exec.START_S, "into_file(RESULT)", "RESULT")
    result = remote_exec.execute(pid, source, wait_s, RESULT_BYTES - eval_program.HEADER_BYTES)
    try:
        return dict(_fields(_parsed(result)), way=REMOTE_EXEC, paused_s=0.0)
    except ValueError as error:
        raise RequestError("gone", "the result cannot be read: %s" % error)


def _report(agent: "Agent", pid: int) -> None:
    text = "an expression is evaluated in pid %d" % pid
    agent.outbox.post([("log", {"source": "agent", "severity": "warning", "text": text})])


def _way(agent: "Agent", procfs: "ProcFs", pid: int, ticks: int) -> str:
    """How an expression is evaluated in a process: REMOTE_EXEC where that is possible, else DEBUGGER.

    Raises RequestError unless it is a rank of this node that this can be done to.
    """
    snapshot = agent.context.shared.get("processes")
    ranks = {(rank.pid, rank.start_ticks) for rank in (snapshot.ranks if snapshot is not None else ())}
    if (pid, ticks) not in ranks:
        raise RequestError("no_rank", "pid %d is not a rank of this node" % pid)
    version = programs.version_of(procfs, pid)
    if version is None or version.free_threaded or not OLDEST <= tuple(version.number)[:2] <= NEWEST:
        name = str(version) if version is not None else "a Python of unknown version"
        raise RequestError("unsupported", "eval was not tried with %s" % name, "CPython 3.6 to 3.14 with a GIL")
    way = REMOTE_EXEC if remote_exec.is_possible(procfs, pid, version) else DEBUGGER
    if way == DEBUGGER and os.uname().machine != "x86_64":
        raise RequestError("unsupported", "eval was not tried on %s" % os.uname().machine)
    if way == DEBUGGER and not os.access(GDB, os.X_OK):
        is_new = tuple(version.number)[:2] >= remote_exec.OLDEST
        try_ = "install gdb" + (", or set [agent] python to the same version, outside of containers" if is_new else "")
        raise RequestError("no_debugger", "%s is not installed on this node" % GDB, try_)
    fields = dict(line.split(b":", 1) for line in procfs.read_at_once(pid, "status").splitlines() if b":" in line)
    if fields.get(b"TracerPid", b"0").strip() != b"0":
        raise RequestError("traced", "pid %d is traced by another program" % pid)
    if fields.get(b"State", b" ").split()[0] in (b"T", b"t", b"Z", b"X", b"D"):
        raise RequestError("not_running", "pid %d is stopped, ended or hangs in the kernel" % pid)
    return way


def _register(pid: int, script: bytes) -> float:
    """Register the program in the process; seconds for which it was paused at most. Raises RequestError."""
    _check_calls(pid)
    called, took_s = _gdb("gdb_call", pid, script)
    if called != 0:
        raise RequestError("eval_pending", "the process has too many pending calls")
    return took_s


def _check_calls(pid: int) -> None:
    """Let gdb call a function in a process of its own. Raises RequestError where it cannot.

    A call that fails leaves a process with some of its registers changed. gdb 13 cannot write those of a CPU with AMX.
    """
    if _checked:
        return
    try:
        _gdb("gdb_check", pid, _CHECK)
    except RequestError as error:
        text = "%s (tried in a process of its own; the rank was not touched)" % error
        try_ = error.try_ or "install a newer gdb (13 cannot call functions where the CPU has AMX, 16 can)"
        raise RequestError(error.name, text, try_)
    _checked.append(True)


def _gdb(command: str, pid: int, script: bytes) -> "tuple[int, float]":
    """What the call of a script returned, and the seconds of gdb, as the user of that process. Raises RequestError."""
    began = time.monotonic()
    try:
        user = RightsOf.of_process(ProcFs(), pid)
        status, out, err = commands.run_apart(
            command, GDB_S, pid=pid, given=script, user=user, may_trace=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
        took_s = time.monotonic() - began
        answer = limited.call(lambda: _outcome(out, err)) if user.is_other else _outcome(out, err)
        called, refused, problem = as_fields(answer, 3)
        problem = printable(as_text(problem, MAX_PROBLEM), MAX_PROBLEM)
    except commands.CommandTimeout:
        raise RequestError("no_debugger", "gdb did not finish within %.0f s" % GDB_S)
    except (KeyError, OSError, ValueError) as error:
        raise RequestError("no_debugger", "gdb cannot be run: %s" % error)
    if called is None:
        try_ = "kernel.yama.ptrace_scope, or the capabilities of a container, may forbid to trace" if refused else ""
        text = problem or "exit status %s" % status
        raise RequestError("no_permission" if refused else "debugger_failed", "gdb: %s" % text, try_)
    return int(called), took_s


def _outcome(out: bytes, err: bytes) -> "list[Any]":
    """[what the call returned or None, whether tracing was refused, the problem] of the output of gdb."""
    done = _DONE.search(out)
    lines = [line for line in err.decode("utf-8", "replace").splitlines() if not line.startswith("warning")]
    refused = [line for line in lines if "not permitted" in line]
    called = None if done is None else int(done.group(1))
    return [called, bool(refused), printable((refused or lines or [""])[-1], MAX_PROBLEM)]


def _addresses(memory: "MemoryReaders", pid: int) -> "tuple[int, dict[bytes, int]]":
    """(where the program can be mapped, addresses of the functions to call). Raises RequestError."""
    places = [random.randrange(_LOWEST, _HIGHEST, _PAGE) for _ in range(100)]
    try:
        index, functions = as_fields(memory.read(pid, read_addresses, places), 2)
        numbers = dict(zip(_FUNCTIONS, as_fields(functions, len(_FUNCTIONS))))  # noqa: B905 - Python 3.6
        addresses = {name: as_number(address, 1 << 56) for name, address in numbers.items() if address is not None}
        place = None if index is None else places[as_number(index, len(places))]
    except (OSError, ValueError) as error:
        raise RequestError("gone", "the memory of pid %d cannot be read: %s" % (pid, error))
    for name in _FUNCTIONS:
        if name not in addresses:
            raise RequestError("unsupported", "%s was not found in pid %d" % (name.decode(), pid))
    if place is None:
        raise RequestError("unsupported", "no free address")
    return place, addresses


def read_addresses(procfs: "ProcFs", pid: int, places: "Any") -> "list[Any]":
    """[index of a place where nothing is mapped or None, addresses of `_FUNCTIONS` or None]; in a child, see `apart`.

    They are taken from the symbol tables in memory. Raises OSError and ValueError.
    """
    maps = procfs.maps(pid).splitlines()
    images: "dict[bytes, int]" = {}
    taken: "list[tuple[int, ...]]" = []
    for line in maps:
        words = line.split(None, 5)
        if words:
            taken.append(tuple(int(part, 16) for part in words[0].split(b"-")))
        if len(words) == 6 and (_LIBC.search(words[5]) or _PYTHON.search(words[5])):
            images.setdefault(words[5], taken[-1][0])
    size = PROGRAM_BYTES + RESULT_BYTES
    free = (index for index, place in enumerate(places)
            if not any(begin < place + size and place < end for begin, end in taken))  # fmt: skip
    fd = procfs.open(pid, "mem")
    try:
        return [next(free, None), _functions(fd, images)]
    finally:
        procfs.release(fd)


def _functions(fd: int, images: "dict[bytes, int]") -> "list[int | None]":
    addresses: "dict[bytes, int]" = {}
    for path, base in images.items():
        for name in _FUNCTIONS[:1] if _LIBC.search(path) else _FUNCTIONS[1:]:
            try:
                offset = find_symbol(lambda place, size: os.pread(fd, size, place), base, name)
            except (BadImage, OSError, OverflowError, struct.error):
                continue
            if offset is not None:
                addresses.setdefault(name, base + offset)
    return [addresses.get(name) for name in _FUNCTIONS]


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


def _source(text: str, until_s: float, write: str, given: str = "") -> bytes:
    """The program as text for PyRun_SimpleString or a file, which must not raise; `given`: a name that it gets."""
    program = "%s\n\nrun(%r, %r, %s, %d)\n" % (
        commands.source_of(eval_program.__name__), text, until_s, write, RESULT_BYTES - eval_program.HEADER_BYTES,
    )  # fmt: skip
    names = "{'__name__': 'gconsole_eval'%s}" % (", %r: %s" % (given, given) if given else "")
    started = "try:\n exec(compile(%a, %a, 'exec'), %s)\nexcept BaseException:\n pass\n"
    source = (started % (program, eval_program.FILE, names)).encode("ascii")
    if len(source) >= PROGRAM_BYTES:
        raise RequestError("bad_request", "the expression is too long")
    return source


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


def _result(memory: "MemoryReaders", pid: int, address: int) -> "Fields | None":
    """The fields of the result in the memory of the process; None as long as there is none. Raises RequestError."""
    try:
        answer = memory.read(pid, read_result, address)
        return None if answer is None else _fields(answer)
    except (OSError, ValueError) as error:
        raise RequestError("gone", "the result cannot be read: %s" % error)


def _fields(answer: "Any") -> "Fields":
    """The fields of what `_parsed` returns, checked. Raises ValueError."""
    is_value, *texts = as_fields(answer, 4)
    place, kind, text = (as_text(part, longest) for part, longest in zip(texts, _LONGEST))  # noqa: B905 - Python 3.6
    return {
        "outcome": "value" if is_value is True else "error", "place": printable(place, _LONGEST[0]) or None,
        "type": printable(kind, _LONGEST[1]), "text": text,
    }  # fmt: skip


def read_result(procfs: "ProcFs", pid: int, address: "Any") -> "list[Any] | None":
    """[whether it is a value, place, type, text] of a result, as far as the rank wrote such; None as long as there is
    none. In a child, see `apart`. Raises OSError and ValueError."""
    fd = procfs.open(pid, "mem")
    try:
        header = os.pread(fd, eval_program.HEADER_BYTES, address)
        if len(header) != eval_program.HEADER_BYTES:
            raise ValueError("its memory has changed")
        length, is_done = struct.unpack("<II", header)
        if is_done != 1:
            return None
        most = RESULT_BYTES - eval_program.HEADER_BYTES
        return _parsed(os.pread(fd, min(length, most), address + eval_program.HEADER_BYTES))
    finally:
        procfs.release(fd)


def _parsed(data: bytes) -> "list[Any]":
    parts: "list[str]" = data.decode("utf-8", "replace").split("\n", 3)
    outcome, place, kind, text = parts + [""] * (4 - len(parts))
    return [outcome == "value", printable(place, _LONGEST[0]), printable(kind, _LONGEST[1]), text]
