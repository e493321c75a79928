"""What the link to a node logs, and how it reports a bug of the console."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from gconsole.config.model import NodeConfig
from gconsole.core.bus import Hub, log_records
from gconsole.fleet.agent_connection import AgentConnection
from gconsole.fleet.node_link import NodeLink
from gconsole.fleet.record_receiver import RecordReceiver
from gconsole.fleet.rpc import Rpc
from gconsole.records import AgentCost, NodeState
from gconsole.text import logs
from gconsole.transport import errors
from gconsole.transport.transport import Receiver


@pytest.fixture(autouse=True)
def propagating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages reach pytest's handler also after another test configured the log."""
    monkeypatch.setattr(logging.getLogger("gconsole"), "propagate", True)


class _FailingTransport:
    """Raises the same error at every connection attempt."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        raise self._error

    async def answers(self, node: NodeConfig) -> bool | None:
        return None


async def _states_after(error: Exception) -> list[NodeState]:
    """The states that a link publishes until its first attempt has failed."""
    hub, states = Hub(), []
    hub.subscribe(states.extend)
    hub.subscribe(log_records)
    staging: Callable[[NodeLink, str], None] = lambda link, name: None  # noqa: E731
    link = NodeLink(NodeConfig(name="node1"), cast(Any, _FailingTransport(error)), hub, staging)
    link.start()
    with contextlib.suppress(errors.FleetError):
        await link.wait_for_sample()
    await asyncio.sleep(0)
    await link.stop()
    return cast(list[NodeState], states)


class _GreetingTransport:
    """Its node sends the hello and the first tick in one piece, as a gateway that gathers does."""

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Any:
        hello = b'{"gconsole":{"protocol":[1,1],"agent":"a1","arch":"x86_64"}}\n'
        tick = b'{"kind":"agent_cost","seq":1,"t":1,"mono":1,"sample_interval_ms":1000}\n'
        asyncio.get_running_loop().call_soon(receiver.on_bytes, hello + tick)
        return mock.MagicMock()

    async def answers(self, node: NodeConfig) -> bool | None:
        return None


async def test_node_whose_hello_comes_with_its_first_tick_is_connected_at_once() -> None:
    hub, states = Hub(), []
    link = NodeLink(NodeConfig(name="node1"), cast(Any, _GreetingTransport()), hub, lambda link, name: None)

    def follow(records: Any) -> None:  # as the fleet does
        states.extend(record.state for record in records if isinstance(record, NodeState))
        if any(isinstance(record, AgentCost) for record in records):
            link.mark_sampled(1.0)

    hub.subscribe(follow)
    link.start()
    await link.wait_for_sample()
    assert states == ["expected", "connecting", "ok"]
    await link.stop()


async def test_request_to_a_node_that_has_just_connected_waits_for_its_first_reply() -> None:
    hub, connected = Hub(), asyncio.Event()
    link = NodeLink(NodeConfig(name="node1"), cast(Any, _GreetingTransport()), hub, lambda link, name: None)
    hub.subscribe(lambda records: connected.set() if link.state == "ok" else None)
    link.start()
    await connected.wait()
    assert link.offset_ns is None
    waiting = asyncio.create_task(link.wait_for_reply(30.0))
    await asyncio.sleep(0)
    link._rpc.on_pong(1, 0, 0)  # the reply to the ping that it has sent by itself
    await waiting
    assert link.offset_ns is not None
    await link.stop()


async def test_failed_connection_is_logged_with_its_reason_and_the_delay_of_the_retry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gconsole")
    await _states_after(errors.ConnectionRefused("connection refused by node1:22"))
    [failed] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert failed.getMessage().startswith("node1 failed, attempt 1: refused: connection refused by node1:22; retry in ")


async def test_failure_without_a_retry_is_logged_as_such(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gconsole")
    await _states_after(errors.Auth("key refused"))
    assert "node1 failed, attempt 1: auth: key refused; no retry" in caplog.text


async def test_command_of_a_node_is_logged_only_in_detail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "gconsole")
    await _states_after(errors.Auth("key refused"))
    [command] = [record for record in caplog.records if "start command" in record.getMessage()]
    assert command.levelno == logging.DEBUG and "python3" in command.getMessage()


async def test_bug_in_a_link_is_shown_at_the_node_with_the_log_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "_path", "/state/own.log")
    states = await _states_after(KeyError("bug"))
    failure = next(state.error for state in states if state.state == "failed")
    assert failure is not None and failure.name == "internal"
    assert failure.text == "internal error: KeyError: 'bug'; details in /state/own.log (please report)"
    assert "internal error in the link to node1" in caplog.text and "Traceback" in caplog.text


def test_bug_in_a_connection_ends_it_with_the_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_path", "/state/own.log")
    hub, warnings = Hub(), list[str]()
    receiver = RecordReceiver("node1", hub, warnings.append)
    connection = AgentConnection(
        NodeConfig(name="node1"), hub, receiver, Rpc(lambda frame: None), lambda hello: None, warnings.append
    )
    monkeypatch.setattr(connection, "_read", lambda lines: 1 // 0)
    connection._process(iter(()))
    assert isinstance(connection.failure, errors.Internal) and connection.ended.is_set()
    assert "ZeroDivisionError" in connection.failure.text and "details in /state/own.log" in connection.failure.text
