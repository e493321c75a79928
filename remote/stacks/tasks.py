"""asyncio tasks of a running process, and what each awaits, read from its memory without stopping it.

A task leads to its coroutine, that to the coroutine it awaits, and so on to what the innermost one awaits: a future,
another task, a lock. All tasks are in a set of the module asyncio.tasks, which a function of the event loop's class
leads to. Every object is checked by its type, as in `objects`; whatever does not look as expected is left out.
Structures: Modules/_asynciomodule.c, Objects/setobject.c and genobject.c of CPython 3.9 to 3.13.
"""

import re
import struct

from ..proc.procfs import printable
from .coroutines import MAX_NAME, CoroutineMemory, is_compiled
from .objects import Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from .coroutines import CoroutineFrame
    from .py_spy import Frame

#: Bounds of one process: tasks examined, tasks kept and their frames, frames of one task, reads of memory.
MAX_EXAMINED, MAX_TASKS, MAX_FRAMES, MAX_DEPTH, MAX_MEMORY_READS = 256, 64, 512, 32, 20000
#: Members of one set; tasks that one task waits for; variables of the frames that run a loop.
MAX_MEMBERS, MAX_AWAITED, MAX_VARIABLES = 65536, 16, 16
#: Seconds. Later instants are not those of a timer.
MAX_INSTANT_S = 1e10
#: What a future is called whose result another thread computes.
OF_THREAD = "concurrent.futures.Future"
#: Files whose functions run an event loop, and their variables: the loop or its runner, and what it runs until its end.
_LOOP_FILES = re.compile(r"(^|/)(asyncio/(base_events|runners)|nest_asyncio)\.py$")
_LOOP, _MAIN = "self", ("task", "future", "main")
#: Coroutines and generators; all have the same structure.
_RUNS = frozenset(("coroutine", "generator", "async_generator"))
#: Iterators of `await` and `async for`, which refer to what is awaited: offset of that reference.
_ITERATORS = {
    "FutureIter": 16, "coroutine_wrapper": 16, "async_generator_asend": 16, "async_generator_athrow": 16,
    "anext_awaitable": 16,
}  # fmt: skip
_IS_INT, _IS_LIST, _IS_TUPLE, _IS_STR = 1 << 24, 1 << 25, 1 << 26, 1 << 28
#: What reading memory that holds no such object may raise.
_ERRORS = (Unreadable, struct.error, ValueError, OverflowError)


class Task(object):
    """One task: name, frames outermost first, and the type of what the innermost awaits (empty: unknown)."""

    def __init__(self, address: int, coroutine: int, name: str) -> None:
        self.address, self.coroutine, self.name = address, coroutine, name
        self.frames: "list[CoroutineFrame]" = []
        self.awaits = ""
        self.awaited: "list[int]" = []  # addresses of the tasks that it waits for
        self.lock = 0  # address of the lock that it waits for
        self.end = 0  # address of what the innermost coroutine awaits
        self.fd: "int | None" = None
        self.wakes_at_s: "float | None" = None  # time.monotonic() at which its sleep ends
        self.is_main = False

    def as_frames(self) -> "tuple[Frame, ...]":
        """Its frames as those of a thread."""
        return tuple((frame.function, frame.file, frame.line, False) for frame in self.frames)


class TaskMemory(CoroutineMemory):
    """The tasks of one process. A context manager; raises Unreadable if its Python is not known."""

    def __enter__(self) -> "TaskMemory":
        return self

    def tasks(self, variables: "Sequence[tuple[str, int]]") -> "list[Task] | None":
        """The tasks that have not ended nor moved while they were read, the main one first; None if unknown.

        The main task is the one that the thread runs until its end. `variables` are those of `loop_variables`.
        """
        try:
            earlier = {task.address: task for task in self._tasks(variables)}
            tasks = self._tasks(variables)
        except _ERRORS:
            return None
        return _kept([task for task in tasks if task.address in earlier and _same(task, earlier[task.address])])

    def _tasks(self, variables: "Sequence[tuple[str, int]]") -> "list[Task]":
        """Raises Unreadable where neither a loop nor a main task is found."""
        self._left, self._way = MAX_MEMORY_READS, []
        source = next((address for name, address in variables if name == _LOOP), 0)
        main = next((address for name, address in variables if name != _LOOP), 0)
        mains = self._gathered(main) if main else []
        tasks: "list[Task]" = []
        self._add(tasks, mains)
        self._add(tasks, list(self._all_tasks(source, self._loop_of(source))) if source else [])
        coroutines = {task.coroutine for task in tasks if task.address != task.coroutine}
        tasks = [task for task in tasks if task.address not in coroutines]  # the main one, of which it is that
        for task in tasks:
            task.is_main = task.address in mains or task.coroutine in mains
        if not source and not tasks:
            raise Unreadable("no event loop")
        self._follow_locks(tasks)
        self._follow_callbacks(tasks)
        return tasks

    def _add(self, tasks: "list[Task]", addresses: "Sequence[int]") -> None:
        """Add the tasks at these addresses, and those that they wait for, as many as are examined."""
        read = {task.address for task in tasks}
        pending = list(reversed(addresses))
        while pending and len(read) < MAX_EXAMINED:
            address = pending.pop()
            if address in read:
                continue
            read.add(address)
            task = self._task(address)
            if task is not None:
                tasks.append(task)
                pending += reversed(task.awaited)

    def _gathered(self, main: int) -> "list[int]":
        """What the thread runs until its end: one task, or those that it gathers."""
        try:
            if self._type_of(main).name.rpartition(".")[2] == "_GatheringFuture":
                return list(self._members(self._attribute(main, "_children")))
        except Unreadable:
            pass
        return [main]

    # -- which tasks -------------------------------------------------------------------------------------------------

    def _loop_of(self, source: int) -> int:
        """The event loop of an asyncio.Runner, or the loop itself; 0 if unknown."""
        if not any(base.name == "Runner" for base in self._bases(self._type_of(source))):
            return source
        try:
            return self._attribute(source, "_loop")
        except Unreadable:
            return 0

    def _all_tasks(self, source: int, loop: int) -> "Iterator[int]":
        """The tasks of a loop, which a function of the class of `source` leads to."""
        try:
            module = self._item(self._globals(source), "tasks")
            names = self._pointer(module + 16)  # PyModuleObject.md_dict
            if self._type_of(module).name != "module":
                return
        except Unreadable:
            return
        examined = 0
        for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):
            try:
                members = self._item(names, name)
                if name != "_eager_tasks":
                    members = self._attribute(members, "data")
                for member in self._members(members):
                    examined += 1
                    if examined > MAX_EXAMINED:
                        return
                    task = self._referent(member)
                    if task and (not loop or loop in (self._number(task + 16), self._python_loop(task))):
                        yield task
            except Unreadable:
                continue

    def _globals(self, address: int) -> int:
        """The globals of asyncio, of a method that the class of an object, or a base of it, inherits from it."""
        for base in self._bases(self._type_of(address)):
            for method in ("create_task", "run"):
                try:
                    function = self._item(self._pointer(base.address + 264), method)
                except Unreadable:
                    continue
                if self._type_of(function).name == "function":
                    names = self._pointer(function + (24 if self._version == (3, 9) else 16))
                    if self.text_of(self._item(names, "__name__")).startswith("asyncio."):
                        return names
        raise Unreadable("no function of asyncio")

    def _referent(self, member: int) -> int:
        """What a weak reference refers to, or the member itself; 0 if that is gone."""
        if self._type_of(member).name.rpartition(".")[2] in ("weakref", "ReferenceType"):
            member = self._pointer(member + 16)
        return 0 if self._type_of(member).name == "NoneType" else member

    def _python_loop(self, task: int) -> int:
        """The loop of a task that is not one of C; 0 if it is."""
        if self._base_of_c(task):
            return 0
        try:
            return self._attribute(task, "_loop")
        except Unreadable:
            return 0

    def _members(self, address: int) -> "Iterator[int]":
        """The members of a set, or of a list or tuple. Raises Unreadable."""
        kind = self._type_of(address)
        if kind.flags & (_IS_LIST | _IS_TUPLE):
            count = self._number(address + 16)
            first = address + 24 if kind.flags & _IS_TUPLE else self._pointer(address + 24) if count else 0
            if count > MAX_MEMBERS:
                raise Unreadable("list")
            for member in struct.unpack("<%dQ" % count, self._read(first, 8 * count) if count else b""):
                yield member
        elif any(base.name in ("set", "frozenset") for base in self._bases(kind)):
            mask = self._number(address + 32)  # PySetObject
            if mask >= MAX_MEMBERS or mask & (mask + 1):
                raise Unreadable("set")
            data = self._read(self._pointer(address + 40), 16 * (mask + 1))
            for key, digest in struct.iter_unpack("<Qq", data):
                if key and digest != -1:  # -1: deleted
                    yield key
        else:
            raise Unreadable("set")

    # -- one task ----------------------------------------------------------------------------------------------------

    def _task(self, address: int) -> "Task | None":
        """The task at an address, or of a coroutine there; None if it has ended, or is not readable."""
        try:
            coroutine, name = (address, 0) if self._is_run(address) else self._parts(address)
            task = Task(address, coroutine, self._name_of(name) if name else "")
            self._follow(task, coroutine)
        except _ERRORS:
            return None
        return task if task.frames else None

    def _name_of(self, address: int) -> str:
        """A task's name; from Python 3.12 on it is a number until someone asks for it. Raises Unreadable."""
        if self._type_of(address).flags & _IS_INT:
            return "Task-%d" % self._integer(address)
        return printable(self.text_of(address), MAX_NAME)

    def _base_of_c(self, address: int) -> int:
        """Size of the part of a task that C defines; 0 for a task of Python."""
        for base in self._bases(self._type_of(address)):
            if base.name == "_asyncio.Task":
                return int(base.basicsize)
        return 0

    def _parts(self, address: int) -> "tuple[int, int]":
        """(coroutine, name) of a task. Raises Unreadable."""
        size = self._base_of_c(address)
        if not size:
            return self._attribute(address, "_coro"), self._attribute(address, "_name")
        if size > 512:
            raise Unreadable("task")
        words = struct.unpack("<%dQ" % (size // 8), self._read(address, size // 8 * 8))
        for index in range(4, len(words) - 1):  # behind the loop and the first callback
            if self._is_run(words[index]) and self._type_of(words[index + 1]).flags & (_IS_STR | _IS_INT):
                return words[index], words[index + 1]
        raise Unreadable("task")

    def _is_run(self, address: int) -> bool:
        try:
            kind = self._type_of(address).name if address & 7 == 0 else ""
            return kind in _RUNS or is_compiled(kind)
        except Unreadable:
            return False

    def _follow(self, task: "Task", address: int) -> None:
        """Add the frames from a coroutine inwards, and what the innermost one awaits."""
        visited: "set[int]" = set()
        while len(task.frames) < MAX_DEPTH and address not in visited:
            visited.add(address)
            kind = self._type_of(address).name
            if kind in _RUNS:
                frame = self.frame(address)
                if frame is None:
                    return  # it has ended, or runs
                task.frames.append(frame)
                if not frame.stack or not frame.stack[-1]:
                    return
                address = frame.stack[-1]
            elif is_compiled(kind):
                frame, address = self.compiled_frame(address)
                task.frames.append(frame)
                if not address:
                    return
            elif kind.rpartition(".")[2] in _ITERATORS:
                address = self._pointer(address + _ITERATORS[kind.rpartition(".")[2]])
            else:
                break
        if task.frames:
            self._end(task, address)

    def _end(self, task: "Task", address: int) -> None:
        """What a task waits for in the end: other tasks, a lock, a descriptor, a thread."""
        frame = task.frames[-1]
        if frame.function == "__await__" and frame.is_in("futures", "__await__") and frame.variables:
            task.frames.pop()  # a future of Python
            address = frame.variables[0]
            frame = task.frames[-1] if task.frames else frame
        kind, task.end = self._type_of(address), address
        task.awaits = printable(kind.name.rpartition(".")[2], MAX_NAME)
        if any(base.name.rpartition(".")[2] in ("Task", "_PyTask") for base in self._bases(kind)):
            task.awaited.append(address)
        try:
            children = self._awaited_through(kind.name, address, frame)
            task.awaited += [self._referent(child) for child in children][:MAX_AWAITED]
        except Unreadable:
            pass
        for outer in (frame for frame in task.frames if frame.variables):
            if outer.is_in("locks", "acquire"):
                task.lock = outer.variables[0]
            elif outer.is_in("tasks", "_wait_for_one") and self._version >= (3, 13):
                task.awaited += self._todo_of(outer.variables[0])[:MAX_AWAITED]
        if frame.is_in("tasks", "sleep"):
            task.wakes_at_s = self._end_of_sleep(frame)
        task.fd = self._descriptor(frame)
        if task.awaits == "Future" and self._is_of_thread(address):
            task.awaits = OF_THREAD

    def _end_of_sleep(self, frame: "CoroutineFrame") -> "float | None":
        """When the timer of asyncio.sleep expires, a variable of it; None if unknown, as of uvloop's timers."""
        for address in frame.variables:
            try:
                if address and self._type_of(address).name.rpartition(".")[2] == "TimerHandle":
                    when = self._attribute(address, "_when")
                    if self._type_of(when).name == "float":
                        instant = float(struct.unpack("<d", self._read(when + 16, 8))[0])
                        return instant if 0.0 <= instant < MAX_INSTANT_S else None
            except Unreadable:
                continue
        return None

    def _todo_of(self, iterator: int) -> "list[int]":
        """The tasks of as_completed that have not ended, from Python 3.13 on."""
        try:
            return list(self._members(self._attribute(iterator, "_todo")))
        except Unreadable:
            return []

    def _awaited_through(self, kind: str, address: int, frame: "CoroutineFrame") -> "Sequence[int]":
        """The tasks behind gather, wait, wait_for and a task group. Raises Unreadable."""
        if kind.rpartition(".")[2] == "_GatheringFuture":
            return list(self._members(self._attribute(address, "_children")))
        if frame.is_in("tasks", "_wait") and frame.variables:
            return list(self._members(frame.variables[0]))
        if frame.is_in("tasks", "wait_for") and frame.variables:
            return frame.variables[:1]
        if frame.is_in("taskgroups", "__aexit__", "_aexit") and frame.variables:
            return list(self._members(self._attribute(frame.variables[0], "_tasks")))
        return []

    def _descriptor(self, frame: "CoroutineFrame") -> "int | None":
        """The descriptor that a stream, or a call of the loop for a socket, waits for; None if unknown."""
        if not frame.variables:
            return None
        try:
            if frame.function.rpartition(".")[2].startswith("sock_") and len(frame.variables) > 1:
                if not any(base.name.rpartition(".")[2] == "socket" for base in
                           self._bases(self._type_of(frame.variables[1]))):  # fmt: skip
                    return None
                number = int(struct.unpack("<i", self._read(frame.variables[1] + 16, 4))[0])
            else:
                number = self._integer(self._attribute(self._transport(frame.variables[0]), "_sock_fd"))
        except (Unreadable, struct.error):
            return None
        return number if 0 <= number < 1 << 31 else None

    def _transport(self, stream: int) -> int:
        """The transport of a stream of asyncio or aiohttp. Raises Unreadable."""
        for name in ("_transport", "transport"):
            try:
                return self._attribute(stream, name)
            except Unreadable:
                continue
        return self._attribute(self._attribute(stream, "_protocol"), "transport")

    def _is_of_thread(self, future: int) -> bool:
        """Whether the first callback of a future of C is the one that asyncio.wrap_future adds."""
        try:
            return self._callback(future)[0] == "_call_check_cancel"
        except Unreadable:
            return False

    def _callback(self, future: int) -> "tuple[str, int]":
        """(name, closure) of the function that is the first callback of a future of C. Raises Unreadable."""
        callback = self._pointer(future + 24)
        if self._type_of(callback).name != "function":
            raise Unreadable("callback")
        name, closure = (64, 48) if self._version == (3, 9) else (32, 72)
        return self.text_of(self._pointer(callback + name)), self._number(callback + closure)

    def _follow_callbacks(self, tasks: "Sequence[Task]") -> None:
        """Whoever waits for a future, or for a queue, that asyncio's callback of a task fills waits for that task.

        Those are the callbacks of shield, wait and as_completed; what they fill is in their closures.
        """
        fill: "dict[int, list[int]]" = {}
        for task in tasks:
            try:
                name, closure = self._callback(task.address) if self._base_of_c(task.address) else ("", 0)
                for cell in self._members(closure) if name in ("_inner_done_callback", "_on_completion") else ():
                    if self._type_of(cell).name == "cell":
                        fill.setdefault(self._number(cell + 16), []).append(task.address)
            except Unreadable:
                continue
        for task in tasks:
            queues = [frame.variables[0] for frame in task.frames if frame.variables and frame.is_in("queues", "get")]
            for target in [task.end] + queues:
                task.awaited += [other for other in fill.get(target, ()) if other != task.address]

    def _follow_locks(self, tasks: "Sequence[Task]") -> None:
        """Whoever waits for a lock waits for the task that is inside of `async with` of it.

        Such a task has the method `__aexit__` of the lock on the stack of a frame, as has one that waits to enter.
        """
        wanted = {task.lock for task in tasks if task.lock}
        holders: "dict[int, int]" = {}
        for task in tasks if wanted else ():
            for value in (value for frame in task.frames for value in frame.stack):
                try:
                    if value and not value & 7 and self._type_of(value).name == "method":
                        owner = self._pointer(value + 24)
                        if owner in wanted and owner != task.lock:
                            holders.setdefault(owner, task.address)
                except Unreadable:
                    continue
        for task in tasks:
            if task.lock in holders and holders[task.lock] != task.address:
                task.awaited.append(holders[task.lock])


def loop_variables(frames: "Sequence[dict[str, Any]]") -> "list[tuple[str, int]]":
    """(name, address) of the variables by which a thread that runs an event loop leads to its tasks; innermost first.

    `frames` are those of py-spy with variables, outermost first.
    """
    selected: "list[tuple[str, int]]" = []
    for frame in reversed(frames):
        if not _LOOP_FILES.search(str(frame.get("filename"))):
            continue
        for variable in frame.get("locals") or ():
            name, address = str(variable.get("name")), variable.get("addr")
            if name in (_LOOP,) + _MAIN and isinstance(address, int) and len(selected) < MAX_VARIABLES:
                selected.append((name, address))
    return selected


def _same(first: "Task", second: "Task") -> bool:
    """Whether a task has not moved between two reads."""
    return (first.as_frames(), first.awaits) == (second.as_frames(), second.awaits)


def _kept(tasks: "Sequence[Task]") -> "list[Task]":
    """The main task, those that it waits for, and the others by name; as many as are kept."""
    by_address = {task.address: task for task in tasks}
    ordered = [task for task in tasks if task.is_main]
    for task in ordered:  # grows meanwhile
        for address in task.awaited:
            awaited = by_address.get(address)
            if awaited is not None and awaited not in ordered and len(ordered) < MAX_TASKS:
                ordered.append(awaited)
    others = sorted((task for task in tasks if task not in ordered), key=lambda task: (task.name, task.address))
    kept: "list[Task]" = []
    left = MAX_FRAMES
    for task in (ordered + others)[:MAX_TASKS]:
        left -= len(task.frames)
        if left < 0:
            break
        kept.append(task)
    return kept
