"""Socket of a lingering agent: live, unresponsive and foreign sockets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gconsole_remote.agent import linger


def a_listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def test_unresponsive_agent_is_distinguished_from_an_absent_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with a_listener(path), pytest.raises(linger.AgentNotResponding):
        linger.describe(str(path), timeout_s=0.05)
    assert linger.describe(str(path), timeout_s=0.05) is None, "the listener is closed"
    assert linger.describe(str(tmp_path / "never"), timeout_s=0.05) is None


def test_replaced_agent_does_not_remove_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with a_listener(path):
        own = linger.OwnedSocket(str(path))
        path.unlink()
        with a_listener(path):
            own.remove()
            assert path.exists()
    again = linger.OwnedSocket(str(path))
    again.remove()
    assert not path.exists()
