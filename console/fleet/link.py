"""One node's link: connect, start the agent, read its records, keep its pulse, connect again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..config.model import NodeConfig
from ..core.bus import Hub
from ..records import Log, NodeState, State
from ..transport import errors, fd_limit
from ..transport.dead_connection import LivenessMonitor
from ..transport.transport import Transport
from . import quotas
from .agent_connection import AgentConnection
from .backoff import Backoff
from .deploy import binaries, payload, start_frame
from .record_receiver import RecordReceiver
from .rpc import Frame, Ping, Rpc
from .wire import Hello

PING_S = 1.0
#: Silence after which a node is shown as lost; its agent answers a ping a second, and a loss must show within 3 s.
SILENT_S = 2.2
#: Silence after which the connection is given up and made anew, where it is not known to be dead before.
DEAD_S = 10.0
HALF_OPEN_TEXT = "the node answers, but no more on this connection: something on the way has forgotten it"
#: The longest a first attempt can take: connect, login, session, hello, first tick.
FIRST_WORD_S = 90.0
#: How long an agent may take to end when it is told to.
STOP_S = 2.0


class NodeLink:
    """The connection to one node, and everything that is known about its health.

    `state` is what the last `node_state` record said. One task (`run`) owns the connection.
    """

    def __init__(
        self,
        node: NodeConfig,
        transport: Transport,
        hub: Hub,
        offered: binaries.Binaries,
        staging: Callable[[NodeLink, str], None],
        snapshot_period_ms: int = 0,
        known: tuple[str, int] | None = None,
        *,
        gpu_clock: bool = False,
    ) -> None:
        """`known`: the agent that an earlier console left there, and its last record that need not come again."""
        self.node = node
        self.state: State = "expected"
        self.arch = ""
        self.has_lzma = False  # whether its Python can unpack xz
        self._transport, self._hub, self._assets, self._stage = transport, hub, offered, staging
        self._console_id = hub.console_id  # whom its agent waits for, should the connection be lost
        self._snapshot_period_ms = snapshot_period_ms  # between reads of the node's clocks; 0: none
        self._gpu_clock = gpu_clock
        self._receiver = RecordReceiver(node.name, hub, self._complain, inherits=known is not None)
        if known is not None:
            self._receiver.agent, self._receiver.last_seq = known
        self._complaints = quotas.TokenBucket(quotas.COMPLAINTS_S, quotas.COMPLAINTS_BURST)
        self._unsaid = 0  # complaints, since the last one that was said
        self._rpc = Rpc(self._send)
        self._attempt = 0
        self._failure: errors.FleetError | None = None
        self._task: asyncio.Task[None] | None = None
        self._talk: AgentConnection | None = None  # over the present connection, or the last one
        self._has_sampled = False
        self._backoff = Backoff(lambda: transport.answers(node))
        self._stopping = False
        self._settled = asyncio.Event()  # the first attempt has led to a sample or to a failure

    # -- the life of a link --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._say("expected")
        self._task = asyncio.create_task(self.run(), name=f"link {self.node.name}")

    async def run(self) -> None:
        """Connect and serve until cancelled; a failure that trying again cannot mend waits for `reconnect`."""
        while True:
            try:
                await self._session()
            except errors.FleetError as error:
                self._failure = error
            except Exception as error:  # noqa: BLE001 - a fault of ours must show at its node, not end a task unseen
                self._failure = errors.Internal(f"{type(error).__name__}: {error}", "please report this")
                self._complain("".join(traceback.format_exception(error, limit=-6)))
            if self._stopping:
                return
            if self._has_sampled:
                self._backoff.reset()
            assert self._failure is not None
            self._settled.set()
            wait_s = self._backoff.draw_s() if self._failure.retry else None
            self._say("lost" if self.state in ("ok", "lost") else "failed", retry_in_s=wait_s)
            await self._backoff.wait(wait_s, was_away=self._failure.was_away)

    @property
    def agent_id(self) -> str:
        """The incarnation of the agent that speaks here; empty before the first."""
        return self._receiver.agent

    @property
    def last_seq(self) -> int:
        """The number of the last record of this agent that has come, or is known not to come."""
        return self._receiver.last_seq

    @property
    def rtt_ns(self) -> int | None:
        """The shortest round trip of the last pings."""
        return self._rpc.rtt_ns

    @property
    def offset_ns(self) -> int | None:
        """The node's CLOCK_REALTIME minus ours, from that ping; good to ± rtt/2."""
        return self._rpc.offset_ns

    @property
    def failure(self) -> errors.FleetError | None:
        """Why there is no connection, where that is known."""
        return self._failure

    async def first_word(self) -> None:
        """Wait until the agent has sampled once. Raises the FleetError that the first attempt ended with."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WORD_S):
                await self._settled.wait()
        if self.state not in ("ok", "lost"):
            raise self._failure or errors.Lost(f"{self.node.name} is not connected")

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
        self._backoff.again.set()
        if self._talk and self._talk.channel:
            self._talk.end(errors.Lost("closed to connect again"))

    async def stop(self) -> None:
        """Tell the agent to end (also one that would linger) and let go."""
        self._stopping = True
        if self._talk and self._talk.is_open:
            self._talk.send({"stop": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._talk.ended.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)

    async def _session(self) -> None:
        """One connection from its start to its end; raises the FleetError that ended it."""
        self._attempt += 1
        self._say("lost" if self.state == "lost" else "connecting")  # lost stays lost, with why, until it is back
        self._failure, self._has_sampled = None, False
        talk = self._talk = AgentConnection(
            self.node, self._hub, self._receiver, self._rpc, self._greet, self._complain
        )
        command = payload.command(self.node.agent.python, self.node.agent.run_as)
        try:
            fd_limit.require_some()
            talk.channel = await self._transport.open(self.node, command, talk)
            talk.channel.write(payload.build().preamble)
            talk.send({"start": self._opening()})
            await talk.wait_for_hello()
            self._say("ok")
            self.read_clocks_every(self._snapshot_period_ms)  # an agent that stayed began with what held then
            await self._pulse(talk)
        finally:
            talk.close()
            self._rpc.abandon()
        raise talk.failure or errors.Lost("the connection ended without a word")

    async def _pulse(self, talk: AgentConnection) -> None:
        """Ping every second, look twice as often: say `lost` or `ok` as words stop or come; give up what is dead."""
        monitor = LivenessMonitor(
            talk.silent_s, talk.unacked, talk.answers, lambda: talk.end(_forgotten()), shown_s=SILENT_S,
            loses_records=self.node.agent.linger_s <= 0,
        )  # fmt: skip
        try:
            for look in itertools.count():
                if talk.ended.is_set():
                    return
                if look % 2 == 0:
                    self._rpc.ping()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING_S / 2):
                        await talk.ended.wait()
                        return
                self._judge(talk.silent_s())
                monitor.watch()
        finally:
            await monitor.close()

    def _judge(self, silent_s: float) -> None:
        """What a silence means; raises Lost where the connection is to be given up."""
        if silent_s > DEAD_S:
            raise errors.Lost(f"no word for {silent_s:.0f} s", "is the node up, is the network?")
        if silent_s > SILENT_S and self.state == "ok":
            self._failure = errors.Lost(f"no word for {silent_s:.1f} s")
            self._say("lost")
        elif silent_s < PING_S and self.state == "lost":
            self._failure = None
            self._say("ok")

    def _greet(self, hello: Hello) -> None:
        self.arch, self.has_lzma = hello.arch, hello.lzma
        for name in hello.wanted:
            self._stage(self, name)

    # -- what goes out -------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        if self._talk:
            self._talk.send(frame)

    def expect(self, capture: str) -> None:
        """This capture is being asked for; a node that tells of another is not believed."""
        self._receiver.quota.expect(capture)

    def _complain(self, text: str) -> None:
        if not self._complaints.consume():
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more of the kind)" if self._unsaid else ""
        text, self._unsaid = text + more, 0
        name = self.node.name
        self._hub.publish_own(Log(node=name, source="console", severity="warning", text=f"{name}: {text}"))

    def _opening(self) -> Frame:
        offer = {binaries.PSUTIL: self._assets.offer(binaries.PSUTIL)}
        agent, last_seq = self._receiver.agent, self._receiver.last_seq
        return start_frame.start(
            self.node, self._console_id, agent, last_seq, offer, self._snapshot_period_ms, gpu_clock=self._gpu_clock
        )

    def read_clocks_every(self, period_ms: int) -> None:
        """So many ms between two reads of the node's clocks against each other from now on; 0: none."""
        self._snapshot_period_ms = period_ms
        if self._talk is not None and self._talk.is_open:
            self._talk.send({"snapshots": period_ms})

    async def request(self, verb: str, args: Frame | None = None, deadline_s: float = 10.0) -> Any:
        """Ask the agent something; the answer's `ok`. Raises FleetError for its refusal, a timeout, a lost link."""
        self._require_connection()
        return await self._rpc.request(verb, args or {}, deadline_s)

    async def ping(self, deadline_s: float) -> Ping:
        """Compare the node's clocks with ours once. Raises FleetError where nothing comes back in time."""
        self._require_connection()
        return await self._rpc.ping_once(deadline_s)

    def _require_connection(self) -> None:
        if self._talk is None or not self._talk.is_open:
            raise errors.Lost(f"{self.node.name} is not connected")

    def send_problem(self, name: str, text: str) -> None:
        """Tell the agent that a binary it waits for will not come."""
        self._send({"blob": name, "problem": text})

    def send_blob(self, name: str, encoding: str, packed: bytes) -> None:
        """Send one binary in pieces."""
        for frame in start_frame.blob_pieces(name, encoding, packed):
            self._send(frame)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _say(self, state: State, retry_in_s: float | None = None) -> None:
        self.state = state
        failure = self._failure.as_failure() if self._failure and state in ("failed", "lost") else None
        retry_at = time.time_ns() + int(retry_in_s * 1e9) if retry_in_s is not None else None
        self._hub.publish_own(
            NodeState(
                node=self.node.name,
                state=state,
                error=failure,
                attempt=self._attempt,
                retry_at=retry_at,
                tags=self.node.tags,
            )
        )


def _forgotten() -> errors.Lost:
    """The node answers beside this connection, so that another need not wait."""
    failure = errors.Lost(HALF_OPEN_TEXT)
    failure.was_away = True
    return failure
