"""Targets for memory of a process, answers of the agent's children, profiles and traces."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from gconsole.analysis.stacks.profiles import RankProfile
from gconsole.session.export import foreign_traces
from gconsole.session.format.layout import SessionError
from gconsole_remote.agent import wire
from gconsole_remote.agent.requests import RequestError
from gconsole_remote.comms import answers
from gconsole_remote.comms.flight_recorder import FlightRecorderDump
from gconsole_remote.comms.nccl_log import LogEntries
from gconsole_remote.comms.nccl_ras import RasStatus
from gconsole_remote.proc import apart, limited
from gconsole_remote.proc.environ import EnvironReader, LiveEnviron
from gconsole_remote.proc.process_reader import ProcessReader
from gconsole_remote.samplers import locals as watched
from gconsole_remote.stacks import call_memory, evaluate, profile, py_spy, source_lines, task_values

from .places import MemoryProcFs, folder_with

PID, BASE = 7, 0x10000
_STATUS = b"Uid:\t%d\t%d\t%d\t%d\n" % ((os.geteuid(),) * 4)
#: Opened once: the memory of the process.
_memory: list[int] = []


def read_memory(data: bytes) -> None:
    """Memory of a process from `BASE` on, with maps in front: the ELF image of its libc and its live environment."""
    maps, _, memory = data.partition(b"\n\n")
    if not _memory:
        _memory.append(os.memfd_create("fuzzed"))
    os.ftruncate(_memory[0], 0)
    os.pwrite(_memory[0], memory, BASE)
    procfs = MemoryProcFs(maps=maps, environ=b"RANK=1\0X=2\0", status=_STATUS)
    procfs.opened = _memory[0]
    reader = EnvironReader(procfs, ["RANK"])
    for address in (reader.locate(PID).address, BASE):
        values = reader.live(PID, LiveEnviron(address), BASE)
        assert values is None or set(values) <= {"RANK"}


def memory_seeds() -> list[bytes]:
    maps = b"%x-%x r--p 00000000 00:01 5      /usr/lib/libc.so.6\n\n" % (BASE, BASE + 0x1000)
    strings = b"RANK=5\0WORLD_SIZE=8\0"
    array = struct.pack("<QQQQ", BASE + 8, BASE + 40, BASE + 47, 0)
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", 1, 0x11, 0, 1, 0x400, 8)
    names = b"\0environ\0__environ\0"
    hashes = struct.pack("<IIII", 1, 2, 1, 0) + struct.pack("<II", 0, 0)
    dynamic = struct.pack("<qQqQqQqQ", 6, BASE + 0x200, 5, BASE + 0x260, 4, BASE + 0x280, 0, 0)
    header = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x1000, 0x1000, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0x100, 64, 64, 8)
    image = bytearray(0x420)
    for at, part in ((0, header), (64, load + segment), (0x100, dynamic), (0x200, symbols), (0x260, names),
                     (0x280, hashes), (0x400, struct.pack("<Q", BASE + 8))):  # fmt: skip
        image[at : at + len(part)] = part
    return [maps + array + bytes(8) + strings, maps + bytes(image)]


def read_child(data: bytes) -> None:
    """The answer of a child of the agent: only checked values pass."""
    with contextlib.suppress(ValueError):
        values = limited._values(data)
        for answer in values if isinstance(values, list) else [values]:
            value = apart.value_of(answer)
            assert not isinstance(value, BaseException) or isinstance(value, OSError | ValueError)
            with contextlib.suppress(ValueError):
                reading = ProcessReader(MemoryProcFs(), ["RANK"], ())._checked(value, LiveEnviron(1, 2))
                assert json.dumps([reading.argv, reading.env]).encode()
            _check_memory_answers(value)
    for kind, check in (
        (FlightRecorderDump, answers.check_dump), (RasStatus, answers.check_ras), (LogEntries, answers.check_log),
    ):  # fmt: skip
        with contextlib.suppress(ValueError):
            parsed: Any = check(limited._restored(kind, data))
            for fields in getattr(parsed, "entries", None) or getattr(parsed, "groups", ()):
                assert not {"kind", "seq", "t", "mono"}.intersection(fields)
                wire.encode(fields)
    with contextlib.suppress(ValueError):
        restored: Any = limited._restored(py_spy.ThreadValues, data)
        if not hasattr(restored, "values"):
            return
        for thread in restored.threads():
            assert all(len(function) <= 256 and len(file) <= 512 for function, file, _, _ in thread.frames)
            json.dumps([thread.name, thread.frames, thread.locals], ensure_ascii=False).encode()


COLLECTIVE = {"record_id": 1, "retired": False, "profiling_name": "nccl:all_reduce", "process_group": ["0", "pg"],
              "frames": [{"function": "f", "file": "/x", "line": 1}], "input_sizes": [[2, 3]], "duration_ms": 0.5,
              "input_dtypes": ["Float"], "is_p2p": False}  # fmt: skip


def _check_memory_answers(value: Any) -> None:
    """The answers of children that read memory."""
    with contextlib.suppress(ValueError):
        assert all(len(fields["tasks"]) <= 16 for fields in task_values.to_fields(value, list))
    with contextlib.suppress(ValueError):
        pointed = call_memory.PointedTo(value)
        assert pointed.path.isprintable()
        pointed.time_left_s("pselect6", [0] * 6)
    with contextlib.suppress(ValueError):
        values, problem = watched.checked(value, ["step"])
        json.dumps([values, problem], ensure_ascii=False, allow_nan=False).encode()
    memory: Any = SimpleNamespace(read=lambda *_: value)
    for check in (evaluate._addresses, lambda memory, pid: evaluate._result(memory, pid, 0)):
        with contextlib.suppress(RequestError):
            check(memory, PID)


def child_seeds() -> list[bytes]:
    thread = [
        True,
        [["step", "/x", 3, False]],
        False,
        [[0, "a", "1"]],
        [["loop", 5]],
        "t",
        [[0, "a", "T", 7]],
        1,
        None,
        1,
    ]
    reading = [["python3", "train.py"], {"RANK": "0"}, True, [4096, 77, {"RANK": "1"}]]
    return [
        json.dumps({"values": [thread, thread]}).encode(), json.dumps([[0, reading], [2, None], [-1, None]]).encode(),
        json.dumps([[0, [["t", [["f", "/x", 3, False]], "Future", 5, 1e5, [0], True]]]]).encode(),
        json.dumps([[0, ["/x", [[5, "read"]], [1, 2]]], [0, [{"step": 1}, None]], [0, [True, "/x:3 f", "int", "6"]],
                    [0, [5, [1, 2, 3]]]]).encode(),
        json.dumps({"version": "2.1", "held": 1, "problems": [], "entries": [COLLECTIVE], "earlier": [], "groups": []}
                   ).encode(),
        json.dumps({"version": "2", "problems": [], "repaired": False, "groups": [{"pid": 1, "op_counts": {"x": 1}}]}
                   ).encode(),
        json.dumps({"bad": 0, "entries": [{"host": "n", "pid": 1, "profiling_name": "nccl:x"}]}).encode(),
        b'"text"', json.dumps([[0, [None, None, False, [None, None, None]]]]).encode(),
    ]  # fmt: skip


def read_profile(data: bytes) -> None:
    """A profile of py-spy; a saved profile of a job; a trace of another tool."""
    for stack, count in profile.parse(data, (1, None)):
        assert stack.isprintable() and count >= 0
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        msgspec.json.decode(data, type=list[RankProfile])
    with folder_with("trace.json", data) as folder:
        path = Path(folder, "trace.json")
        with contextlib.suppress(SessionError):
            trace = foreign_traces.read_trace(path, "n1", {})
            begin, end = foreign_traces._instants(trace)
            assert begin <= end


def profile_seeds() -> list[bytes]:
    events = [{"name": "k", "ph": "X", "ts": 1.7e15, "dur": 5, "pid": 1, "tid": 2, "args": {}},
              {"name": "b", "ph": "B", "ts": "1700000000000000.25", "pid": "rank 1"},
              {"name": "process_name", "ph": "M", "args": {"name": "x"}}]  # fmt: skip
    trace = {"traceEvents": events, "baseTimeNanoseconds": 1700000000000000000, "distributedInfo": {"rank": 1}}
    return [
        b"thread (1): MainThread;main (a.py:1);step (a.py:2) 17\nthread (2): x;f (b.py) 3\n",
        json.dumps(trace).encode(), gzip.compress(json.dumps(trace).encode()),
        json.dumps(events).encode()[:-1] + b",",
    ]  # fmt: skip


#: name → (what, reader, seeds), for `targets.TARGETS`.
SOURCE = b"""\x05def train():
    while not ready():
        time.sleep(1)
\tif done: break
    for batch in data:
        loss.backward()
"""


def read_source(data: bytes) -> None:
    """A source file, behind a byte that is the number of one of the lines to show."""
    wanted = [*data[:1], 1, 2, 3]
    answer = source_lines.parse(json.dumps(wanted).encode() + b"\n" + data[1:], 0.0).value()
    for place in json.loads(json.dumps(answer)):
        for text in source_lines.checked(place):
            assert text is None or (text.isprintable() and len(text) <= 160)


PROCESS_INPUTS: dict[str, tuple[str, Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "memory": ("memory and maps of a process", read_memory, memory_seeds),
    "child": ("answers of children of the agent", read_child, child_seeds),
    "source": ("source files of a process", read_source, lambda: [SOURCE, SOURCE.replace(b"\n", b"\r"), b"\x01"]),
    "profile": ("profiles and traces of other tools", read_profile, profile_seeds),
}
