"""One srun for many nodes: labelled lines, ends of tasks, and tasks that violate the protocol."""

from __future__ import annotations

import asyncio
import binascii
import json
import os
import zlib
from collections.abc import Callable

import pytest

from gconsole.transport import errors
from gconsole.transport.gateway import frames
from gconsole.transport.gateway.frames import Kind
from gconsole.transport.gateway.streams import NodeChannel
from gconsole.transport.step import connection
from gconsole.transport.step.connection import _MAX_QUEUED, StepConnection
from gconsole.transport.step.labels import EndedTask, LabelledLines, ended_tasks, exit_status
from gconsole_remote.gateway import frames as remote_frames

NODES = ("node1", "node2", "node3")
FAILED = "srun: error: node2: task 1: Exited with exit code 127\n"


class PlainGreeting:
    def __init__(self) -> None:
        self.errors = b""

    def read(self, line: bytes) -> str | None:
        return line.decode().partition("hello ")[2] or None

    def add_error(self, data: bytes) -> None:
        self.errors += data

    def failure(self, exit_status: int | None) -> errors.FleetError:
        return errors.NoPython(f"status {exit_status} {self.errors!r}")


class PlainLaunch:
    command = "start"
    first = b"preamble\n"

    def greeting(self) -> PlainGreeting:
        return PlainGreeting()


class NoLimit:
    def spend(self, amount: float) -> float:
        return 0.0


class NodeReceiver:
    def __init__(self) -> None:
        self.data = b""
        self.ended: tuple[int | None, Exception | None] | None = None

    def on_bytes(self, data: bytes) -> None:
        self.data += data

    def on_error_bytes(self, data: bytes) -> None: ...
    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        self.ended = exit_status, error


class SrunChannel:
    """Standard input of srun."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class PlainStep:
    """A step whose tasks are written here: `receivers` are those of their streams."""

    def __init__(self) -> None:
        self.channel = SrunChannel()
        self.lost: list[errors.FleetError] = []
        self.connection = StepConnection("slurm:7", NODES, PlainLaunch(), NoLimit(), self.lost.append)
        self.receivers = [NodeReceiver() for _ in NODES]
        self.channels: list[NodeChannel] = []
        self._packers = [zlib.compressobj() for _ in NODES]

    async def open(self) -> None:
        """Greet as all tasks do, and open the streams 1, 2 and 3 of the nodes."""
        starting = asyncio.create_task(self.connection.start(self.channel))
        await asyncio.sleep(0)
        for number, node in enumerate(NODES):
            self.connection.on_bytes(f"{number}: motd\n{number}: hello {node}\n".encode())
        await starting
        for node, receiver in zip(NODES, self.receivers, strict=True):
            self.channels.append(await self.connection.open_stream(node, ["sh"], receiver))

    def send(self, task: int, *sent: bytes) -> None:
        """Send frames as a task does."""
        packer = self._packers[task]
        packed = packer.compress(b"".join(sent)) + packer.flush(zlib.Z_SYNC_FLUSH)
        for start in range(0, len(packed), 720):
            self.connection.on_bytes(b"%d: =" % task + binascii.b2a_base64(packed[start : start + 720]))

    def ended(self) -> list[bool]:
        return [receiver.ended is not None for receiver in self.receivers]


def with_step(act: Callable[[PlainStep], None], turns: int = 50) -> PlainStep:
    async def run() -> PlainStep:
        step = PlainStep()
        await step.open()
        act(step)
        for _ in range(turns):  # turns of the event loop: it decodes in slices
            await asyncio.sleep(0)
        step.connection.close()
        return step

    return asyncio.run(run())


def test_output_reaches_the_stream_of_its_task_and_input_names_the_task() -> None:
    def act(step: PlainStep) -> None:
        for task in range(len(NODES)):
            step.send(task, remote_frames.encode(Kind.DATA, task + 1, b"from %d" % task))

    step = with_step(act)
    assert [receiver.data for receiver in step.receivers] == [b"from 0", b"from 1", b"from 2"]
    sent = list(remote_frames.FrameReader().feed(bytes(step.channel.written).removeprefix(b"preamble\n")))
    opened = [json.loads(payload) for kind, _, payload in sent if kind == Kind.OPEN]
    assert opened == [{"argv": ["sh"], "task": task} for task in range(len(NODES))]


def exceed_window(step: PlainStep) -> None:
    step.channels[1].pause()
    step.send(1, *[remote_frames.encode(Kind.DATA, 2, os.urandom(frames.MAX_PAYLOAD)) for _ in range(5)])


VIOLATIONS: dict[str, Callable[[PlainStep], None]] = {
    "a frame of another task's stream": lambda step: step.send(1, remote_frames.encode(Kind.DATA, 1, b"x")),
    "a frame of a stream that was not opened": lambda step: step.send(1, remote_frames.encode(Kind.DATA, 9, b"x")),
    "an answer to a blob": lambda step: step.send(1, remote_frames.encode(Kind.LACKS, 1)),
    "more than its window": exceed_window,
    "a line without frames": lambda step: step.connection.on_bytes(b"1: oops\n"),
    "a damaged line": lambda step: step.connection.on_bytes(b"1: =?\n"),
    "bytes that are not zlib": lambda step: step.connection.on_bytes(b"1: =" + binascii.b2a_base64(b"nothing")),
    "output without end": lambda step: step.connection.on_bytes(
        b"".join(b"1: =" + binascii.b2a_base64(b"x" * 720) for _ in range(_MAX_QUEUED // 720 + 1))
    ),
}


@pytest.mark.parametrize("act", VIOLATIONS.values(), ids=VIOLATIONS)
def test_task_that_violates_the_protocol_ends_only_its_own_node(act: Callable[[PlainStep], None]) -> None:
    step = with_step(act)
    assert step.ended() == [False, True, False]
    assert step.receivers[1].ended is not None
    assert isinstance(step.receivers[1].ended[1], errors.AgentCrashed)
    assert step.receivers[0].data == b""
    assert step.lost == []


@pytest.mark.parametrize("claimed", ["node1", "node9", "x\x1b[2J"])
def test_task_that_claims_a_node_of_another_one_is_rejected(claimed: str) -> None:
    async def run() -> errors.FleetError:
        step = PlainStep()
        starting = asyncio.create_task(step.connection.start(step.channel))
        await asyncio.sleep(0)
        step.connection.on_bytes(f"0: hello node1\n1: hello {claimed}\n2: hello node3\n".encode())
        await starting
        with pytest.raises(errors.FleetError) as failure:
            await step.connection.open_stream("node2", ["sh"], NodeReceiver())
        step.connection.close()
        return failure.value

    error = asyncio.run(run())
    assert isinstance(error, errors.AgentCrashed)
    assert "\x1b" not in error.text


def test_srun_that_ends_is_reported_once_with_its_reason_and_ends_all_streams() -> None:
    def act(step: PlainStep) -> None:
        step.connection.on_error_bytes(b"slurmstepd: error: *** STEP 7.1 CANCELLED ***\n")
        step.connection.on_end(-9, None)

    step = with_step(act)
    assert [error.text for error in step.lost] == [
        "step of slurm:7: srun ended with signal 9 (slurmstepd: error: *** STEP 7.1 CANCELLED ***)"
    ]
    assert [receiver.ended for receiver in step.receivers] == [(None, step.lost[0])] * 3


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_ends_of_tasks_of_a_cancelled_step_wait_for_srun(monkeypatch: pytest.MonkeyPatch, is_cancelled: bool) -> None:
    monkeypatch.setattr(connection, "TASK_END_S", 0.0)

    def act(step: PlainStep) -> None:
        if is_cancelled:
            step.connection.on_error_bytes(b"0: slurmstepd-node1: error: *** STEP 7.1 ON node1 CANCELLED AT now ***\n")
        step.connection.on_error_bytes(b"srun: error: node2: task 1: Killed\n")

    step = with_step(act)
    assert step.ended() == [False, not is_cancelled, False]
    assert step.lost == []


def test_line_without_end_ends_the_step() -> None:
    step = with_step(lambda step: step.connection.on_bytes(b"1: =" + b"A" * 10_000))
    assert [type(error) for error in step.lost] == [errors.GatewayLost]


async def test_program_that_does_not_start_is_explained_by_its_own_standard_error() -> None:
    step = PlainStep()
    starting = asyncio.create_task(step.connection.start(step.channel))
    await asyncio.sleep(0)
    step.connection.on_bytes(b"0: hello node1\n2: hello node3\n")
    await starting
    step.connection.on_error_bytes(b"1: sh: python3: not found\n" + FAILED.encode())
    with pytest.raises(errors.NoPython, match="status 127 b'sh: python3: not found"):
        await step.connection.open_stream("node2", ["sh"], NodeReceiver())
    assert [step.connection.is_gone(node) for node in NODES] == [False, True, False]
    step.connection.close()


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("srun: error: node2: task 1: Killed", [EndedTask(1, "node2", "Killed")]),
        ("srun: error: node[01-02,04]: tasks 0-1,3: Exited with exit code 2", [
            EndedTask(0, "node01", "Exited with exit code 2"), EndedTask(1, "node02", "Exited with exit code 2"),
            EndedTask(3, "node04", "Exited with exit code 2"),
        ]),
        ("srun: error: node[1-9]: tasks 0-1: Killed", [EndedTask(0, "", "Killed"), EndedTask(1, "", "Killed")]),
        ("srun: error: node[1: tasks 0-1: Killed", []),
        ("srun: error: node1: task 9-1: Killed", []),
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", []),
    ],
)  # fmt: skip
def test_ends_of_tasks_are_read_from_messages_of_srun(line: str, ends: list[EndedTask]) -> None:
    assert ended_tasks(line) == ends


def test_exit_status_is_unknown_after_a_signal() -> None:
    assert (exit_status("Exited with exit code 127"), exit_status("Killed")) == (127, None)


def test_lines_are_split_across_reads_and_padded_labels_are_read() -> None:
    lines = LabelledLines()
    read = [line for data in (b" 1: a\n12", b": b\nsrun: c: d\n", b"\n") for line in lines.feed(data)]
    assert read == [(1, b"a"), (12, b"b"), (None, b"srun: c: d"), (None, b"")]
