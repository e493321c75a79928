"""One node's link: connect, start the agent, read its records, keep its pulse, connect again."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import platform
import random
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ..config.model import NodeConfig
from ..hub import Hub, Published
from ..records import BadRecord, Gap, Log, NodeState, State, decode
from . import assets, bundle, failures
from .transport import Channel, Transport

PROTOCOL = [1, 1]
#: No line may be longer; the agent keeps the same bound.
MAX_LINE = 16 << 20
PING_S = 1.0
#: Silence after which a node is shown as lost; its agent answers a ping a second, and a loss must show within 3 s.
SILENT_S = 2.5
#: Silence after which the connection is given up and made anew.
DEAD_S = 10.0
#: From the start of the command to its hello: Python may be cold, its file system slow.
HELLO_S = 20.0
#: The longest a first attempt can take: connect, login, session, hello, first tick.
FIRST_WORD_S = 90.0
#: How long an agent may take to end when it is told to.
STOP_S = 2.0
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 60.0
_BLOB_PIECE = 96 << 10


class Lines:
    """Cuts a stream of bytes into lines; a line over MAX_LINE is a ValueError."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data if self._rest else data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE} bytes")
        return lines


class Link:
    """The connection to one node, and everything that is known about its health.

    `state` is what the last `node_state` record said. One task (`run`) owns the connection; the transport calls the
    `on_…` methods on the same event loop.
    """

    def __init__(
        self, node: NodeConfig, transport: Transport, hub: Hub, offered: assets.Assets,
        staging: Callable[[Link, str], None],
    ) -> None:
        self.node = node
        self.state: State = "expected"
        self.agent_id = ""
        self.arch = ""
        self.rtt_ns: int | None = None  # shortest round trip of the last pings
        self.offset_ns: int | None = None  # node's CLOCK_REALTIME minus ours, from that ping; good to ± rtt/2
        self.doubled = 0  # records that came twice after a reconnect, dropped
        self._transport, self._hub, self._assets, self._stage = transport, hub, offered, staging
        self._last_seq = 0
        self._attempt = 0
        self._failure: failures.FleetError | None = None
        self._task: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._retry_now = asyncio.Event()
        self._stopping = False
        self._settled = asyncio.Event()  # the first attempt has led to a sample or to a failure
        self._reset()

    # -- the life of a link ------------------------------------------------------------------------------------------

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
            was_ok = self.state in ("ok", "lost")
            if was_ok:
                delay_s = RETRY_FIRST_S
            if self._stopping:
                return
            assert self._failure is not None
            self._settled.set()
            wait_s = random.uniform(0, delay_s) if self._failure.retry else None
            self._say("lost" if was_ok else "failed", retry_in_s=wait_s)
            delay_s = min(delay_s * 2, RETRY_MOST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._retry_now.wait()

    async def first_word(self) -> None:
        """Wait until the agent has sampled once. Raises the FleetError that the first attempt ended with."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WORD_S):
                await self._settled.wait()
        if self.state not in ("ok", "lost"):
            raise self._failure or failures.Lost(f"{self.node.name} is not connected")

    def sampled(self) -> None:
        """The agent's first full tick has arrived."""
        self._settled.set()

    def reconnect(self) -> None:
        """Try again now, whatever the link is doing."""
        self._retry_now.set()
        if self._channel:
            self._finish(failures.Lost("closed to connect again"))

    async def stop(self) -> None:
        """Tell the agent to end (also one that would linger) and let go."""
        self._stopping = True
        if self._channel and self.agent_id:
            self._send({"stop": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._ended.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_S)

    def _reset(self) -> None:
        self._lines = Lines()
        self._noise: deque[str] = deque(maxlen=20)  # what came before the hello: motd, module load
        self._stderr: deque[bytes] = deque(maxlen=50)
        self._hello: dict[str, Any] | None = None
        self._greeted = asyncio.Event()
        self._ended = asyncio.Event()
        self._heard = time.monotonic()
        self._pings: dict[int, int] = {}
        self._ping_id = 0
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._failure = None

    async def _session(self) -> None:
        """One connection from its start to its end; raises the FleetError that ended it."""
        self._attempt += 1
        self._say("lost" if self.state == "lost" else "connecting")  # a lost node stays lost, with why, until it is back
        self._reset()
        command = bundle.command(self.node.agent.python, self.node.agent.run_as)
        self._channel = await self._transport.open(self.node, command, self)
        try:
            self._channel.write(bundle.build().preamble)
            self._send({"start": self._start_frame()})
            await self._wait_for_hello()
            self._say("ok")
            await self._pulse()
        finally:
            self._channel.close()
            self._channel = None
            for reply in self._replies.values():
                reply.cancel()
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
            f"logged in, but the agent did not speak within {HELLO_S:g} s{self._last_words()}",
            f"try: ssh {self.node.name} {self.node.agent.python} -V; a hanging home or shell start-up file does this",
        )

    async def _pulse(self) -> None:
        """Ping every second, look twice as often; say `lost` when nothing comes, `ok` when something does, give up after DEAD_S."""
        for look in itertools.count():
            if self._ended.is_set():
                return
            if look % 2 == 0:
                self._ping()
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
        self._heard = time.monotonic()
        try:
            lines = self._lines.feed(data)
        except ValueError as error:
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
        self._stderr.append(data)
        if self._hello is not None:  # after the start nothing writes there but a crash
            self._complain(data.decode("utf-8", "replace").strip()[-2000:])

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        self._finish(self._explain_end(exit_status, error))

    def _finish(self, failure: failures.FleetError) -> None:
        self._failure = self._failure or failure
        self._ended.set()

    # -- frames --------------------------------------------------------------------------------------------------------

    def _read_greeting(self, line: bytes) -> None:
        if not line.startswith(b'{"gconsole":'):
            if line.strip():
                self._noise.append(line[:500].decode("utf-8", "replace"))
            return
        try:
            hello = msgspec.json.decode(line)["gconsole"]
            low, high = hello["protocol"]
            if not low <= PROTOCOL[1] <= high and not PROTOCOL[0] <= high <= PROTOCOL[1]:
                raise ValueError(f"it speaks protocol {low} to {high}, this console {PROTOCOL[0]} to {PROTOCOL[1]}")
            self.arch, agent_id, wanted = str(hello["arch"]), str(hello["agent"]), list(hello["wanted"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            self._finish(failures.AgentCrashed(f"its hello makes no sense: {error}", "use one version on both sides"))
            return
        if agent_id != self.agent_id:
            self.agent_id, self._last_seq = agent_id, 0
        self._hello = hello
        self._greeted.set()
        for name in wanted:
            self._stage(self, name)

    def _read_line(self, line: bytes, rx: int, records: list[Published]) -> None:
        if line.startswith(b'{"z":'):
            try:
                line = zlib.decompressobj().decompress(base64.b64decode(msgspec.json.decode(line)["z"]), MAX_LINE)
            except (msgspec.DecodeError, ValueError, zlib.error) as error:
                self._complain(f"a packed frame is damaged: {error}")
                return
        if line.startswith(b'{"kind":'):
            self._take_record(line, rx, records)
        elif line:
            self._take_frame(line)

    def _take_record(self, line: bytes, rx: int, records: list[Published]) -> None:
        try:
            record = decode(line)
        except BadRecord as error:
            self._complain(f"a record does not fit its kind: {error}")
            return
        record.node = self.node.name
        record.agent = self.agent_id
        record.rx = rx
        if record.seq <= self._last_seq:
            self.doubled += 1
            return
        if record.seq > self._last_seq + 1:
            self._skip_to(record.seq - 1, "link", "records did not arrive")
        self._last_seq = record.seq
        records.append(record)

    def _skip_to(self, last: int, source: str, reason: str) -> None:
        """Count the records after the last one that came, up to `last`, as never to come."""
        first = self._last_seq + 1
        self._last_seq = last
        self._hub.say(
            Gap(
                node=self.node.name, source=source, reason=reason, count=last - first + 1, first_seq=first, last_seq=last,
            )
        )

    def _take_frame(self, line: bytes) -> None:
        try:
            frame = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            self._complain(f"a frame is no JSON: {error}")
            return
        if not isinstance(frame, dict):
            self._complain("a frame is no object")
        elif "pong" in frame:
            self._take_pong(frame)
        elif "gap" in frame:
            self._take_gap(frame)
        elif "re" in frame:
            reply = self._replies.pop(frame["re"], None)
            if reply and not reply.done():
                reply.set_result(frame)
        else:
            self._complain(f"a frame of no kind this console knows: {', '.join(map(str, list(frame)[:5]))}")

    def _take_gap(self, frame: dict[str, Any]) -> None:
        """The agent itself says which records it had to drop; it does so in their place."""
        match frame["gap"]:
            case [int(first), int(last)] if first == self._last_seq + 1 and first <= last < 2**63:
                self._skip_to(last, "buffer", str(frame.get("reason", "")))
            case other:
                self._complain(f"a gap that does not follow on record {self._last_seq}: {other}")

    def _take_pong(self, frame: dict[str, Any]) -> None:
        sent = self._pings.pop(frame["pong"], None)
        if sent is None or not isinstance(frame.get("t"), int):
            return
        now = time.time_ns()
        rtt = now - sent
        if self.rtt_ns is None or rtt <= self.rtt_ns * 1.5:
            self.rtt_ns = rtt
            self.offset_ns = frame["t"] - (sent + now) // 2

    def _complain(self, text: str) -> None:
        self._hub.say(Log(node=self.node.name, source="console", severity="warning", text=f"{self.node.name}: {text}"))

    # -- what goes out ---------------------------------------------------------------------------------------------------

    def _send(self, frame: dict[str, Any]) -> None:
        if self._channel:
            self._channel.write(msgspec.json.encode(frame) + b"\n")

    def _start_frame(self) -> dict[str, Any]:
        agent = self.node.agent
        return {
            "protocol": PROTOCOL,
            "console": self._hub.console_id,
            "label": f"uid {os.getuid()} at {platform.node()}, pid {os.getpid()}",
            "bundle": bundle.build().digest,
            "agent": self.agent_id,
            "after": self._last_seq,
            "blobs": {assets.PSUTIL: self._assets.offer(assets.PSUTIL)},
            "config": {
                "sample_interval_ms": agent.sample_interval_ms,
                "linger_s": agent.linger_s,
                "orphan_s": agent.orphan_s,
                "buffer_bytes": agent.buffer_bytes,
                "cpu_budget_pct": agent.cpu_budget_pct,
                "cache_dir": agent.cache_dir,
                "ephemeral": agent.ephemeral,
                "simulate_gpus": agent.simulate_gpus,
                "process_filter": self.node.process_filter,
            },
        }

    def _ping(self) -> None:
        self._ping_id += 1
        if len(self._pings) > 16:
            self._pings.clear()
        self._pings[self._ping_id] = time.time_ns()
        self._send({"ping": self._ping_id})

    def _acknowledge(self) -> None:
        self._send({"ack": self._last_seq})

    async def request(self, verb: str, args: dict[str, Any] | None = None, deadline_s: float = 10.0) -> Any:
        """Ask the agent something; the answer's `ok`. Raises FleetError for its refusal, a timeout, a lost link."""
        if self._channel is None or self._hello is None:
            raise failures.Lost(f"{self.node.name} is not connected")
        self._ping_id += 1
        number = self._ping_id
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "do": verb, "args": args or {}})
        try:
            async with asyncio.timeout(deadline_s):
                answer = await reply
        except TimeoutError:
            raise failures.Timeout(f"no answer to {verb} within {deadline_s:g} s") from None
        except asyncio.CancelledError:
            if self._channel is None:
                raise failures.Lost(f"the connection ended during {verb}") from None
            raise
        finally:
            self._replies.pop(number, None)
        if "error" in answer:
            error = answer["error"]
            raise failures.AgentRefused(str(error.get("name")), str(error.get("text")), str(error.get("try", "")))
        return answer["ok"]

    def send_problem(self, name: str, text: str) -> None:
        """Tell the agent that a binary it waits for will not come."""
        self._send({"blob": name, "problem": text})

    @property
    def has_lzma(self) -> bool:
        return bool(self._hello and self._hello.get("lzma"))

    def send_blob(self, name: str, encoding: str, packed: bytes) -> None:
        """Send one binary in pieces."""
        for at in range(0, len(packed), _BLOB_PIECE):
            piece = base64.b64encode(packed[at : at + _BLOB_PIECE]).decode()
            self._send({"blob": name, "encoding": encoding, "data": piece, "end": at + _BLOB_PIECE >= len(packed)})

    # -- words -----------------------------------------------------------------------------------------------------------

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

    def _last_words(self) -> str:
        said = b"".join(self._stderr).decode("utf-8", "replace").strip().splitlines()[-3:] or list(self._noise)[-3:]
        return f" (it said: {' / '.join(said)})" if said else ""

    def _explain_end(self, exit_status: int | None, error: Exception | None) -> failures.FleetError:
        """Why the agent's command ended, from its exit status and its last words."""
        if isinstance(error, failures.FleetError):
            return error
        said = b"".join(self._stderr).decode("utf-8", "replace")
        python = self.node.agent.python
        if self._hello is not None:
            if exit_status in (None, 0):
                return failures.Lost(f"the connection ended{f': {error}' if error else ''}")
            return failures.AgentCrashed(f"the agent ended with status {exit_status}{self._last_words()}")
        if "gconsole: python_too_old" in said or "Unknown option: -I" in said:
            version = said.split("python_too_old")[-1].strip()[:10] if "python_too_old" in said else "before 3.4"
            return failures.PythonTooOld(f"{python} there is {version}; the agent needs 3.6", "set python = \"…\" for this node")
        if "gconsole: bundle_rejected" in said:
            return failures.BundleRejected("the agent's code arrived damaged, or something wrote into the channel")
        if "sudo:" in said:
            return failures.NoPermission(
                f"sudo refused{self._last_words()}", "allow it without a password in sudoers, or run_as = \"self\""
            )
        if exit_status in (126, 127):
            return failures.NoPython(f"no {python} there{self._last_words()}", "install Python 3.6 or newer, or set python = \"…\"")
        if exit_status is None or error is not None:
            return failures.Lost(f"the connection ended before the agent spoke{f': {error}' if error else ''}{self._last_words()}")
        return failures.AgentCrashed(f"the agent did not start (status {exit_status}){self._last_words()}")
