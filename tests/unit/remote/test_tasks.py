"""Tasks of event loops of real processes, on every Python of this machine: read from memory, or unknown."""

import random
import struct
import sys
from pathlib import Path

import pytest
from live_ranks import PY_SPY, capture, main_thread
from test_stacks_python_versions import interpreters

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import coroutines, py_spy, task_values, tasks

JOB = """
import asyncio, socket, sys, threading

async def inner(number):
    await asyncio.sleep(600)

async def stream(peer):
    reader, _ = await asyncio.open_connection(sock=peer)
    await reader.readline()

async def receive(peer):
    await asyncio.get_event_loop().sock_recv(peer, 1)

async def fetch():
    future = asyncio.get_event_loop().create_future()
    await future

async def queue():
    await asyncio.Queue().get()

async def hold(lock):
    async with lock:
        await inner(1)

async def enter(lock):
    async with lock:
        pass

async def thread():
    await asyncio.get_event_loop().run_in_executor(None, threading.Event().wait)

async def each():
    await asyncio.sleep(600)
    yield 1

async def over():
    async for _ in each():
        pass

async def limited():
    await asyncio.wait_for(queue(), 600)

async def several():
    await asyncio.wait({asyncio.ensure_future(queue()), asyncio.ensure_future(fetch())})

async def shielded():
    await asyncio.shield(asyncio.ensure_future(queue()))

async def first():
    for run in asyncio.as_completed([queue()]):
        await run

async def group():
    async with asyncio.TaskGroup() as members:
        members.create_task(queue())

class Endless:
    def __await__(self):
        yield from asyncio.get_event_loop().create_future().__await__()

async def own():
    await Endless()

async def main():
    global kept
    kept = [socket.socketpair() for _ in range(2)]
    for pair in kept:
        pair[0].setblocking(False)
    lock = asyncio.Lock()
    runs = dict(fetch=fetch(), queue=queue(), hold=hold(lock), stream=stream(kept[0][0]), receive=receive(kept[1][0]),
                thread=thread(), over=over(), limited=limited(), several=several(), own=own(),
                shielded=shielded(), first=first())
    if hasattr(asyncio, "TaskGroup"):
        runs["group"] = group()
    members = [asyncio.ensure_future(run) for run in runs.values()]
    for member, name in zip(members, runs):
        member.set_name(name)
    await asyncio.sleep(0.05)
    members.append(asyncio.ensure_future(enter(lock)))
    members[-1].set_name("\\u00e9nter")
    done = asyncio.ensure_future(asyncio.sleep(0))
    await asyncio.sleep(0.05)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await asyncio.gather(*members)

"""
STARTS = {"run": "asyncio.run(main())\n", "loop": "asyncio.new_event_loop().run_until_complete(main())\n"}
#: By name: the functions and the lines' texts of the task's own coroutines, what it awaits, and the tasks it waits for.
EXPECTED = {
    "fetch": ([("fetch", "await future")], "Future", []),
    "queue": ([("queue", "await asyncio.Queue().get()")], "Future", []),
    "hold": ([("hold", "await inner(1)"), ("inner", "await asyncio.sleep(600)")], "Future", []),
    "stream": ([("stream", "await reader.readline()")], "Future", []),
    "receive": ([("receive", "await asyncio.get_event_loop().sock_recv(peer, 1)")], "Future", []),
    "thread": ([("thread", "await asyncio.get_event_loop().run_in_executor(None, threading.Event().wait)")],
               tasks.OF_THREAD, []),
    "over": ([("over", "async for _ in each():"), ("each", "await asyncio.sleep(600)")], "Future", []),
    "own": ([("own", "await Endless()"), ("__await__", "yield from "
             "asyncio.get_event_loop().create_future().__await__()")], "Future", []),
    "\u00e9nter": ([("enter", "async with lock:")], "Future", ["hold"]),
}  # fmt: skip


def supported():
    """The Pythons of this machine whose tasks are read."""
    return [path for path in interpreters() if "/3.9." in path or "/3.1" in path] or [sys.executable]


def started(ranks, tmp_path, interpreter, start="run", source=JOB):
    script = tmp_path / "train.py"
    script.write_text(source + STARTS.get(start, start))
    process = ranks.start([interpreter, str(script)])
    ranks.until_state(len(ranks.processes) - 1, "S")
    return process


def own(task, lines):
    return [(frame.function.rpartition(".")[2], lines[frame.line - 1].strip()) for frame in task.frames
            if frame.file.endswith("train.py")]  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("interpreter", supported())
def test_tasks_are_read_with_their_places_and_what_they_await(ranks, tmp_path, interpreter, start):
    started(ranks, tmp_path, interpreter, start)
    lines = (tmp_path / "train.py").read_text().splitlines()
    _, records = capture(ranks.seen(), tasks=True)
    read = main_thread(records).tasks
    by_name = {task.name: task for task in read}
    for name, (places, awaits, waits_for) in EXPECTED.items():
        task = by_name[name]
        assert (own(task, lines), task.awaits) == (places, awaits), name
        assert [read[index].name for index in task.tasks] == waits_for, name
    main = read[0]
    assert main.is_main and [task.is_main for task in read].count(True) == 1
    assert own(main, lines) == [("main", "await asyncio.gather(*members)")] and main.awaits == "_GatheringFuture"
    others = {"limited", "several", "shielded", "first"}
    assert {read[index].name for index in main.tasks} - {"group"} == {*EXPECTED, *others}
    inner = {own(read[index], lines)[-1] for index in by_name["several"].tasks}
    assert inner == {("queue", "await asyncio.Queue().get()"), ("fetch", "await future")}
    for name in ("shielded", "first", *(["group"] if "group" in by_name else ())):
        (index,) = by_name[name].tasks
        assert own(read[index], lines) == [("queue", "await asyncio.Queue().get()")], name
    limited = by_name["limited"]
    innermost = read[limited.tasks[0]] if limited.tasks else limited  # a task of its own before Python 3.12
    assert own(innermost, lines)[-1] == ("queue", "await asyncio.Queue().get()")
    assert 0 < 600 - by_name["hold"].wakes_in_s < 300
    assert {task.name for task in read if task.wakes_in_s is not None} == {"hold", "over"}
    folder = Path(f"/proc/{ranks.processes[0].pid}/fd")
    for name in ("stream", "receive"):
        assert str((folder / str(by_name[name].fd)).readlink()).startswith("socket:"), name
    assert all(frame.source for frame in by_name["fetch"].frames), "the source line of the innermost own call"


#: Objects with the fields of __pyx_CoroutineObject where Cython 3.0 and 3.1 have them; they run an own coroutine.
COMPILED = """
import asyncio, collections.abc, ctypes, sys

def compiled(abi, run, fields):
    words = ["word%02d" % number for number in range(len(fields) + 1)]
    def send(self, value):
        return run.send(value)
    def throw(self, *error):
        return run.throw(*error)
    def close(self):
        pass
    kind = type("_cython_%s.coroutine" % abi, (), dict(__slots__=words, send=send, throw=throw, close=close))
    collections.abc.Coroutine.register(kind)
    made = kind()
    for word, field in zip(words, fields):
        if isinstance(field, ctypes.c_void_p):
            ctypes.c_void_p.from_address(id(made) + 16 + 8 * words.index(word)).value = field.value
        elif field is not None:
            setattr(made, word, field)
    return made

async def inner():
    await asyncio.sleep(600)

async def main():
    global kept
    names = ["step", "Actor.step", "actors"]
    send = ctypes.cast(ctypes.pythonapi.PyObject_Repr, ctypes.c_void_p)  # the address of a function
    run, other = inner().__await__(), inner().__await__()
    kept = [compiled("3_0_12", run, [None] * 6 + [run] + names + [None] * 2),
            compiled("3_1_4", other, [None] * 6 + [other, send] + names + [None] * 2)]
    members = [asyncio.ensure_future(each) for each in kept]
    await asyncio.sleep(0.05)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await asyncio.gather(*members)

"""


@pytest.mark.parametrize("interpreter", supported())
def test_tasks_are_followed_through_coroutines_that_cython_compiled(ranks, tmp_path, interpreter):
    """Ray runs the methods of an asynchronous actor in such a coroutine."""
    started(ranks, tmp_path, interpreter, source=COMPILED)
    _, records = capture(ranks.seen(), tasks=True)
    main, *members = main_thread(records).tasks
    assert main.is_main and sorted(main.tasks) == [1, 2]
    for task in members:
        assert [frame.function.rpartition(".")[2] for frame in task.frames] == ["step", "inner", "sleep"]
        assert (task.frames[0].file, task.awaits) == ("actors", "Future")


@pytest.mark.parametrize("interpreter", supported())
def test_tasks_that_are_gathered_without_a_main_one_are_all_main(ranks, tmp_path, interpreter):
    start = """
loop = asyncio.new_event_loop()
async def begin():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await fetch()
async def all():
    return asyncio.gather(begin(), queue())
asyncio.set_event_loop(loop)
gathered = loop.run_until_complete(all())
loop.run_until_complete(gathered)
"""
    started(ranks, tmp_path, interpreter, start)
    _, records = capture(ranks.seen(), tasks=True)
    assert [(task.frames[0].function, task.is_main) for task in main_thread(records).tasks] in (
        [("begin", True), ("queue", True)], [("queue", True), ("begin", True)],
    )  # fmt: skip


@pytest.mark.parametrize("interpreter", interpreters())
def test_tasks_are_unknown_without_an_event_loop_or_if_not_requested(ranks, tmp_path, interpreter):
    source = "import sys, time\nasync def main(): pass\n" + 'sys.stdout.write("ready\\n"); sys.stdout.flush()\n'
    started(ranks, tmp_path, interpreter, "time.sleep(600)\n", source)
    _, records = capture(ranks.seen(), tasks=True)
    assert main_thread(records).status == "ok" and main_thread(records).tasks is None


def test_tasks_that_are_not_requested_are_not_read(ranks, tmp_path):
    started(ranks, tmp_path, sys.executable)
    _, records = capture(ranks.seen(), locals=["self"])
    assert main_thread(records).tasks is None


def test_at_most_64_tasks_are_kept_those_that_main_waits_for_first(ranks, tmp_path):
    source = """
import asyncio, sys
async def rest(): await asyncio.sleep(600)
async def main():
    others = [asyncio.ensure_future(rest()) for _ in range(3000)]
    others[-1].set_name("zz")
    await asyncio.sleep(0)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await others[-1]
"""
    started(ranks, tmp_path, sys.executable, "asyncio.run(main())\n", source)
    _, records = capture(ranks.seen(), tasks=True)
    read = main_thread(records).tasks
    assert (len(read), read[0].is_main, read[0].tasks, read[1].name) == (tasks.MAX_TASKS, True, (1,), "zz")


def test_tasks_that_move_are_read_whole_or_not_at_all(ranks, tmp_path):
    source = """
import asyncio, sys
async def deep(left):
    if left: await deep(left - 1)
    else: await asyncio.sleep(0)
async def moves(left):
    while True: await deep(left)
async def main():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    await asyncio.gather(*(moves(left) for left in range(6)))
asyncio.run(main())
"""
    script = tmp_path / "train.py"
    script.write_text(source)
    ranks.start([sys.executable, str(script)])
    for _ in range(5):
        _, records = capture(ranks.seen(), tasks=True)
        for task in main_thread(records).tasks or ():
            names = [frame.function for frame in task.frames]
            assert names[0] in ("main", "moves") and set(names[1:]) <= {"deep", "sleep", "__sleep0"}, names
            assert len(names) <= 9


class Noise(tasks.TaskMemory):
    """A memory of noise: what is read is the real one's bytes, some of them changed, or no bytes at all."""

    def begin(self, seed, share):
        self._random, self._share = random.Random(seed), share

    def _read_some(self, address, size):
        data = super()._read_some(address, size)
        if self._random.random() >= self._share:
            return data
        kind = self._random.randrange(5)
        if kind == 0:
            return bytes(self._random.randrange(256) for _ in range(size))
        if kind == 1:
            return struct.pack("<Q", address & ~7) * (size // 8) + b"\xff" * (size % 8)  # a pointer to itself
        changed = bytearray(data)
        for _ in range(kind):
            if changed:
                changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return bytes(changed)


@pytest.mark.parametrize("interpreter", supported())
def test_any_memory_gives_tasks_within_bounds_or_none_and_no_exception(ranks, tmp_path, interpreter):
    process = started(ranks, tmp_path, interpreter)
    loop = loop_of(process.pid)
    with Noise(ProcFs(), process.pid) as memory:
        for seed in range(45):
            memory.begin(seed, share=(0.001, 0.01, 0.2)[seed % 3])
            memory._types.clear()
            memory._codes.clear()
            read = memory.tasks(loop)
            fields = task_values.to_fields(task_values._values(read or []), lambda frames: list(frames))
            assert len(fields) <= tasks.MAX_TASKS
            for field in fields:
                assert len(field["frames"]) <= tasks.MAX_DEPTH and len(field["tasks"]) <= tasks.MAX_AWAITED
                assert all(0 <= index < len(fields) for index in field["tasks"])
                assert field["fd"] is None or 0 <= field["fd"] < 1 << 31
                assert all(0 <= line < 1 << 31 and len(file) <= 600 for _, file, line, _ in field["frames"])
        memory.begin(0, share=0.0)
        memory._types.clear()
        memory._codes.clear()
        assert len(memory.tasks(loop)) > 10, "the same memory without noise"


def loop_of(pid):
    threads = py_spy.read_threads(PY_SPY, pid, 20.0, frozenset(("self",)))
    return next(thread.loop for thread in threads if thread.loop)


@pytest.mark.parametrize(
    "decode", [coroutines._old_lines, coroutines._lines_310, coroutines._lines], ids=["3.9", "3.10", "3.11"]
)
def test_any_table_of_lines_ends(decode):
    noise = random.Random(7)
    for length in range(200):
        table = bytes(noise.randrange(256) for _ in range(length))
        assert len(list(decode(table, 1))) <= length + 1
