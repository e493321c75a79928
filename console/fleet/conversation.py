"""One connection to an agent as this side hears it: what its command says, from the first byte to the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from ..config.model import NodeConfig
from ..hub import Hub, Published
from ..plaintext import printable
from . import endings, failures, limits
from .intake import Intake
from .questions import Frame, Questions
from .tcp import Owed
from .transport import Channel
from .wire import BadFrame, Hello, Lines, read_frame, read_hello, split_greeting, unpacked

#: From the start of the command to its hello: Python may be cold, its file system slow.
HELLO_S = 20.0
#: A node that takes too much is not read for so long at most: longer would look like silence.
MOST_PAUSE_S = 1.0


class Conversation:
    """A `Receiver` whose records go to the hub, whose answers go to `questions`. After `close` it hears nothing.

    `greeted` and `ended` are set when the agent has said hello, and when nothing comes any more; `failure` is why.
    `on_hello` is told who speaks, `complain` what makes no sense.
    """

    def __init__(
        self, node: NodeConfig, hub: Hub, intake: Intake, questions: Questions, on_hello: Callable[[Hello], None],
        complain: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.hello: Hello | None = None
        self.heard = time.monotonic()  # when it last said anything
        self.greeted, self.ended = asyncio.Event(), asyncio.Event()
        self.failure: failures.FleetError | None = None
        self.channel: Channel | None = None  # the way back, once it is open
        self._node, self._hub, self._intake, self._questions = node, hub, intake, questions
        self._on_hello, self._complain = on_hello, complain
        self._share = limits.share()
        self._lines = Lines()
        self._words = endings.LastWords()
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
            raise self.failure or failures.Lost("the connection ended before the agent spoke")
        name, python = self._node.name, self._node.agent.python
        raise failures.Timeout(
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

    def owed(self) -> Owed | None:
        """What of our words the node's kernel has not acknowledged, where that is known."""
        return self.channel.owed() if self.channel else None

    def send(self, frame: Frame) -> None:
        """Queue a frame; nothing where the connection is not open, or is over."""
        if self.channel:
            self.channel.write(msgspec.json.encode(frame) + b"\n")

    def end(self, failure: failures.FleetError) -> None:
        """It is over, for this reason unless there was one before."""
        self.failure = self.failure or failure
        self.ended.set()

    def close(self) -> None:
        """Let go of the connection: what comes late reaches nobody."""
        self._closed = True
        if self.channel:
            self.channel.close()
        self.channel = None

    # -- what the transport calls --------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        if self._closed or self.ended.is_set():
            return
        self.heard = time.monotonic()
        began_s = time.thread_time()
        try:
            self._hear(data)
        except BadFrame as error:
            self.end(failures.AgentCrashed(f"what came is not the protocol: {error}"))
        finally:
            self._rest(self._share.spend(time.thread_time() - began_s))

    def _hear(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        records: list[Published] = []
        rx = time.time_ns()
        for line in lines:
            if self.hello is None:
                self._read_greeting(line)
            else:
                self._read_line(line, rx, records)
        if records:
            self._hub.publish(records)
            if self._node.agent.linger_s > 0:
                self._acknowledge()

    def _rest(self, pause_s: float) -> None:
        """Read no more for a while: it had its share, and the others are to be heard as soon as ever."""
        if pause_s > 0 and self.channel is not None:
            self.channel.pause()
            asyncio.get_running_loop().call_later(min(pause_s, MOST_PAUSE_S), self._go_on)

    def _go_on(self) -> None:
        if self.channel is not None:
            self.channel.resume()

    def on_error_bytes(self, data: bytes) -> None:
        if self._closed:
            return
        self._words.add_error(data)
        if self.hello is not None:  # after the start nothing writes there but a crash
            self._complain(data.decode("utf-8", "replace").strip()[-2000:])

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if not self._closed:
            greeted = self.hello is not None
            self.end(endings.explain(exit_status, error, self._words, self._node.agent, greeted=greeted))

    # -- frames --------------------------------------------------------------------------------------------------------

    def _read_greeting(self, line: bytes) -> None:
        noise, greeting = split_greeting(line)
        self._words.add_noise(noise)
        if not greeting:
            return
        try:
            hello = read_hello(greeting)
        except BadFrame as error:
            self.end(failures.AgentCrashed(str(error), "use one version on both sides"))
            return
        self._intake.greet(hello.agent)
        self.hello = hello
        self.greeted.set()
        self._on_hello(hello)

    def _read_line(self, line: bytes, rx: int, records: list[Published]) -> None:
        try:
            line = unpacked(line)
            if line.startswith(b'{"kind":'):
                record = self._intake.take(line, rx)
                if record is not None:
                    records.append(record)
            elif line:
                self._take_frame(read_frame(line))
        except BadFrame as error:
            self._complain(printable(str(error)[:500]))
        except RecursionError:  # deeper than JSON's reader minds, and too deep for whoever looked at it
            self._complain("a frame that is nested too deeply")

    def _take_frame(self, frame: Frame) -> None:
        match frame:
            case {"pong": int(number), "t": int(t), "mono": int(mono)}:
                self._questions.take_pong(number, t, mono)
            case {"gap": [int(first), int(last)]} if self._intake.skip(first, last, str(frame.get("reason", ""))):
                pass
            case {"re": int(number)}:
                self._questions.take_answer(number, frame)
            case _:
                self._complain(f"a frame that makes no sense: {printable(str(frame)[:200])}")

    def _acknowledge(self) -> None:
        """The agent may forget what is kept here: on the disk, while a recording runs."""
        self.send({"ack": self._hub.kept(self._intake.agent, self._intake.last_seq)})
