"""One node's link: connect, start the agent, read its records, keep its pulse, connect again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from ..config.model import NodeConfig
from ..hub import Hub, Published
from ..plaintext import printable
from ..records import Log, NodeState, State
from . import assets, bundle, endings, failures, opening
from .intake import Intake
from .questions import Frame, Ping, Questions
from .transport import Channel, Transport
from .wire import BadFrame, Hello, Lines, read_frame, read_hello, split_greeting, unpacked

PING_S = 1.0
#: Silence after which a node is shown as lost; its agent answers a ping a second, and a loss must show within 3 s.
SILENT_S = 2.2
#: Silence after which the connection is given up and made anew.
DEAD_S = 10.0
#: From the start of the command to its hello: Python may be cold, its file system slow.
HELLO_S = 20.0
#: The longest a first attempt can take: connect, login, session, hello, first tick.
FIRST_WORD_S = 90.0
#: How long an agent may take to end when it is told to.
STOP_S = 2.0
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0


class _Ear:
    """What one connection says reaches the link for as long as it is the link's connection; what comes late, nobody."""

    def __init__(self, link: Link) -> None:
        self._link: Link | None = link

    def on_bytes(self, data: bytes) -> None:
        if self._link:
            self._link.on_bytes(data)

    def on_error_bytes(self, data: bytes) -> None:
        if self._link:
            self._link.on_error_bytes(data)

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if self._link:
            self._link.on_end(exit_status, error)

    def close(self) -> None:
        self._link = None


class Link:
    """The connection to one node, and everything that is known about its health.

    `state` is what the last `node_state` record said. One task (`run`) owns the connection; the transport calls the
    `on_…` methods on the same event loop.
    """

    def __init__(
        self, node: NodeConfig, transport: Transport, hub: Hub, offered: assets.Assets,
        staging: Callable[[Link, str], None], snapshot_period_ms: int = 0, known: tuple[str, int] | None = None,
    ) -> None:
        """`known`: the agent that an earlier console left there, and its last record that need not come again."""
        self.node = node
        self.state: State = "expected"
        self.arch = ""
        self._transport, self._hub, self._assets, self._stage = transport, hub, offered, staging
        self._console_id = hub.console_id  # whom its agent waits for, should the connection be lost
        self._snapshot_period_ms = snapshot_period_ms  # between reads of the node's clocks; 0: none
        self._intake = Intake(node.name, hub, self._complain)
        if known is not None:
            self._intake.agent, self._intake.last_seq = known
        self._questions = Questions(self._send)
        self._attempt = 0
        self._failure: failures.FleetError | None = None
        self._task: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._retry_now = asyncio.Event()
        self._stopping = False
        self._settled = asyncio.Event()  # the first attempt has led to a sample or to a failure
        self._reset()

    # -- the life of a link --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._say("expected")
        self._task = asyncio.create_task(self.run(), name=f"link {self.node.name}")

    async def run(self) -> None:
        """Connect and serve until cancelled; a failure that trying again cannot mend waits for `reconnect`."""
        delay_s = RETRY_FIRST_S
        while True:
            self._retry_now.clear()
            try:
                await self._session()
            except failures.FleetError as error:
                self._failure = error
            except Exception as error:  # noqa: BLE001 - a fault of ours must show at its node, not end a task unseen
                self._failure = failures.Internal(f"{type(error).__name__}: {error}", "please report this")
                self._complain("".join(traceback.format_exception(error, limit=-6)))
            if self._stopping:
                return
            if self._has_sampled:
                delay_s = RETRY_FIRST_S
            assert self._failure is not None
            self._settled.set()
            wait_s = random.uniform(0, delay_s) if self._failure.retry else None
            self._say("lost" if self.state in ("ok", "lost") else "failed", retry_in_s=wait_s)
            delay_s = min(delay_s * 2, RETRY_MOST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._retry_now.wait()

    @property
    def agent_id(self) -> str:
        """The incarnation of the agent that speaks here; empty before the first."""
        return self._intake.agent

    @property
    def last_seq(self) -> int:
        """The number of the last record of this agent that has come, or is known not to come."""
        return self._intake.last_seq

    @property
    def rtt_ns(self) -> int | None:
        """The shortest round trip of the last pings."""
        return self._questions.rtt_ns

    @property
    def offset_ns(self) -> int | None:
        """The node's CLOCK_REALTIME minus ours, from that ping; good to ± rtt/2."""
        return self._questions.offset_ns

    @property
    def failure(self) -> failures.FleetError | None:
        """Why there is no connection, where that is known."""
        return self._failure

    async def first_word(self) -> None:
        """Wait until the agent has sampled once. Raises the FleetError that the first attempt ended with."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WORD_S):
                await self._settled.wait()
        if self.state not in ("ok", "lost"):
            raise self._failure or failures.Lost(f"{self.node.name} is not connected")

    @property
    def has_sampled(self) -> bool:
        """Whether this connection's agent has sent its first full tick."""
        return self._has_sampled

    def sampled(self) -> None:
        """A full tick of the agent has arrived."""
        self._has_sampled = True
        self._settled.set()

    def reconnect(self) -> None:
        """Try again now, whatever the link is doing."""
        self._retry_now.set()
        if self._channel:
            self._finish(failures.Lost("closed to connect again"))

    async def stop(self) -> None:
        """Tell the agent to end (also one that would linger) and let go."""
        self._stopping = True
        if self._channel and self._hello:
            self._send({"stop": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._ended.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)

    def _reset(self) -> None:
        self._lines = Lines()
        self._words = endings.LastWords()
        self._hello: Hello | None = None
        self._has_sampled = False
        self._greeted = asyncio.Event()
        self._ended = asyncio.Event()
        self._heard = time.monotonic()
        self._failure = None

    async def _session(self) -> None:
        """One connection from its start to its end; raises the FleetError that ended it."""
        self._attempt += 1
        self._say("lost" if self.state == "lost" else "connecting")  # lost stays lost, with why, until it is back
        self._reset()
        command = bundle.command(self.node.agent.python, self.node.agent.run_as)
        ear = _Ear(self)
        try:
            self._channel = await self._transport.open(self.node, command, ear)
            self._channel.write(bundle.build().preamble)
            self._send({"start": self._opening()})
            await self._wait_for_hello()
            self._say("ok")
            await self._pulse()
        finally:
            ear.close()
            if self._channel:
                self._channel.close()
            self._channel = None
            self._questions.abandon()
        raise self._failure or failures.Lost("the connection ended without a word")

    async def _wait_for_hello(self) -> None:
        greeted = asyncio.create_task(self._greeted.wait())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({greeted, ended}, timeout=HELLO_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            greeted.cancel()
            ended.cancel()
        if self._greeted.is_set():
            return
        if self._ended.is_set():
            raise self._failure or failures.Lost("the connection ended before the agent spoke")
        raise failures.Timeout(
            f"logged in, but the agent did not speak within {HELLO_S:g} s{self._words}",
            f"try: ssh {self.node.name} {self.node.agent.python} -V; a hanging home or shell start-up file does this",
        )

    async def _pulse(self) -> None:
        """Ping every second, look twice as often: say `lost` or `ok` as words stop or come, give up after DEAD_S."""
        for look in itertools.count():
            if self._ended.is_set():
                return
            if look % 2 == 0:
                self._questions.ping()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_S / 2):
                    await self._ended.wait()
                    return
            silent_s = time.monotonic() - self._heard
            if silent_s > DEAD_S:
                raise failures.Lost(f"no word for {silent_s:.0f} s", "is the node up, is the network?")
            if silent_s > SILENT_S and self.state == "ok":
                self._failure = failures.Lost(f"no word for {silent_s:.1f} s")
                self._say("lost")
            elif silent_s < PING_S and self.state == "lost":
                self._failure = None
                self._say("ok")

    # -- what the transport calls --------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        if self._ended.is_set():
            return
        self._heard = time.monotonic()
        try:
            lines = self._lines.feed(data)
        except BadFrame as error:
            self._finish(failures.AgentCrashed(f"what came is not the protocol: {error}"))
            return
        records: list[Published] = []
        rx = time.time_ns()
        for line in lines:
            if self._hello is None:
                self._read_greeting(line)
            else:
                self._read_line(line, rx, records)
        if records:
            self._hub.publish(records)
            if self.node.agent.linger_s > 0:
                self._acknowledge()

    def on_error_bytes(self, data: bytes) -> None:
        self._words.add_error(data)
        if self._hello is not None:  # after the start nothing writes there but a crash
            self._complain(data.decode("utf-8", "replace").strip()[-2000:])

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        greeted = self._hello is not None
        self._finish(endings.explain(exit_status, error, self._words, self.node.agent, greeted=greeted))

    def _finish(self, failure: failures.FleetError) -> None:
        self._failure = self._failure or failure
        self._ended.set()

    # -- frames --------------------------------------------------------------------------------------------------------

    def _read_greeting(self, line: bytes) -> None:
        noise, greeting = split_greeting(line)
        self._words.add_noise(noise)
        if not greeting:
            return
        try:
            hello = read_hello(greeting)
        except BadFrame as error:
            self._finish(failures.AgentCrashed(str(error), "use one version on both sides"))
            return
        self._intake.greet(hello.agent)
        self._hello, self.arch = hello, hello.arch
        self._greeted.set()
        for name in hello.wanted:
            self._stage(self, name)

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
            self._complain(str(error))

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

    def _complain(self, text: str) -> None:
        self._hub.say(Log(node=self.node.name, source="console", severity="warning", text=f"{self.node.name}: {text}"))

    # -- what goes out -------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        if self._channel:
            self._channel.write(msgspec.json.encode(frame) + b"\n")

    def _opening(self) -> Frame:
        offer = {assets.PSUTIL: self._assets.offer(assets.PSUTIL)}
        agent, last_seq = self._intake.agent, self._intake.last_seq
        return opening.start(self.node, self._console_id, agent, last_seq, offer, self._snapshot_period_ms)

    def _acknowledge(self) -> None:
        """The agent may forget what is kept here: on the disk, while a recording runs."""
        self._send({"ack": self._hub.kept(self._intake.agent, self._intake.last_seq)})

    async def request(self, verb: str, args: Frame | None = None, deadline_s: float = 10.0) -> Any:
        """Ask the agent something; the answer's `ok`. Raises FleetError for its refusal, a timeout, a lost link."""
        if self._channel is None or self._hello is None:
            raise failures.Lost(f"{self.node.name} is not connected")
        return await self._questions.ask(verb, args or {}, deadline_s)

    async def ping(self, deadline_s: float) -> Ping:
        """Compare the node's clocks with ours once. Raises FleetError where nothing comes back in time."""
        if self._channel is None or self._hello is None:
            raise failures.Lost(f"{self.node.name} is not connected")
        return await self._questions.ping_once(deadline_s)

    def send_problem(self, name: str, text: str) -> None:
        """Tell the agent that a binary it waits for will not come."""
        self._send({"blob": name, "problem": text})

    @property
    def has_lzma(self) -> bool:
        return self._hello is not None and self._hello.lzma

    def send_blob(self, name: str, encoding: str, packed: bytes) -> None:
        """Send one binary in pieces."""
        for frame in opening.blob_pieces(name, encoding, packed):
            self._send(frame)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _say(self, state: State, retry_in_s: float | None = None) -> None:
        self.state = state
        failure = self._failure.as_failure() if self._failure and state in ("failed", "lost") else None
        retry_at = time.time_ns() + int(retry_in_s * 1e9) if retry_in_s is not None else None
        self._hub.say(
            NodeState(
                node=self.node.name, state=state, error=failure, attempt=self._attempt, retry_at=retry_at,
                tags=self.node.tags,
            )
        )
