"""One node's link: connect, start the agent, receive records, monitor liveness, reconnect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..config.model import NodeConfig
from ..config.sections import WatchConfig
from ..core.bus import Hub
from ..records import Log, NodeState, State
from ..text.logs import internal_error
from ..transport import errors, run_command
from ..transport.liveness import LivenessMonitor
from ..transport.transport import Transport
from . import quotas
from .agent_connection import AgentConnection
from .backoff import Backoff
from .deploy import agent_payload
from .liveness_timer import REPORTED_S, LivenessTimer
from .record_receiver import RecordReceiver
from .rpc import Frame, Ping, Rpc, failure_of
from .wire import Hello

_log = logging.getLogger(__name__)

#: Seconds between pings: at first and into silence; and of a node that sends records, to follow its clock.
PING_S, CLOCK_PING_S = 1.0, 10.0
#: Pings at the start, so that the shortest of some round trips gives the offset of the clock.
FIRST_PINGS = 4
#: Seconds without data until a ping asks for some: longer than between two ticks, which are most of the traffic, and
#: shorter than `SUSPECT_AFTER_S`, so that the probes have unacknowledged data to judge.
PING_INTO_SILENCE_S = 1.1
#: Seconds of silence until a node is shown as lost: a loss must show within 3 s.
SILENT_S = 2.2
#: Seconds of silence until the connection is closed, unless it is found dead earlier.
DEAD_S = 10.0
HALF_OPEN_TEXT = "half-open connection: the node is reachable, but this connection is dead"
#: Seconds. Upper bound of a first attempt: connect, login, session, hello, first tick.
FIRST_SAMPLE_S = 90.0
#: Seconds for an agent to exit after a stop.
STOP_S = 2.0


class NodeLink:
    """The connection to one node and its health.

    `state` is that of the last `node_state` record, `failure` why the node is not connected; `has_sampled`: this
    connection's agent has sent its first full tick. The `run` task owns the connection.
    """

    def __init__(
        self, node: NodeConfig, transport: Transport, hub: Hub,
        staging: Callable[[NodeLink, str], None], snapshot_period_ms: int = 0,
        last_agent: tuple[str, int] | None = None, *, gpu_clock: bool = False, jobs_only: bool = False,
        tick_offset_s: float = 0.0, liveness_timer: LivenessTimer | None = None, via: Callable[[], str] = lambda: "",
    ) -> None:  # fmt: skip
        """`last_agent`: an earlier console's agent on the node, and its last record that is already stored.

        `tick_offset_s`: when in each second it samples. `liveness_timer`: the one of all nodes. `via`: the gateway
        through which the node is reached, "" for none.
        """
        self.node = node
        self.state: State = "expected"
        self._via = via
        self.arch = ""
        self.has_lzma = False  # whether its Python can unpack xz
        self._transport, self._hub, self._stage = transport, hub, staging
        self._console_id = hub.console_id  # identity for which a lingering agent waits
        self._snapshot_period_ms = snapshot_period_ms  # 0: none
        self._traffic_ranks: Sequence[tuple[int, int]] = ()
        self._gpu_clock, self._jobs_only, self._tick_offset_s = gpu_clock, jobs_only, tick_offset_s
        self._receiver = RecordReceiver(node.name, hub, self._warn, inherits=last_agent is not None)
        if last_agent is not None:
            self._receiver.agent, self._receiver.last_seq = last_agent
        self._warning_bucket = quotas.TokenBucket(quotas.WARNINGS_S, quotas.WARNINGS_BURST)
        self._suppressed = 0  # warnings suppressed since the last one
        self._rpc = Rpc(self._send)
        self._liveness_timer = liveness_timer or LivenessTimer(hub)
        self._pings, self._pinged_at = 0, 0.0  # on this connection: how many, and when the last (monotonic)
        self._attempt = 0
        self.failure: errors.FleetError | None = None
        self._task: asyncio.Task[None] | None = None
        self._connection: AgentConnection | None = None  # current or last
        self.has_sampled = False
        self.hold_s = 0.0  # seconds for which the agent may hold records back: no silence
        self._backoff = Backoff(lambda: transport.answers(node))
        self._stopping = False
        self._first_attempt_done = asyncio.Event()  # set at the first sample or failure

    # -- life cycle --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the link's task."""
        self._publish_state("expected")
        self._task = asyncio.create_task(self.run(), name=f"link {self.node.name}")

    async def run(self) -> None:
        """Connect and serve until cancelled; failures that are not retried wait for `reconnect`."""
        while True:
            try:
                await self._run_connection()
            except errors.FleetError as error:
                self.failure = self._or_console_late(error)
            except Exception as error:  # noqa: BLE001 - show bugs at the node instead of ending the task silently
                self.failure = errors.Internal(internal_error(error, f"the link to {self.node.name}"))
            if self._stopping:
                return
            if self.has_sampled:
                self._backoff.reset()
            assert self.failure is not None
            self._first_attempt_done.set()
            wait_s = self._backoff.draw_s() if self.failure.retry else None
            self._publish_state("lost" if self.state in ("ok", "lost") else "failed", retry_in_s=wait_s)
            await self._backoff.wait(wait_s, was_away=self.failure.was_away)

    def _or_console_late(self, error: errors.FleetError) -> errors.FleetError:
        """The error, or `ConsoleLate` where the agent may have ended because the console itself was late."""
        late_s = self._liveness_timer.late_s(self.node.agent.orphan_s + CLOCK_PING_S)
        if self.state not in ("ok", "lost") or type(error) is not errors.Lost or late_s < REPORTED_S:
            return error
        return errors.ConsoleLate(
            f"{error.text}, after the console was late by {late_s:.0f} s",
            "run the console on a machine with more free CPU time that is not suspended",
        )

    @property
    def agent_id(self) -> str:
        """The incarnation of the connected agent; empty before the first."""
        return self._receiver.agent

    @property
    def connected_agent(self) -> str:
        """The agent of this connection, by its hello; empty without one. A gateway may send records of others."""
        hello = self._connection.hello if self._connection is not None else None
        return hello.agent if hello is not None else ""

    @property
    def last_seq(self) -> int:
        """Sequence number of the last record of this agent that was received or is known lost."""
        return self._receiver.last_seq

    @property
    def rtt_ns(self) -> int | None:
        """The minimum round trip of recent pings, ns."""
        return self._rpc.rtt_ns

    @property
    def offset_ns(self) -> int | None:
        """The node's CLOCK_REALTIME minus ours, from that ping, ns; error at most rtt/2."""
        return self._rpc.offset_ns

    @property
    def is_agent_starting(self) -> bool:
        """Whether the agent's program was sent to the node, on this connection or the last one."""
        return self._connection is not None and self._connection.channel is not None

    @property
    def via(self) -> str:
        """The gateway through which the node is reached; "" for none."""
        return self._via()

    async def wait_for_sample(self) -> None:
        """Wait for the agent's first sample. Raises the FleetError of the first attempt."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SAMPLE_S):
                await self._first_attempt_done.wait()
        if self.state not in ("ok", "lost"):
            raise self.failure or errors.Lost(f"{self.node.name} is not connected")

    async def wait_for_reply(self, timeout_s: float) -> None:
        """Wait until a connected node that is silent, or whose clock is not known, has replied; at most `timeout_s`.

        A node that has connected only now has not answered its first ping.
        """
        deadline = time.monotonic() + timeout_s
        has_pinged = False
        while self.state == "lost" or (self.state == "ok" and self.offset_ns is None):
            if self._connection is None or not self._connection.is_open or time.monotonic() > deadline:
                return
            if self.state == "ok" and not has_pinged:
                has_pinged = True
                self._rpc.ping()
            await asyncio.sleep(0.05)

    async def wait_for_record(self, agent: str, seq: int, timeout_s: float) -> None:
        """Wait for record `seq` of `agent` (a reply overtakes records that were queued before). Raises Timeout."""
        deadline = time.monotonic() + timeout_s
        while self.agent_id == agent and self.last_seq < seq:
            if time.monotonic() > deadline:
                raise errors.Timeout("timeout: last records did not arrive")
            await asyncio.sleep(0.005)

    def mark_sampled(self, interval_s: float) -> None:
        """Note that a full tick of the agent has arrived; `interval_s` is its effective sampling interval."""
        self.has_sampled = True
        if self._connection is not None:
            self._connection.sampling.on_tick(interval_s)
        self._first_attempt_done.set()

    def reconnect(self) -> None:
        """Reconnect now, whatever the link's state."""
        self._backoff.again.set()
        if self._connection and self._connection.channel:
            self._connection.end(errors.Lost("reconnect requested"))

    async def stop(self) -> None:
        """Stop the agent (also a lingering one) and disconnect."""
        _log.debug("%s: disconnecting, state %s", self.node.name, self.state)
        self._stopping = True
        if self._connection and self._connection.is_open:
            self._connection.send({"stop": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._connection.ended.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)

    async def _run_connection(self) -> None:
        """Run one connection from start to end; raises the FleetError that ended it."""
        self._attempt += 1
        self._publish_state("lost" if self.state == "lost" else "connecting")  # stay lost until reconnected
        self.failure, self.has_sampled, self.hold_s = None, False, 0.0
        connection = self._connection = AgentConnection(
            self.node, self._hub, self._receiver, self._rpc, self._greet, self._warn
        )
        command = agent_payload.command(self.node.agent.python, self.node.agent.run_as)
        _log.debug("%s: start command: %s", self.node.name, command)
        try:
            run_command.require_some()
            channel = await self._transport.open(self.node, command, connection)
            started_with = self._settings()
            connection.start_agent(channel, agent_payload.build(), self._start_frame())
            hello = await connection.wait_for_hello()
            if hello.resumed or self._settings() != started_with:  # a lingering agent may have older settings
                self.read_clocks_every(self._snapshot_period_ms)
                self.follow_watch(self.node.watch)
            if hello.resumed or self._traffic_ranks:
                self._send_traffic_ranks()
            await self._serve(connection)
        finally:
            connection.close()
            self._rpc.abandon()
        raise connection.failure or errors.Lost("connection closed by peer")

    async def _serve(self, connection: AgentConnection) -> None:
        """Keep the connection alive until it ends: publish `lost` or `ok`, close it once it is dead."""
        monitor = LivenessMonitor(
            lambda: self._silent_s(connection), connection.unacked, connection.answers,
            lambda: self._give_up(connection),
            shown_s=SILENT_S, loses_records=self.node.agent.linger_s <= 0,
        )  # fmt: skip
        self._pings = 0
        unwatch = self._liveness_timer.add(lambda is_late: self._check(connection, monitor, is_late=is_late))
        try:
            await connection.ended.wait()
        finally:
            unwatch()
            await monitor.close()

    def _give_up(self, connection: AgentConnection) -> None:
        if not self._liveness_timer.is_late:  # else an answer may wait in the socket
            connection.end(_half_open())

    def _check(self, connection: AgentConnection, monitor: LivenessMonitor, *, is_late: bool) -> float:
        """Ping into silence, and judge it unless the console or the gateway is late; seconds until the next check."""
        if connection.ended.is_set():
            return 0.0
        silent_s = self._silent_s(connection)
        try:
            self._ping_when_due(silent_s)
            if is_late or (silent_s > PING_INTO_SILENCE_S and connection.is_relay_late()):
                return 0.0
            self._check_silence(connection, silent_s)
            self._check_sampling(connection)
            monitor.watch()
        except Exception as error:  # noqa: BLE001 - show bugs at the node, not in the timer of all nodes
            connection.end(errors.Internal(internal_error(error, f"the link to {self.node.name}")))
        if self.state != "ok" or self._pings < FIRST_PINGS:
            return 0.0
        return min(PING_INTO_SILENCE_S - silent_s, PING_S)

    def _silent_s(self, connection: AgentConnection) -> float:
        """Seconds of silence beyond that for which the agent may hold records back; negative within it."""
        return connection.silent_s() - self.hold_s

    def _ping_when_due(self, silent_s: float) -> None:
        """Ping; not into a silence that only seems one, of all nodes at once, because the console has read nothing.

        At the next check it has, and those that are silent then are pinged before their silence is judged.
        """
        now = time.monotonic()
        is_first = self._pings < FIRST_PINGS
        is_silent = silent_s >= PING_INTO_SILENCE_S and not self._liveness_timer.has_unread
        period_s = PING_S if is_first or is_silent else CLOCK_PING_S
        if self._pings == 0 or now - self._pinged_at >= period_s:
            self._pings, self._pinged_at = self._pings + 1, now
            self._rpc.ping()

    def _check_silence(self, connection: AgentConnection, silent_s: float) -> None:
        """Update the state after a silence; end the connection after `DEAD_S`.

        An agent that is still starting is silent while it waits for a processor of a busy node.
        """
        if silent_s > DEAD_S:
            connection.end(errors.Lost(f"no data for {silent_s:.0f} s", "check the node and the network"))
        elif silent_s > SILENT_S and self.state == "ok" and self.has_sampled:
            self.failure = errors.Lost(f"no data for {silent_s:.1f} s")
            self._publish_state("lost")
        elif silent_s < PING_S and self.state == "lost":
            self.failure = None
            self._publish_state("ok")

    def _check_sampling(self, connection: AgentConnection) -> None:
        """Replace an agent that replies but has stopped sampling: a node without data must not be shown as ok."""
        if not connection.sampling.is_overdue or connection.failure is not None:
            return
        failure = connection.failure = errors.AgentCrashed(
            f"no samples for {connection.sampling.silent_s:.0f} s, although the agent replies",
            "gconsole starts the agent again; if this recurs, check the node's free memory",
        )
        connection.send({"stop": True})  # also a lingering one, which would be met again
        asyncio.get_running_loop().call_later(STOP_S, connection.end, failure)

    def _greet(self, hello: Hello) -> None:
        versions = hello.protocol
        _log.info("%s: agent %s, %s, wire versions %d to %d", self.node.name, hello.agent, hello.arch, *versions)
        self.arch, self.has_lzma = hello.arch, hello.lzma
        self._publish_state("ok")  # before the records that came with it: the first tick ends the first attempt
        for name in hello.wanted:
            self._stage(self, name)

    # -- sending -------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        if self._connection:
            self._connection.send(frame)

    def expect(self, capture: str) -> None:
        """Register a requested capture; records of others are rejected."""
        self._receiver.quota.expect(capture)

    def _warn(self, text: str) -> None:
        if not self._warning_bucket.consume():
            self._suppressed += 1
            return
        more = f" ({self._suppressed} similar warnings suppressed)" if self._suppressed else ""
        text, self._suppressed = text + more, 0
        name = self.node.name
        self._hub.publish_own(Log(node=name, source="console", severity="warning", text=f"{name}: {text}"))

    def _start_frame(self) -> Frame:
        agent, last_seq = self._receiver.agent, self._receiver.last_seq
        return agent_payload.start(
            self.node, self._console_id, agent, last_seq, self._snapshot_period_ms, gpu_clock=self._gpu_clock,
            jobs_only=self._jobs_only, tick_offset_s=self._tick_offset_s,
        )  # fmt: skip

    def _settings(self) -> tuple[int, WatchConfig]:
        """What the start frame sets and a running agent follows."""
        return self._snapshot_period_ms, self.node.watch

    def read_clocks_every(self, period_ms: int) -> None:
        """Set the period of the node's clock snapshots in ms; 0: none."""
        self._snapshot_period_ms = period_ms
        if self._connection is not None and self._connection.is_open:
            self._connection.send({"snapshots": period_ms})

    def measure_traffic(self, ranks: Sequence[tuple[int, int]]) -> None:
        """Have the agent send the traffic of these ranks only, (pid, start_ticks)."""
        if ranks == self._traffic_ranks:
            return
        self._traffic_ranks = ranks
        self._send_traffic_ranks()

    def _send_traffic_ranks(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.send({"traffic": self._traffic_ranks})

    def follow_watch(self, watch: WatchConfig) -> None:
        """Use newer settings of `[watch]`: the agent follows them, and so do later ones."""
        self.node = msgspec.structs.replace(self.node, watch=watch)
        if self._connection is not None and self._connection.is_open:
            self._connection.send({"watch": agent_payload.watch_settings(watch)})

    async def request(self, verb: str, args: Frame | None = None, deadline_s: float = 10.0) -> Any:
        """Send a request; the reply's `ok`. Raises FleetError: refused, timed out, or connection lost."""
        self._require_connection()
        _log.debug("%s: request %s, time limit %.1f s", self.node.name, verb, deadline_s)
        return await self._rpc.request(verb, args or {}, deadline_s)

    async def ping(self, deadline_s: float) -> Ping:
        """Compare the node's clocks with ours once. Raises FleetError on timeout."""
        self._require_connection()
        return await self._rpc.ping_once(deadline_s)

    def _require_connection(self) -> None:
        if self._connection is None or not self._connection.is_open:
            raise errors.Lost(f"{self.node.name} is not connected")

    def send_problem(self, name: str, text: str) -> None:
        """Notify the agent that a requested binary is not available."""
        self._send({"blob": name, "problem": text})

    def send_blob(self, name: str, encoding: str, packed: bytes) -> None:
        """Send one binary in chunks."""
        _log.debug("%s: sending %s, %s, %d bytes", self.node.name, name, encoding, len(packed))
        for frame in agent_payload.blob_chunks(name, encoding, packed):
            self._send(frame)

    # -- state ---------------------------------------------------------------------------------------------------------

    def _publish_state(self, state: State, retry_in_s: float | None = None) -> None:
        self.state = state
        failure = failure_of(self.failure) if self.failure and state in ("failed", "lost") else None
        retry_at = time.time_ns() + int(retry_in_s * 1e9) if retry_in_s is not None else None
        self._hub.publish_own(NodeState(
            node=self.node.name, state=state, error=failure, attempt=self._attempt, retry_at=retry_at,
            tags=self.node.tags, via=self.via,
        ))  # fmt: skip


def _half_open() -> errors.Lost:
    """The failure of a half-open connection; reconnect without back-off, since the node answers."""
    failure = errors.Lost(HALF_OPEN_TEXT)
    failure.was_away = True
    return failure
