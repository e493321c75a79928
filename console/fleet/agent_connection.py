"""One connection to an agent: receives and sends protocol frames until it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from ..config.model import NodeConfig
from ..config.sections import AgentConfig
from ..core.bus import Hub, Published
from ..records import RawRecord, Stack
from ..text.logs import internal_error
from ..text.sanitize import printable
from ..text.secrets import SUSPECT, without_secrets
from ..transport import errors
from ..transport.transport import Channel, Unacked
from . import quotas
from .deploy.agent_payload import Payload
from .record_receiver import FairReader, Line, RecordReceiver
from .row_reader import LAYOUT, ROWS, RowReader, UndeclaredLayout
from .rpc import Frame, Rpc
from .sampling_monitor import SamplingMonitor
from .wire import Hello, LineSplitter, MalformedFrame, read_frame, read_hello, read_lacking, split_greeting, unpack

_log = logging.getLogger(__name__)

#: Seconds from start to hello: Python may be cold, the file system slow.
HELLO_S = 20.0


class AgentConnection:
    """A `Receiver` that publishes records on the hub and passes replies to `rpc`; after `close` input is ignored.

    `greeted` and `ended` are set on hello and at the end; `failure` is the cause. `warn` reports protocol errors.
    """

    def __init__(
        self, node: NodeConfig, hub: Hub, receiver: RecordReceiver, rpc: Rpc, on_hello: Callable[[Hello], None],
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.hello: Hello | None = None
        self.last_received = time.monotonic()  # monotonic time
        self.greeted, self.ended = asyncio.Event(), asyncio.Event()
        self.failure: errors.FleetError | None = None
        self.channel: Channel | None = None  # for sending, once open
        self._unsent: Payload | None = None  # whose archive the node may request
        self._node, self._hub, self._receiver, self._rpc = node, hub, receiver, rpc
        self._on_hello, self._warn = on_hello, warn
        self.sampling = SamplingMonitor(node.agent.sample_interval_ms / 1e3)
        self._rows = RowReader(receiver)
        self._fair_reader = FairReader(self._process, self._set_paused, quotas.fair_share(), self._report_overload)
        self._lines = LineSplitter()
        self._last_words = LastWords()
        self._closed = False

    def start_agent(self, channel: Channel, payload: Payload, start: Frame) -> None:
        """Send the preamble and the start frame; the archive follows if the node lacks it."""
        self.channel, self._unsent = channel, payload
        channel.write(payload.preamble)  # apart: a gateway keeps it for the agents that it starts itself
        self.send({"start": start})

    async def wait_for_hello(self) -> Hello:
        """Wait for the agent's hello. Raises FleetError if the connection ends or times out first."""
        greeted = asyncio.create_task(self.greeted.wait())
        ended = asyncio.create_task(self.ended.wait())
        try:
            await asyncio.wait({greeted, ended}, timeout=HELLO_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            greeted.cancel()
            ended.cancel()
        if self.hello is not None:
            return self.hello
        if self.ended.is_set():
            raise self.failure or errors.Lost("connection closed before the agent started")
        name, python = self._node.name, self._node.agent.python
        raise errors.Timeout(
            f"logged in, but timeout: no hello from the agent within {HELLO_S:g} s{self._last_words}",
            f"try: ssh {name} {python} -V; a hung home directory or shell start-up file causes this",
        )

    @property
    def is_open(self) -> bool:
        """Whether the connection is open and the agent has said hello."""
        return self.channel is not None and self.hello is not None

    def silent_s(self) -> float:
        """Seconds since data was last received."""
        return time.monotonic() - self.last_received

    def unacked(self) -> Unacked | None:
        """Sent data that the node has not acknowledged, if known."""
        return self.channel.unacked(self.silent_s()) if self.channel else None

    def is_relay_late(self) -> bool:
        """Whether the host that passes on this node's bytes is late with those of all its nodes."""
        return self.channel is not None and self.channel.is_relay_late()

    async def answers(self) -> bool | None:
        """Whether the node accepts another connection over the same path, if known."""
        return await self.channel.answers() if self.channel else None

    def send(self, frame: Frame) -> None:
        """Queue a frame; no effect if the connection is not open."""
        if self.channel:
            self.channel.write(msgspec.json.encode(frame) + b"\n")

    def end(self, failure: errors.FleetError) -> None:
        """Mark the connection as ended; the first failure is kept."""
        self.failure = self.failure or failure
        self.ended.set()

    def close(self) -> None:
        """Close the connection; later input is ignored."""
        self._closed = True
        self._fair_reader.clear()
        if self.channel:
            self.channel.close()
        self.channel = None

    # -- Receiver --------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        """Queue received lines for processing."""
        if self._closed or self.ended.is_set():
            return
        self.last_received = time.monotonic()
        try:
            self._fair_reader.add(self._lines.feed(data), time.time_ns())
        except MalformedFrame as error:
            failure = errors.AgentCrashed(f"protocol error: {error}", "check the output of login scripts on the node")
            self._fair_reader.finish(lambda: self.end(failure))

    def _process(self, lines: Iterator[Line]) -> None:
        self.last_received = time.monotonic()  # queueing in the console is not silence
        try:
            self._read(lines)
        except Exception as error:  # noqa: BLE001 - show bugs at the node, not in a callback
            self.end(errors.Internal(internal_error(error, f"the connection to {self._node.name}")))

    def _read(self, lines: Iterator[Line]) -> None:
        records: list[Published] = []
        for line, rx in lines:
            if self.hello is None:
                self._read_greeting(line)
            else:
                self._read_line(line, rx, records)
        if records:
            last = records[-1]
            self.sampling.on_records(0 if isinstance(last, RawRecord) else last.mono)
            self._hub.publish(list(map(_without_secrets, records)) if Stack in map(type, records) else records)
            if self._node.agent.linger_s > 0:
                self._acknowledge()

    def _set_paused(self, paused: bool) -> None:
        """Pause or resume reading: back-pressure on a node above its quota."""
        _log.debug("%s: reading %s by its quota", self._node.name, "paused" if paused else "resumed")
        if self.channel is not None:
            self.channel.pause() if paused else self.channel.resume()

    def _report_overload(self) -> None:
        self._warn(
            f"node sends records faster than its quota ({quotas.SHARE:.0%} of the event loop); "
            "its figures are delayed; if it persists, try a longer agent.sample_interval_ms"
        )

    def on_error_bytes(self, data: bytes) -> None:
        """Keep standard error for the failure text; after the hello report it."""
        if self._closed:
            return
        self._last_words.add_error(data)
        if self.hello is not None:  # after start only a crash writes there
            self._warn(data.decode("utf-8", "replace").strip()[-2000:])

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        """End the connection once queued lines are processed."""
        if not self._closed:
            self._fair_reader.finish(lambda: self._end(exit_status, error))

    def _end(self, exit_status: int | None, error: Exception | None) -> None:
        greeted = self.hello is not None
        self.end(explain(exit_status, error, self._last_words, self._node.agent, greeted=greeted))

    # -- frames --------------------------------------------------------------------------------------------------------

    def _read_greeting(self, line: bytes) -> None:
        noise, greeting = split_greeting(line)
        self._last_words.add_noise(noise)
        if not greeting:
            return
        try:
            lacking = read_lacking(greeting)
            if lacking is not None:
                self._send_archive(lacking)
                return
            hello = read_hello(greeting)
        except MalformedFrame as error:
            self.end(errors.AgentCrashed(str(error), "use one version on both sides"))
            return
        except errors.FleetError as error:
            self.end(error)
            return
        self._receiver.on_hello(hello.agent)
        self.hello = hello
        self.greeted.set()
        self._on_hello(hello)

    def _send_archive(self, digest: str) -> None:
        """Send the agent's modules, once; the first node that lacks them waits while they are packed, 60 to 90 ms.

        Raises MalformedFrame and FleetError.
        """
        payload, self._unsent = self._unsent, None
        if payload is None or digest != payload.archive_digest or self.channel is None:
            raise MalformedFrame(f"unexpected request for the agent's modules {printable(digest[:12])}")
        _log.debug("%s: sending the agent's modules, %d bytes", self._node.name, len(payload.archive))
        self.channel.write(payload.archive)

    def _read_line(self, line: bytes, rx: int, records: list[Published]) -> None:
        try:
            line = unpack(line)
            if line.startswith(b'{"kind":'):
                record = self._receiver.receive(line, rx)
                if record is not None:
                    records.append(record)
            elif line.startswith(ROWS):
                self._rows.read(line, rx, records)
            elif line.startswith(LAYOUT):
                self._rows.declare(line)
            elif line:
                self._handle_frame(read_frame(line))
        except MalformedFrame as error:
            self._warn(printable(str(error)[:500]))
            if isinstance(error, UndeclaredLayout):
                self.send({"rows": False})
        except RecursionError:
            self._warn("protocol error: frame is nested too deeply")

    def _handle_frame(self, frame: Frame) -> None:
        match frame:
            case {"pong": int(number), "t": int(t), "mono": int(mono)}:
                self._rpc.on_pong(number, t, mono)
                self.sampling.on_pong(mono)
            case {"gap": [int(first), int(last)]} if self._receiver.skip(first, last, str(frame.get("reason", ""))):
                pass
            case {"from": str(agent)} if self._node.ssh.record_on:
                self._receiver.on_hello(agent[:64])  # a gateway sends what it has kept, maybe of an earlier agent
            case {"re": int(number)}:
                self._rpc.on_response(number, frame)
            case _:
                self._warn(f"malformed frame: {printable(str(frame)[:200])}")

    def _acknowledge(self) -> None:
        """Acknowledge records that are stored (on disk while recording), so that the agent drops them."""
        if self.hello is None or self._receiver.agent != self.hello.agent:
            return  # the agent would take it for its own
        self.send({"ack": self._hub.kept(self._receiver.agent, self._receiver.last_seq)})


#: Exit statuses after SIGKILL: of a child process, and of a shell.
_KILLED = (-9, 137)
#: Bytes kept of one line, and of standard error.
_LINE, _ERROR_BYTES = 500, 8192


class LastWords:
    """Output that is not protocol: text before the hello (motd, `module load`) and standard error."""

    def __init__(self) -> None:
        self._noise: deque[str] = deque(maxlen=20)
        self._errors = b""

    def add_noise(self, line: bytes) -> None:
        """Keep a line of standard output."""
        if line.strip():
            self._noise.append(line[:_LINE].decode("utf-8", "replace"))

    def add_error(self, data: bytes) -> None:
        """Keep the tail of standard error."""
        self._errors = (self._errors + data)[-_ERROR_BYTES:]

    @property
    def errors(self) -> str:
        """The kept standard error."""
        return self._errors.decode("utf-8", "replace")

    def __str__(self) -> str:
        """The last lines as a suffix, ` (output: …)`, or an empty string."""
        lines = self.errors.strip().splitlines()[-3:] or list(self._noise)[-3:]
        return f" (output: {' / '.join(printable(line.strip()[:_LINE]) for line in lines)})" if lines else ""


def explain(
    exit_status: int | None, error: Exception | None, words: LastWords, agent: AgentConfig, *, greeted: bool
) -> errors.FleetError:
    """The failure behind the end; `greeted`: whether the agent had said hello."""
    if isinstance(error, errors.FleetError):
        return error
    because = f": {error}" if error else ""
    if greeted:
        if exit_status in (None, 0):
            return errors.Lost(f"connection closed{because}")
        return errors.AgentCrashed(
            f"agent exited with status {exit_status}{words}",
            "run dmesg on the node: it may be out of memory"
            if exit_status in _KILLED
            else "gconsole starts it again; if it exits again, report this output",
        )
    return _explain_start(exit_status, because, words, agent)


def _explain_start(exit_status: int | None, because: str, words: LastWords, agent: AgentConfig) -> errors.FleetError:
    stderr, python = words.errors, agent.python
    _, too_old, version = stderr.partition("gconsole: python_too_old")
    if too_old or "Unknown option: -I" in stderr:
        version = version.split()[0] if version.split() else "before 3.4"
        return errors.PythonTooOld(
            f"{python} on the node is {printable(version[:20])}; the agent needs 3.6", 'set python = "…" for this node'
        )
    if "gconsole: bundle_rejected" in stderr:
        return errors.BundleRejected("the agent's code arrived damaged, or another program wrote to the channel")
    if exit_status in (126, 127) or (agent.run_as == "sudo" and "command not found" in stderr):
        return errors.NoPython(f"{python} not found{words}", 'install Python 3.6 or newer, or set python = "…"')
    if agent.run_as == "sudo" and "sudo:" in stderr:
        return errors.NoPermission(f"sudo failed{words}", 'allow it without a password in sudoers, or run_as = "self"')
    if exit_status is None or because:
        return errors.Lost(f"connection closed before the agent started{because}{words}")
    return errors.AgentCrashed(
        f"agent failed to start (status {exit_status}){words}",
        f"log in to the node and check that {python} starts and that no login script ends the shell",
    )


def _without_secrets(record: Published) -> Published:
    """The record; the source lines of a stack without secrets: views, verdicts, findings and reports quote them."""
    frames = record.frames if isinstance(record, Stack) else None
    if frames is None or not any(frame.source and SUSPECT.search(frame.source) for frame in frames):
        return record
    hidden = (
        msgspec.structs.replace(frame, source=without_secrets(frame.source)) if frame.source else frame
        for frame in frames
    )
    return msgspec.structs.replace(record, frames=tuple(hidden))
