"""One srun: a step of a job with a task on each node, and the channels of these nodes.

Output comes in lines behind the number of the task, which srun adds. So a task cannot write in the name of another one.
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...text.sanitize import printable
from .. import errors, site_exec
from ..gateway.connection import GatewayQuota
from ..gateway.frames import FrameDecoder, Kind, MalformedGatewayFrame
from ..gateway.streams import NodeChannel, StreamMultiplexer
from ..transport import Channel, Receiver
from .labels import EndedTask, LabelledLines, ended_tasks, exit_status

_log = logging.getLogger(__name__)

#: Seconds from the start of srun to the hello of a task: the scheduler may be busy.
HELLO_S = 60.0
#: Seconds for the tasks to end their agents, and for srun to see that.
STOP_S = 5.0
#: Seconds between two pings, each answered by one task, and of silence or unanswered pings until the step is given up.
PING_S, DEAD_S = 1.0, 15.0
#: Seconds between two pings of a console that is late itself.
_LATE_S = PING_S + 1.0
#: Seconds without output until a node that connects again needs another task: less than an agent may be silent.
SILENT_S = 8.0
#: Seconds from the end of a task to that of its node, unless srun ends in this time: then that is the reason.
TASK_END_S = 0.5
#: Seconds that Slurm may take to end a step that was cancelled, or whose job was (KillWait, and a little).
CANCEL_S = 40.0
#: Bytes of output of a task that wait to be decoded: more than the windows of its streams allow.
_MAX_QUEUED = 2 << 20
#: Bytes before a hello, and of the last words of srun.
_MAX_GREETING, _MAX_WORDS = 1 << 20, 8192
_MARK = b"="
_TRY = "it is started again; `squeue --steps` lists the steps"
#: srun labels this line as that of a task.
_CANCELLED = re.compile(rb"slurmstepd\S*: error: \*\*\* (STEP|JOB) ")


class Greeting(Protocol):
    """The start of one task: how its first lines are read."""

    def read(self, line: bytes) -> str | None:
        """The name of the node once the line is the hello. Raises FleetError."""

    def add_error(self, data: bytes) -> None:
        """Keep standard error for the failure."""

    def failure(self, exit_status: int | None) -> errors.FleetError:
        """Why the program ended before its hello."""


class TaskLaunch(Protocol):
    """Start of the program on all nodes: what is sent, and how the first lines of each are read."""

    command: str
    first: bytes

    def greeting(self) -> Greeting:
        """The greeting of one more task."""


class _Task:
    """One task: `node` from its hello on, `error` once it has ended."""

    def __init__(self, number: int, greeting: Greeting) -> None:
        self.number, self.greeting = number, greeting
        self.node = ""
        self.error: errors.FleetError | None = None
        self.decoder = FrameDecoder()
        self.greeted_bytes = 0
        self._received_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the task sent something."""
        return time.monotonic() - self._received_at

    def note_output(self) -> None:
        """Note that the task sent something."""
        self._received_at = time.monotonic()

    @property
    def is_live(self) -> bool:
        """Whether streams can be opened."""
        return bool(self.node) and self.error is None


class StepConnection:
    """A `Receiver` of the output of one srun. `on_end` is called once, if it ends while tasks live."""

    def __init__(
        self, name: str, nodes: Sequence[str], launch: TaskLaunch, share: GatewayQuota,
        on_end: Callable[[errors.FleetError], None],
    ) -> None:  # fmt: skip
        self.name, self.nodes = name, tuple(nodes)
        self._launch, self._share, self._on_end = launch, share, on_end
        self._streams = StreamMultiplexer(confirms_blobs=False)
        self._tasks = [_Task(number, launch.greeting()) for number in range(len(nodes))]
        loop = asyncio.get_running_loop()
        self._hellos: dict[str, asyncio.Future[_Task]] = {node: loop.create_future() for node in nodes}
        self._started_at = time.monotonic()
        self._first_end: asyncio.Future[None] = loop.create_future()  # hello or end of a task
        self._over = asyncio.Event()
        self._is_closed = False
        self._output, self._errors = LabelledLines(), LabelledLines()
        self._words = ""  # of srun itself
        self._cancelled = ""  # what slurmstepd said of the end of the step
        self._cancelled_at: float | None = None  # monotonic
        self._pending: dict[int, _Task] = {}  # their output waits to be decoded
        self._timer: asyncio.Handle | None = None
        self._is_paused = False
        self._answered_at = time.monotonic()
        self._pinged = -1
        self._liveness: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self, channel: Channel) -> None:
        """Wait until the first task has started, or failed to. Raises FleetError."""
        self._streams.channel = channel
        self._streams.write(self._launch.first)
        try:
            async with asyncio.timeout(HELLO_S):
                await asyncio.shield(self._first_end)
        except TimeoutError:
            self.close()
            raise errors.Timeout(
                f"timeout: no task of the step has started within {HELLO_S:g} s{self._last_words()}",
                "check with `squeue --steps` whether the step waits, and the scheduler's log",
            ) from None
        except BaseException:
            self.close()
            raise
        self._answered_at = time.monotonic()
        self._liveness = asyncio.create_task(self._watch(), name=f"step {self.name}")

    @property
    def is_open(self) -> bool:
        """Whether srun runs."""
        return not self._is_closed

    def is_gone(self, node: str) -> bool:
        """Whether the task of a node has ended, or sends nothing although its agent should."""
        hello = self._hellos[node]
        if not hello.done():
            return False
        return hello.exception() is not None or hello.result().error is not None or hello.result().silent_s > SILENT_S

    def close(self) -> None:
        """End srun, and with it the step."""
        self._is_closed = True
        if self._liveness is not None:
            self._liveness.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._streams.flush()
        if self._streams.channel is not None:
            self._streams.channel.close()
            self._streams.channel = None

    async def stop(self) -> None:
        """Let the tasks end their agents, then end srun."""
        if self.is_open:
            self._streams.send(Kind.END, 0)
            self._is_closed = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._over.wait()
        self.close()

    def _fail(self, error: errors.FleetError) -> None:
        """End the step and all its streams."""
        if self._is_closed:
            return
        self.close()
        if not self._first_end.done():
            _set_failure(self._first_end, error)
        elif any(task.is_live for task in self._tasks):
            self._on_end(error)
        for task in self._tasks:
            self._end_task(task, error)
        for hello in self._hellos.values():
            _set_failure(hello, error)

    async def _watch(self) -> None:
        """Ping one task after the other, and give the step up once it is dead."""
        while not self._is_closed:
            slept_at = time.monotonic()
            await asyncio.sleep(PING_S)
            now = time.monotonic()
            lives = [task.number for task in self._tasks if task.is_live]
            if not lives or now - slept_at > _LATE_S:
                self._answered_at = now  # no task is asked, or answers may wait unread
            elif now - self._answered_at > DEAD_S:
                self._fail(lost(self.name, f"no task has answered for {DEAD_S:g} s"))
                return
            if lives:
                self._pinged = next((number for number in lives if number > self._pinged), lives[0])
                self._streams.send(Kind.PING, self._pinged)

    # -- streams -----------------------------------------------------------------------------------------------------

    async def open_stream(self, node: str, argv: Sequence[str], receiver: Receiver) -> NodeChannel:
        """Start a command on a node, once its task has started. Raises FleetError."""
        try:
            async with asyncio.timeout(max(0.0, self._started_at + HELLO_S - time.monotonic())):
                task = await asyncio.shield(self._hellos[node])
        except TimeoutError:
            raise errors.Timeout(
                f"timeout: the step has no task on {node} after {HELLO_S:g} s{self._last_words()}",
                f"check slurmd on {node}, and python3 -V there",
            ) from None
        if task.error is not None:
            raise task.error
        return self._streams.open_stream(argv, receiver, task.number)

    # -- Receiver ----------------------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Split output into lines, and decode what they carry in slices."""
        if self._is_closed:
            return
        try:
            for number, line in self._output.feed(data):
                task = self._task(number)
                if task is not None and task.error is None:
                    task.note_output()
                    self._read_line(task, line)
        except ValueError as error:
            self._fail(lost(self.name, f"protocol error: {error}"))
            return
        if self._timer is None and self._pending:
            self._decode()

    def on_error_bytes(self, data: bytes) -> None:
        """Keep standard error, and read which tasks have ended."""
        try:
            for number, line in self._errors.feed(data):
                task = self._task(number)
                if task is not None:
                    task.greeting.add_error(line + b"\n")
                    if _CANCELLED.match(line):
                        self._cancelled = line.decode("utf-8", "replace")
                        self._cancelled_at = self._cancelled_at or time.monotonic()
                elif number is None:
                    self._read_own(line.decode("utf-8", "replace"))
        except ValueError:
            self._errors = LabelledLines()  # a message that long is not one of srun

    def _task(self, number: int | None) -> _Task | None:
        return self._tasks[number] if number is not None and number < len(self._tasks) else None

    def _read_own(self, line: str) -> None:
        """One line of srun itself."""
        self._words = (self._words + line + "\n")[-_MAX_WORDS:]
        ends = ended_tasks(line)
        for end in ends:
            asyncio.get_running_loop().call_later(TASK_END_S, self._task_ended, end)
        if ends:
            _log.info("%s: %s", self.name, printable(line))

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        """The srun program has ended."""
        self._over.set()
        if isinstance(error, errors.FleetError):
            self._fail(error)
            return
        if not any(task.node for task in self._tasks):
            failure = site_exec.failure_of(exit_status, self._words)
            if failure is not None:
                self._fail(failure)
                return
        for end in (end for line in self._words.splitlines() for end in ended_tasks(line)):
            task = self._task(end.number)
            if task is not None and not task.node:
                self._task_ended(end)
        why = f"srun ended with signal {-exit_status}" if exit_status and exit_status < 0 else (
            f"srun ended with status {exit_status}")  # fmt: skip
        why += self._last_words()
        self._fail(lost(self.name, why) if self._first_end.done() else errors.GatewayLost(why, _TRY))

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._words.splitlines() if line.strip() and "cpu binding" not in line]
        words = self._cancelled or (lines[-1] if lines else "")
        return f" ({printable(words[:300])})" if words else ""

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _read_line(self, task: _Task, line: bytes) -> None:
        if not task.node:
            self._greet(task, line)
        elif not line.startswith(_MARK):
            self._end_task(task, _violation("a line without frames"))
        else:
            try:
                task.decoder.feed(binascii.a2b_base64(line[len(_MARK) :], strict_mode=True))
            except binascii.Error:
                self._end_task(task, _violation("a damaged line"))
                return
            if task.decoder.queued > _MAX_QUEUED:
                self._end_task(task, _violation("more output than its windows allow"))
            else:
                self._pending[task.number] = task

    def _greet(self, task: _Task, line: bytes) -> None:
        task.greeted_bytes += len(line)
        try:
            node = task.greeting.read(line)
        except errors.FleetError as error:
            self._end_task(task, error)
            return
        if node is None:
            if task.greeted_bytes > _MAX_GREETING:
                self._end_task(task, _violation("no hello"))
        elif node not in self._hellos or any(other.node == node for other in self._tasks):
            self._end_task(task, _violation(f"the task says that it runs on {printable(node[:64])}"))
        else:
            task.node = node
            if not self._hellos[node].done():
                self._hellos[node].set_result(task)
            self._note_start()

    def _task_ended(self, end: EndedTask) -> None:
        """A task has ended, and srun has not: its node has lost its agent."""
        task = self._task(end.number)
        if self._is_closed or task is None:
            return
        if self._cancelled_at is not None and time.monotonic() - self._cancelled_at < CANCEL_S:
            asyncio.get_running_loop().call_later(TASK_END_S, self._task_ended, end)  # srun ends, too
            return
        if task.node:
            error: errors.FleetError = errors.Lost(
                f"the task of the step has ended: {printable(end.how[:200])}",
                "run dmesg on the node: it may be out of memory",
            )
        else:
            error = task.greeting.failure(exit_status(end.how))
        if not task.node and end.node in self._hellos:
            _set_failure(self._hellos[end.node], error)
        self._end_task(task, error)

    def _end_task(self, task: _Task, error: errors.FleetError) -> None:
        """End a task and its streams; the others go on."""
        if task.error is not None:
            return
        task.error = error
        self._pending.pop(task.number, None)
        task.decoder = FrameDecoder()
        self._streams.lose(error, task.number)
        self._note_start()

    def _note_start(self) -> None:
        """A task has said its node, or ended. Once all have, a node that still waits is that of one that ended."""
        if not self._first_end.done():
            self._first_end.set_result(None)
        unnamed = [task.error for task in self._tasks if task.error is not None and not task.node]
        if unnamed and all(task.error is not None or task.node for task in self._tasks):
            for hello in self._hellos.values():
                _set_failure(hello, unnamed[0])  # srun did not say on which node

    def _decode(self) -> None:
        """Decode a slice of each task; the next ones follow when the event loop and the step's share allow it."""
        self._timer = None
        started = time.monotonic()
        for task in list(self._pending.values()):
            try:
                for frame in task.decoder.next_frames():
                    if frame.kind is Kind.PING:
                        self._answered_at = time.monotonic()
                    elif frame.kind in (Kind.HAS, Kind.LACKS):
                        raise MalformedGatewayFrame(f"{frame.kind.name} of a task")
                    self._streams.handle(frame, task.number)
            except MalformedGatewayFrame as error:
                self._end_task(task, _violation(str(error)))
            if task.decoder.is_empty:
                self._pending.pop(task.number, None)
        if self._is_closed:
            return
        pause_s = self._share.spend(time.monotonic() - started)
        is_pausing = bool(self._pending) or pause_s > 0
        if is_pausing:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._decode)
        if self._streams.channel is not None and is_pausing != self._is_paused:
            self._is_paused = is_pausing
            self._streams.channel.pause() if is_pausing else self._streams.channel.resume()


def lost(name: str, why: str) -> errors.GatewayLost:
    """The failure of all nodes of a step that has ended."""
    return errors.GatewayLost(f"step of {name}: {why}", _TRY)


def _set_failure(future: asyncio.Future[Any], error: errors.FleetError) -> None:
    """Fail a future that is not done; its exception counts as retrieved, awaited or not."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def _violation(text: str) -> errors.AgentCrashed:
    return errors.AgentCrashed(f"protocol error: {text}", "check the output of login scripts and of the task prolog")
