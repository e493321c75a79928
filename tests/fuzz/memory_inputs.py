"""Targets for objects in the memory of a process: tasks, watched attributes, arguments of system calls, results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from gconsole_remote.agent.requests import RequestError
from gconsole_remote.proc import memory_readers, programs
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers import locals as watched
from gconsole_remote.stacks import call_memory, evaluate, objects, task_values, tasks

from .places import MemoryProcFs

PID, BASE = 7, 0x10000
#: Address and size of a piece of memory, which follows.
PIECE = struct.Struct("<QH")
NAMES = ("trainer.step", "Trainer.options.step", "step", "trainer.slots.step", "Base.limit")
#: Opened once: the memory of the process.
_memory: list[int] = []


class Memory(MemoryProcFs):
    """A process with pieces of memory and a version of Python."""

    def __init__(self, pieces: bytes, version: int, maps: bytes) -> None:
        super().__init__(maps=maps, status=b"Uid:\t%d\t%d\t%d\t%d\n" % ((os.geteuid(),) * 4))
        self._version = version
        if not _memory:
            _memory.append(os.memfd_create("fuzzed"))
        self.opened = _memory[0]
        os.ftruncate(self.opened, 0)
        place = 0
        while place + PIECE.size <= len(pieces):
            address, size = PIECE.unpack_from(pieces, place)
            place += PIECE.size
            with contextlib.suppress(OSError, OverflowError):
                os.pwrite(self.opened, pieces[place : place + size], address)
            place += size

    def link(self, pid: int | str, name: str) -> str:
        return f"/usr/bin/python3.{self._version}"


def read_objects(data: bytes) -> None:
    """Pieces of memory behind a line of JSON: the version of Python, and what to read, as the agent would ask.

    Whatever a reader returns passes the check of its answers.
    """
    line, _, pieces = data.partition(b"\n")
    head = _head(line)
    if head is None:
        return
    procfs = Memory(pieces, head["version"], str(head.get("maps", "")).encode("utf-8", "replace"))
    if "tasks" in head:
        for values in _sent(task_values.read(procfs, PID, head["tasks"])) or ():
            for fields in task_values.to_fields(values, list) if values is not None else ():
                assert all(len(file) <= 512 and line < 1 << 31 for _, file, line, _ in fields["frames"])
    if "threads" in head:
        values, _ = watched.checked(_sent(watched.read_values(procfs, PID, [NAMES, head["threads"]])), NAMES)
        assert all(len(str(value)) <= 40 for value in values.values())
    if "call" in head:
        pointed = call_memory.PointedTo(_sent(call_memory.parse(_pointed_bytes(procfs, head["call"]), 0.0).value())[0])
        pointed.time_left_s(*head["call"])
        assert pointed.path.isprintable()
    if "result" in head:
        with contextlib.suppress(RequestError):
            evaluate._result(_answering(evaluate.read_result, procfs), PID, head["result"])
    if "maps" in head:
        with contextlib.suppress(RequestError):
            evaluate._addresses(_answering(evaluate.read_addresses, procfs), PID)


def _pointed_bytes(procfs: ProcFs, call: Any) -> bytes:
    return call_memory.message([call], memory_readers.read_bytes(procfs, PID, call_memory.places(*call)))


def _answering(read: Callable[..., Any], procfs: ProcFs) -> Any:
    return SimpleNamespace(read=lambda pid, _, request: _sent(read(procfs, pid, request)))


def _sent(values: Any) -> Any:
    """As the answer of a child."""
    return json.loads(json.dumps(values))


def _head(line: bytes) -> dict[str, Any] | None:
    """What the agent asks for, if it may ask so."""
    try:
        head = json.loads(line)
        version, call = head["version"], head.get("call", ["poll", [0] * 6])
        numbers = [
            version,
            head.get("result", 0),
            *call[1],
            *(address for lead in head.get("tasks", ()) for _, address in lead),
        ]
        watched.py_spy.ThreadValues.restored(head.get("threads", [THREAD])).threads()
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
    is_valid = all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
    return (
        head if is_valid and version < 100 and len(call) == 2 and len(call[1]) == 6 and type(call[0]) is str else None
    )


THREAD = [True, [["train", "/x/train.py", 3, False]], False, [], [], "t", [], 1, None, 1]


class Slots:
    __slots__ = ("step",)


class Base:
    limit = 5


class Trainer(Base):
    """What watched attributes are read of."""

    def __init__(self) -> None:
        self.step, self.slots, self.options = 1700, Slots(), {"step": 12}
        self.slots.step = 14


@contextlib.contextmanager
def recorded() -> Iterator[dict[tuple[int, int], bytes]]:
    """What is read of memory meanwhile: {(address, size): bytes}."""
    pieces: dict[tuple[int, int], bytes] = {}
    original = objects.ObjectMemory._read_some

    def noted(memory: objects.ObjectMemory, address: int, size: int) -> bytes:
        pieces[address, size] = data = original(memory, address, size)
        return data

    objects.ObjectMemory._read_some = noted
    try:
        yield pieces
    finally:
        objects.ObjectMemory._read_some = original


def objects_seeds() -> list[bytes]:
    """Memory of this very process, as far as readers look at it; and calls and results."""
    version = programs.version_of(ProcFs(), os.getpid())
    number = version.number[1] if version is not None else 11
    seeds = [
        _seed({"version": number, "call": ["poll", [BASE, 2, 1000, 0, 0, 0]]},
              {(BASE, 16): struct.pack("<ihhihh", 5, 1, 0, 6, 4, 0)}),
        _seed({"version": number, "call": ["pselect6", [70, BASE, BASE + 16, 0, BASE + 32, 0]]},
              {(BASE, 48): b"\x20" + bytes(15) + b"\x80" + bytes(15) + struct.pack("<qq", 5, 10**8)}),
        _seed({"version": number, "call": ["openat", [0, BASE, 0, 0, 0, 0]]}, {(BASE, 20): b"/data/train-0001.bin"}),
        _seed({"version": number, "call": ["futex", [BASE, 128, 2, BASE + 8, 0, 0]]},
              {(BASE, 24): bytes(8) + struct.pack("<qq", 30, 5)}),
        _seed({"version": number, "result": BASE},
              {(BASE, 41): struct.pack("<II", 33, 1) + b"value\n/x/train.py:3 train\nint\n1700"}),
        _seed({"version": number, "maps": f"{BASE:x}-{BASE + 4096:x} r--p 00000000 00:01 5      /usr/lib/libc.so.6\n"},
              {(BASE, 64): b"\x7fELF\x02\x01" + bytes(58)}),
    ]  # fmt: skip
    return [*seeds, _attribute_seed(number), _task_seed(number)]


def _seed(head: dict[str, Any], pieces: dict[tuple[int, int], bytes]) -> bytes:
    parts = [PIECE.pack(address, len(data)) + data for (address, _), data in pieces.items() if data]
    return json.dumps(head).encode() + b"\n" + b"".join(parts)


def _attribute_seed(number: int) -> bytes:
    trainer = Trainer()
    thread = list(THREAD)
    thread[6] = [[0, "trainer", "Trainer", id(trainer)]]
    with recorded() as pieces:
        watched.read_values(ProcFs(), os.getpid(), [NAMES, [thread]])
    return _seed({"version": number, "threads": [thread]}, pieces)


def _task_seed(number: int) -> bytes:
    async def inner() -> None:
        await asyncio.sleep(600)

    async def enters(lock: asyncio.Lock) -> None:
        async with lock:
            await inner()

    async def main() -> None:
        lock = asyncio.Lock()
        await asyncio.gather(enters(lock), enters(lock))

    loop = asyncio.new_event_loop()
    try:
        whole = loop.create_task(main())
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        leads = [["self", id(loop)], ["task", id(whole)]]
        with recorded() as pieces, tasks.TaskMemory(ProcFs(), os.getpid()) as memory:
            memory.tasks(leads)
        whole.cancel()
        loop.run_until_complete(asyncio.gather(whole, return_exceptions=True))
    except objects.Unreadable:
        return _seed({"version": 11, "tasks": []}, {})  # a Python whose structures are not known
    finally:
        loop.close()
    return _seed({"version": number, "tasks": [leads]}, pieces)
