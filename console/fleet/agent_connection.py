"""One connection to an agent as this side hears it: what its command says, from the first byte to the end."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator

import msgspec

from ..config.model import NodeConfig
from ..core.bus import Hub, Published
from ..text.sanitize import printable
from ..transport import errors
from ..transport.tcp_info import Unacked
from ..transport.transport import Channel
from . import exit_reason, quotas
from .fair_reader import LATE_S, FairReader, Line
from .record_receiver import RecordReceiver
from .rpc import Frame, Rpc
from .wire import Hello, Lines, MalformedFrame, read_frame, read_hello, split_greeting, unpacked

#: From the start of the command to its hello: Python may be cold, its file system slow.
HELLO_S = 20.0


class AgentConnection:
    """A `Receiver` whose records go to the hub, whose answers go to `questions`. After `close` it hears nothing.

    `greeted` and `ended` are set when the agent has said hello, and when nothing comes any more; `failure` is why.
    `on_hello` is told who speaks, `complain` what makes no sense.
    """

    def __init__(
        self, node: NodeConfig, hub: Hub, intake: RecordReceiver, questions: Rpc, on_hello: Callable[[Hello], None],
        complain: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.hello: Hello | None = None
        self.heard = time.monotonic()  # when it last said anything
        self.greeted, self.ended = asyncio.Event(), asyncio.Event()
        self.failure: errors.FleetError | None = None
        self.channel: Channel | None = None  # the way back, once it is open
        self._node, self._hub, self._receiver, self._rpc = node, hub, intake, questions
        self._on_hello, self._complain = on_hello, complain
        self._fair_reader = FairReader(self._hear, self._hold, quotas.fair_share(), self._say_late)
        self._lines = Lines()
        self._words = exit_reason.LastWords()
        self._closed = False

    async def wait_for_hello(self) -> None:
        """Raises FleetError where it ends before, or takes too long."""
        greeted = asyncio.create_task(self.greeted.wait())
        ended = asyncio.create_task(self.ended.wait())
        try:
            await asyncio.wait({greeted, ended}, timeout=HELLO_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            greeted.cancel()
            ended.cancel()
        if self.greeted.is_set():
            return
        if self.ended.is_set():
            raise self.failure or errors.Lost("the connection ended before the agent spoke")
        name, python = self._node.name, self._node.agent.python
        raise errors.Timeout(
            f"logged in, but the agent did not speak within {HELLO_S:g} s{self._words}",
            f"try: ssh {name} {python} -V; a hanging home or shell start-up file does this",
        )

    @property
    def is_open(self) -> bool:
        """Whether the agent has said hello on a connection that is still held."""
        return self.channel is not None and self.hello is not None

    def silent_s(self) -> float:
        """How long nothing has come."""
        return time.monotonic() - self.heard

    def unacked(self) -> Unacked | None:
        """What of our words the node has not acknowledged, where that is known."""
        return self.channel.unacked(self.silent_s()) if self.channel else None

    async def answers(self) -> bool | None:
        """Whether the node takes another connection the way this one goes, where that is known."""
        return await self.channel.answers() if self.channel else None

    def send(self, frame: Frame) -> None:
        """Queue a frame; nothing where the connection is not open, or is over."""
        if self.channel:
            self.channel.write(msgspec.json.encode(frame) + b"\n")

    def end(self, failure: errors.FleetError) -> None:
        """It is over, for this reason unless there was one before."""
        self.failure = self.failure or failure
        self.ended.set()

    def close(self) -> None:
        """Let go of the connection: what comes late reaches nobody."""
        self._closed = True
        self._fair_reader.clear()
        if self.channel:
            self.channel.close()
        self.channel = None

    # -- what the transport calls --------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        if self._closed or self.ended.is_set():
            return
        self.heard = time.monotonic()
        try:
            self._fair_reader.add(self._lines.feed(data), time.time_ns())
        except MalformedFrame as error:
            failure = errors.AgentCrashed(f"what came is not the protocol: {error}")
            self._fair_reader.finish(lambda: self.end(failure))

    def _hear(self, lines: Iterator[Line]) -> None:
        self.heard = time.monotonic()  # what waited for its turn was no silence
        try:
            self._read(lines)
        except Exception as error:  # noqa: BLE001 - a fault of ours must show at its node, not in a callback unseen
            self.end(errors.Internal(f"{type(error).__name__}: {error}", "please report this"))
            self._complain("".join(traceback.format_exception(error, limit=-6)))

    def _read(self, lines: Iterator[Line]) -> None:
        records: list[Published] = []
        for line, rx in lines:
            if self.hello is None:
                self._read_greeting(line)
            else:
                self._read_line(line, rx, records)
        if records:
            self._hub.publish(records)
            if self._node.agent.linger_s > 0:
                self._acknowledge()

    def _hold(self, held: bool) -> None:
        """Read no more for a while, or again: it had its share, and the others are to be heard as soon as ever."""
        if self.channel is not None:
            self.channel.pause() if held else self.channel.resume()

    def _say_late(self) -> None:
        self._complain(
            f"it says too much: for {LATE_S:g} s more than is heard of one node ({quotas.SHARE:.0%} of this console's "
            "time), so that its figures come late, and no other's; if it lasts, try a longer agent.sample_interval_ms"
        )

    def on_error_bytes(self, data: bytes) -> None:
        if self._closed:
            return
        self._words.add_error(data)
        if self.hello is not None:  # after the start nothing writes there but a crash
            self._complain(data.decode("utf-8", "replace").strip()[-2000:])

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if not self._closed:
            self._fair_reader.finish(lambda: self._end(exit_status, error))

    def _end(self, exit_status: int | None, error: Exception | None) -> None:
        greeted = self.hello is not None
        self.end(exit_reason.explain(exit_status, error, self._words, self._node.agent, greeted=greeted))

    # -- frames --------------------------------------------------------------------------------------------------------

    def _read_greeting(self, line: bytes) -> None:
        noise, greeting = split_greeting(line)
        self._words.add_noise(noise)
        if not greeting:
            return
        try:
            hello = read_hello(greeting)
        except MalformedFrame as error:
            self.end(errors.AgentCrashed(str(error), "use one version on both sides"))
            return
        self._receiver.greet(hello.agent)
        self.hello = hello
        self.greeted.set()
        self._on_hello(hello)

    def _read_line(self, line: bytes, rx: int, records: list[Published]) -> None:
        try:
            line = unpacked(line)
            if line.startswith(b'{"kind":'):
                record = self._receiver.receive(line, rx)
                if record is not None:
                    records.append(record)
            elif line:
                self._take_frame(read_frame(line))
        except MalformedFrame as error:
            self._complain(printable(str(error)[:500]))
        except RecursionError:  # deeper than JSON's reader minds, and too deep for whoever looked at it
            self._complain("a frame that is nested too deeply")

    def _take_frame(self, frame: Frame) -> None:
        match frame:
            case {"pong": int(number), "t": int(t), "mono": int(mono)}:
                self._rpc.take_pong(number, t, mono)
            case {"gap": [int(first), int(last)]} if self._receiver.skip(first, last, str(frame.get("reason", ""))):
                pass
            case {"re": int(number)}:
                self._rpc.take_answer(number, frame)
            case _:
                self._complain(f"a frame that makes no sense: {printable(str(frame)[:200])}")

    def _acknowledge(self) -> None:
        """The agent may forget what is kept here: on the disk, while a recording runs."""
        self.send({"ack": self._hub.kept(self._receiver.agent, self._receiver.last_seq)})
