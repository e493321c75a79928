"""Failure reported when an agent exits: exit status, last output, and a next step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gconsole.config import NodeConfig
from gconsole.core.bus import Hub
from gconsole.fleet.agent_connection import AgentConnection, LastWords, explain
from gconsole.fleet.deploy.agent_payload import Payload
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.transport.errors import AgentCrashed

AGENT = NodeConfig(name="node018").agent


def output_tail(text: bytes = b"") -> LastWords:
    words = LastWords()
    words.add_error(text)
    return words


@pytest.mark.parametrize("status", [-9, 137])
def test_killed_agent_points_to_the_kernel_log(status: int) -> None:
    failure = explain(status, None, output_tail(), AGENT, greeted=True)
    assert isinstance(failure, AgentCrashed) and failure.text == f"agent exited with status {status}"
    assert "dmesg" in failure.try_


def test_crashed_agent_shows_its_output_and_asks_for_a_report() -> None:
    failure = explain(1, None, output_tail(b"MemoryError\n"), AGENT, greeted=True)
    assert isinstance(failure, AgentCrashed)
    assert failure.text == "agent exited with status 1 (output: MemoryError)"
    assert "report this output" in failure.try_


def test_agent_that_did_not_start_names_the_interpreter_to_check() -> None:
    failure = explain(1, None, output_tail(b"This account is not available\n"), AGENT, greeted=False)
    assert isinstance(failure, AgentCrashed)
    assert failure.text == "agent failed to start (status 1) (output: This account is not available)"
    assert AGENT.python in failure.try_ and "login script" in failure.try_


@dataclass
class SentBytes:
    """A channel that keeps what is written to it."""

    sent: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None: ...


DIGEST = "0123456789abcdef" * 4
PREAMBLE, ARCHIVE, START = b"preamble", b"the modules", b'{"start":{}}\n'


def started(pack: Callable[[], bytes] = lambda: ARCHIVE) -> tuple[AgentConnection, list[bytes]]:
    """A connection on which the start was sent, and all that is sent on it."""
    hub, channel = Hub(), SentBytes()
    connection = AgentConnection(
        NodeConfig(name="node018"), hub, RecordReceiver("node018", hub, print), Rpc(print), lambda hello: None, print
    )
    connection.start_agent(channel, Payload("d", PREAMBLE, DIGEST, pack), {})  # type: ignore[arg-type]
    return connection, channel.sent


def lacks(digest: str) -> bytes:
    return b'{"gconsole_lacks": "%s"}\n' % digest.encode()


async def test_modules_are_sent_when_the_node_requests_them_also_behind_a_motd() -> None:
    connection, sent = started()
    connection.on_bytes(b"Welcome to node018!\nlast login: never " + lacks(DIGEST))
    assert sent == [PREAMBLE, START, ARCHIVE]
    connection.on_bytes(b'{"gconsole":{"protocol":[1,1],"agent":"a","arch":"x"}}\n')
    assert connection.is_open and connection.failure is None


async def test_modules_are_not_sent_to_a_node_that_greets() -> None:
    connection, sent = started()
    connection.on_bytes(b'{"gconsole":{"protocol":[1,1],"agent":"a","arch":"x"}}\n')
    assert sent == [PREAMBLE, START] and connection.is_open


async def test_modules_that_cannot_be_packed_end_the_connection_with_the_reason() -> None:
    def fail() -> bytes:
        raise AgentCrashed("the digest was wrong", "nothing")

    connection, sent = started(fail)
    connection.on_bytes(lacks(DIGEST))
    assert connection.failure is not None and connection.failure.text == "the digest was wrong"
    assert sent == [PREAMBLE, START]


@pytest.mark.parametrize(
    "requests",
    [lacks(DIGEST) * 2, lacks(DIGEST[::-1]), lacks("x" * 65), b'{"gconsole_lacks": 7}\n', b'{"gconsole_lacks":[\n'],
    ids=["twice", "other modules", "long", "number", "broken"],
)
async def test_impossible_request_for_modules_ends_the_connection(requests: bytes) -> None:
    connection, sent = started()
    connection.on_bytes(requests)
    assert isinstance(connection.failure, AgentCrashed) and "request for the agent's modules" in connection.failure.text
    assert sent.count(ARCHIVE) <= 1
