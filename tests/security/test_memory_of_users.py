"""An agent that is root reads and parses no memory of another user's process: children without rights do."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit/remote"))
from live_ranks import Blobs, Ranks, capture, main_thread

from gconsole_remote.proc import limited, memory_readers
from gconsole_remote.proc.memory_readers import MemoryReaders
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers import locals as watched
from gconsole_remote.samplers.base import Context
from gconsole_remote.stacks import call_memory, evaluate, task_values

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as which the agent runs")
ATTACKER, VICTIM = 65_533, 65_534
READY = "import sys, time; sys.stdout.write('ready\\n'); sys.stdout.flush()\n"
#: A rank in an event loop, with an attribute, whose innermost call is a poll of one pipe.
LOOP = """
import asyncio, os, select, sys
class Trainer:
    def __init__(self): self.step = 1700
async def waits():
    await asyncio.sleep(600)
async def main(trainer, pipe):
    other = asyncio.ensure_future(waits())
    other.set_name("other")
    await asyncio.sleep(0.05)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    polls(pipe)
def polls(pipe):
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.poll(600_000)
asyncio.run(main(Trainer(), os.pipe()[0]))
"""


@contextmanager
def process_of(uid: int, code: str = READY + "time.sleep(600)") -> Iterator[subprocess.Popen[str]]:
    argv = ["/usr/bin/python3", "-c", code]
    with subprocess.Popen(argv, user=uid, group=uid, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            deadline = time.monotonic() + 30
            while ProcFs().stat(process.pid).state != "S":
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.fixture
def memory_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of memory and maps that this very process reads from now on; its children have a list of their own.

    Without the bytes that arguments of system calls point to, which it reads for a child.
    """
    paths: list[str] = []
    for name in ("read", "pread"):
        original = getattr(os, name)

        def noted(fd: int, *args: int, original: Any = original) -> bytes:
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if path.endswith(("/mem", "/maps")) and threading.current_thread().name != "gconsole-memory":
                paths.append(path)
            return original(fd, *args)  # type: ignore[no-any-return]

        monkeypatch.setattr(os, name, noted)
    return paths


def seen(process: subprocess.Popen[str]) -> Any:
    ranks = Ranks()
    ranks.processes.append(process)
    return ranks.seen()


@pytest.mark.parametrize("uid", [VICTIM, 0])
def test_tasks_and_what_a_call_points_to_are_parsed_in_children(
    memory_read: list[str], uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    pointed_to = call_memory._pointed_to
    monkeypatch.setattr(call_memory, "_pointed_to", lambda *args: [parsed.append(1), pointed_to(*args)][1])
    with process_of(uid, LOOP) as process:
        _, records = capture(seen(process), tasks=True)
        stack: Any = main_thread(records)
    assert [task.name for task in stack.tasks if task.name == "other"] == ["other"]
    assert [(target.kind, target.direction) for target in stack.waits_for] == [("pipe", "read")]
    assert 500 < stack.thread_wakes_in_s <= 600
    assert bool(memory_read) is bool(parsed) is (uid == 0)


@pytest.mark.parametrize("uid", [VICTIM, 0])
def test_watched_attributes_are_read_in_children(memory_read: list[str], uid: int) -> None:
    with process_of(uid, LOOP) as process:
        logged: list[str] = []
        agent: Any = SimpleNamespace(
            config={"cpu_budget_pct": 2, "watch_locals": ["trainer.step", "Trainer.step"], "watch_every_s": 60.0},
            blobs=Blobs(), on_end=lambda _: None,
            log=lambda _, text, __="": logged.append(text),
        )  # fmt: skip
        context = Context()
        context.shared["processes"] = seen(process)
        made = watched.WatchedSampler(context, agent)
        made.tick(0.0)
        [(_, values)] = context.shared["watched"].values()
    assert (values, logged) == ({"trainer.step": 1700, "Trainer.step": 1700}, [])
    assert bool(memory_read) is (uid == 0)


@pytest.mark.skipif(not os.access(evaluate.GDB, os.X_OK), reason=f"no {evaluate.GDB}: apt-get install gdb")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="eval is for x86_64")
@pytest.mark.usefixtures("needs_gdb_calls")
@pytest.mark.parametrize("uid", [VICTIM, 0])
def test_results_of_expressions_are_read_in_children(memory_read: list[str], uid: int) -> None:
    with process_of(uid, READY + "step = 5\nwhile True: time.sleep(0.01)") as process:
        [rank] = seen(process).ranks
        agent: Any = SimpleNamespace(
            config={"allow_eval": True}, outbox=SimpleNamespace(post=lambda facts: None),
            context=SimpleNamespace(shared={"processes": SimpleNamespace(ranks=[rank])}),
        )  # fmt: skip
        result = evaluate.run_eval(agent, {"pid": rank.pid, "start_ticks": rank.start_ticks, "expression": "step + 1",
                                           "timeout_s": 30.0})  # fmt: skip
    assert (result["outcome"], result["type"], result["text"]) == ("value", "int", "6")
    assert bool(memory_read) is (uid == 0)


def able(procfs: ProcFs, pid: int, request: object) -> list[Any]:
    """What a child may do, and of which processes it has the memory."""
    possible = []
    for name, action in (("open", lambda: os.open("/etc/passwd", os.O_RDONLY)), ("pipe", os.pipe),
                         ("kill", lambda: os.kill(os.getppid(), 0))):  # fmt: skip
        try:
            action()
            possible.append(name)
        except OSError:
            pass
    held = sorted({other for other, _ in procfs._files})  # type: ignore[attr-defined]
    return [possible, os.getuid(), str(Path.cwd()), held]


def test_child_has_no_rights_and_only_the_memory_of_one_user() -> None:
    with process_of(ATTACKER) as first, process_of(ATTACKER) as second, process_of(VICTIM) as other:
        pids = [first.pid, second.pid, other.pid]
        memory = MemoryReaders(ProcFs(), (able,), pids)
        try:
            answers = {pid: memory.read(pid, able) for pid in pids}
        finally:
            memory.close()
    for possible, uid, folder, _ in answers.values():
        assert (possible, folder) == ([], "/")
        assert uid >= limited._UNUSED_UIDS
    assert [answers[pid][3] for pid in pids] == [sorted(pids[:2]), sorted(pids[:2]), pids[2:]]
    assert answers[pids[0]][1] == answers[pids[1]][1] != answers[pids[2]][1], "a child for each user"


def hangs(procfs: ProcFs, pid: int, request: int) -> int:
    if pid == request:
        time.sleep(600)
    return os.getpid()


def dies(procfs: ProcFs, pid: int, request: int) -> int:
    if pid == request:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@pytest.mark.parametrize("function", [hangs, dies])
def test_memory_that_never_answers_or_ends_its_child_costs_one_request(function: Any) -> None:
    with process_of(ATTACKER) as hostile, process_of(ATTACKER) as rank:
        memory = MemoryReaders(ProcFs(), (function,), [hostile.pid, rank.pid], 30.0)
        try:
            with pytest.raises(ValueError, match="of memory or"):
                memory.read(hostile.pid, function, hostile.pid, time.monotonic() + 0.2)
            with pytest.raises(ValueError, match="before"):
                memory.read(hostile.pid, function, hostile.pid)
            child = memory.read(rank.pid, function, hostile.pid)
            assert child > 0
        finally:
            memory.close()
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_child_that_cannot_be_killed_does_not_hold_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a read of a file system that hangs, which SIGKILL does not end."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    kill = os.kill
    monkeypatch.setattr(limited, "GRACE_S", 0.05)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert limited._status_of(pid, 0.05) is None
    assert pid in limited._dying
    kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while pid in limited._dying:
        assert time.monotonic() < deadline
        other = os.fork()
        if other == 0:
            os._exit(0)
        limited._status_of(other, 5.0)


TASK = ["main", [["main", "/x/train.py", 3, False]], "Future", 5, 1e5, [0], True]
POINTED = ["/x", [[5, "read"]], [1, 2]]
WATCHED = [{"step": 1}, None]
RESULT = [True, "train.py:3 train", "int", "6"]


def tasks_of(values: Any) -> Any:
    return task_values.to_fields(values, lambda frames: [{"function": name} for name, _, _, _ in frames])


def result_of(values: Any) -> Any:
    memory: Any = SimpleNamespace(read=lambda *_: values)
    try:
        return evaluate._result(memory, 1, 2)
    except evaluate.RequestError as error:
        raise ValueError from error


def addresses_of(values: Any) -> Any:
    memory: Any = SimpleNamespace(read=lambda *_: values)
    try:
        return evaluate._addresses(memory, 1)
    except evaluate.RequestError as error:
        raise ValueError from error


@pytest.mark.parametrize(
    ("check", "good", "place", "value"),
    [
        (tasks_of, [TASK], place, value)
        for place, value in (
            ((), 1), ((), [TASK] * 65), ((0,), TASK[:6]), ((0, 0), None), ((0, 0), "x" * 257), ((0, 1), {}),
            ((0, 1), TASK[1] * 33), ((0, 1, 0), []), ((0, 1, 0, 2), -1), ((0, 1, 0, 2), True), ((0, 1, 0, 1), "\ud800"),
            ((0, 2), 5), ((0, 3), 1 << 31), ((0, 3), -1), ((0, 4), math.nan), ((0, 4), -1.0), ((0, 4), 1),
            ((0, 5), [1]), ((0, 5), [-1]), ((0, 5), [0] * 17), ((0, 5), ["0"]),
        )
    ]
    + [
        (call_memory.PointedTo, POINTED, place, value)
        for place, value in (
            ((), 1), ((), POINTED[:2]), ((0,), 1), ((0,), "x" * 257), ((1,), [[5, "read"]] * 33), ((1, 0), [5]),
            ((1, 0, 0), -1), ((1, 0, 0), 1 << 31), ((1, 0, 0), True),
            ((2,), [1]), ((2,), [1 << 63, 0]), ((2,), [1.5, 0]),
        )
    ]
    + [
        (lambda values: watched.checked(values, ["step"]), WATCHED, place, value)
        for place, value in (
            ((), 1), ((0,), []), ((0,), {"other": 1}), ((0, "step"), []),
            ((0, "step"), 1 << 63), ((0, "step"), math.inf),
            ((0, "step"), True), ((0, "step"), "x" * 41), ((0, "step"), "\ud800"), ((1,), 5), ((1,), "x" * 301),
        )
    ]
    + [
        (result_of, RESULT, place, value)
        for place, value in (
            ((), 1), ((), RESULT[:3]), ((1,), 5), ((1,), "x" * 301), ((2,), None),
            ((3,), "x" * 40_000), ((3,), "\ud800"),
        )
    ]
    + [
        (addresses_of, [5, [1, 2, 3]], place, value)
        for place, value in (
            ((), None), ((0,), 100), ((0,), -1), ((0,), "5"), ((1,), [1, 2]),
            ((1, 0), "1"), ((1, 2), 1 << 56), ((1, 0), -1),
        )
    ],
)  # fmt: skip
def test_answer_of_a_child_that_was_taken_over_is_refused(
    check: Any, good: Any, place: tuple[Any, ...], value: object
) -> None:
    check(good)
    answer = json.loads(json.dumps(good))
    target = answer
    for index in place[:-1]:
        target = target[index]
    if place:
        target[place[-1]] = value
    else:
        answer = value
    with pytest.raises(ValueError):
        check(answer)


def test_texts_of_a_child_that_was_taken_over_are_made_printable() -> None:
    assert call_memory.PointedTo(["/\x1b[2J", [], None]).path == "/ [2J"
    assert tasks_of([["\x1b]0;", [], "\x9b", None, None, [], False]])[0] | {"wakes_in_s": 0} == {
        "name": " ]0;", "frames": [], "awaits": " ", "fd": None, "wakes_in_s": 0, "tasks": [], "is_main": False,
    }  # fmt: skip
    assert watched.checked([{"a": "\x1b"}, "\x07"], ["a"]) == ({"a": " "}, " ")


def test_memory_that_never_answers_leaves_one_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As memory that is mapped from a file system of its user; userfaultfd(2) does not stop a read of /proc/PID/mem."""
    answers, read = threading.Event(), memory_readers.read_bytes
    monkeypatch.setattr(memory_readers, "READ_S", 0.2)
    with process_of(ATTACKER) as hostile, process_of(ATTACKER) as second, process_of(VICTIM) as rank:

        def hangs(procfs: ProcFs, pid: int, places: Any) -> list[bytes]:
            return [] if pid == hostile.pid and not answers.wait(600) else read(procfs, pid, places)

        monkeypatch.setattr(memory_readers, "read_bytes", hangs)
        for pid in (hostile.pid, second.pid):
            with pytest.raises(OSError, match="does not answer"):
                memory_readers.read_bytes_apart(ProcFs(), ATTACKER, pid, [(0, 16)])
        assert len(memory_readers._left) == 1
        assert memory_readers.read_bytes_apart(ProcFs(), VICTIM, rank.pid, [(0, 16)]) == [b""]
        answers.set()
        for thread in list(memory_readers._left):
            thread.join(30)
        assert memory_readers.read_bytes_apart(ProcFs(), ATTACKER, second.pid, [(0, 16)]) == [b""], "and is tried again"
    assert memory_readers._left == {}


def test_no_attribute_of_an_answer_hides_a_method() -> None:
    class Kind:
        def threads(self) -> None: ...

    with pytest.raises(ValueError):
        limited._restored(Kind, b'{"threads": 1}')


def test_reader_that_is_late_starts_no_child() -> None:
    with process_of(VICTIM) as first, process_of(ATTACKER) as second:
        memory = MemoryReaders(ProcFs(), (able,), [first.pid])
        memory.read(first.pid, able)
        memory.close()
        for process in (first, second):
            with pytest.raises(ValueError, match="ended"):
                memory.read(process.pid, able)


def test_captures_end_their_children(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []
    read = MemoryReaders.read

    def noted(memory: MemoryReaders, *args: Any) -> Any:
        answer = read(memory, *args)
        children.extend(child._parser._pid for child in memory._children.values())
        return answer

    monkeypatch.setattr(MemoryReaders, "read", noted)
    with process_of(VICTIM, LOOP) as process:
        capture(seen(process), samples=2, tasks=True)
    assert len(set(children)) == 1, "one for all requests of a user"
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)
