"""TCP connection to a node: retries after the link is restored, and the last address if the name is not resolved."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gconsole.config.model import NodeConfig
from gconsole.config.sections import SshConfig
from gconsole.transport import tcp_connect
from gconsole.transport.errors import FleetError
from gconsole.transport.login_limiter import LoginLimiter
from gconsole.transport.ssh import AsyncsshTransport
from gconsole.transport.tcp_connect import LastAddresses, address_of, answers, dial, reach


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as one:
        yield one


@pytest.fixture
def closed() -> tuple[str, int]:
    """An address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        host, port = one.getsockname()
    return host, port


async def test_dial_connects_to_a_listening_server(server: socket.socket) -> None:
    with await dial([server.getsockname()]) as made:
        assert made.getpeername() == server.getsockname()


@pytest.mark.parametrize(("peername", "expected"), [
    (("10.1.2.3", 22), ("10.1.2.3", 22)), (("fd00::2", 22, 0, 0), ("fd00::2", 22)),
    (("fe80::1", 22, 0, 3), ("fe80::1%3", 22)), (("fe80::1%eth0", 22, 0, 3), ("fe80::1%eth0", 22)),
])  # fmt: skip
def test_link_local_address_keeps_its_zone(peername: tuple[object, ...], expected: tuple[str, int]) -> None:
    assert address_of(peername) == expected


async def test_link_local_address_is_reached_and_reused_as_the_last_address() -> None:
    found = _of_a_link()
    if found is None:
        pytest.skip("no interface has a link-local address (fe80::)")
    here = socket.getaddrinfo(found, 0, type=socket.SOCK_STREAM)[0][4]
    with socket.create_server(here, family=socket.AF_INET6) as server:  # type: ignore[arg-type]  # of four parts
        known = LastAddresses()
        with await reach(found, server.getsockname()[1], None) as made:
            known.note("node", made.getpeername())
        address = known.of("node")
        assert address is not None
        assert await answers(address)
        with await reach("no-such-name.invalid", 22, address) as again:
            assert again.getpeername() == server.getsockname()


def _of_a_link() -> str | None:
    """The link-local address of this machine's oldest interface that has one, such as `fe80::…%eth0`.

    Other tests make interfaces meanwhile, and remove them.
    """
    addresses = []
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        digits, index, _, scope, _, interface = line.split()
        if scope == "20":  # link-local, see if_inet6 in proc(5)
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            addresses.append((int(index, 16), f"{address}%{interface}"))
    return min(addresses)[1] if addresses else None


async def test_refusing_address_does_not_prevent_an_attempt_at_the_next_one(
    server: socket.socket, closed: tuple[str, int]
) -> None:
    with await dial([closed, server.getsockname()]) as made:
        assert made.getpeername() == server.getsockname()


async def test_dial_is_refused_when_every_address_refuses(closed: tuple[str, int]) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionRefusedError):
            await dial([closed])


async def test_server_that_dropped_the_first_syn_packets_is_reached_by_a_retry(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the backlog of a listener is full the kernel drops SYN packets, as a broken link does."""
    monkeypatch.setattr(tcp_connect, "SYN_RETRY_S", 0.05)
    with socket.create_connection(server.getsockname()):  # fills the backlog
        dialled = asyncio.create_task(dial([server.getsockname()]))
        done, _ = await asyncio.wait({dialled}, timeout=0.3)
        assert not done
        server.accept()[0].close()
        async with asyncio.timeout(20):
            with await dialled as made:
                assert made.getpeername() == server.getsockname()


class Resolver:
    """A fake resolver: every name resolves to one address, or to none, once the answer is released."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self.address, self.may_answer = address, threading.Event()

    def __call__(self, *_: object, **__: object) -> object:
        assert self.may_answer.wait(20)
        if self.address is None:
            raise socket.gaierror(socket.EAI_AGAIN, "no response from a name server")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", self.address)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_connect, "DNS_WAIT_S", 0.05)


def resolver(monkeypatch: pytest.MonkeyPatch, address: tuple[str, int] | None, *, is_late: bool) -> Resolver:
    made = Resolver(address)
    if not is_late:
        made.may_answer.set()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    return made


@pytest.mark.parametrize("is_late", [True, False], ids=["silent", "failing"])
async def test_last_address_is_used_when_the_name_no_longer_resolves(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch, quick: None, is_late: bool
) -> None:
    names = resolver(monkeypatch, None, is_late=is_late)
    with await reach("node1", 22, server.getsockname()) as made:
        assert made.getpeername() == server.getsockname()
    names.may_answer.set()
    with pytest.raises(socket.gaierror):
        await reach("node2", 22, None)


async def test_changed_address_is_followed_even_when_dns_answers_late(
    server: socket.socket, closed: tuple[str, int], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    names = resolver(monkeypatch, server.getsockname(), is_late=True)
    reached = asyncio.create_task(reach("node1", 22, closed))
    done, _ = await asyncio.wait({reached}, timeout=0.3)
    assert not done
    names.may_answer.set()
    with await reached as made:
        assert made.getpeername() == server.getsockname()


@pytest.mark.slow
async def test_failed_login_distinguishes_a_closed_port_from_a_silent_server(
    server: socket.socket, closed: tuple[str, int], tmp_path: Path
) -> None:
    """A server that accepts and then sends nothing, as a broken sshd does, was reachable."""
    silent = server.getsockname()
    found = [await _failure_at(host, port, tmp_path) for host, port in (closed, silent)]
    assert [(one.name, one.was_away) for one in found] == [("refused", True), ("timeout", False)]
    assert found[1].text == "no response from {}:{}".format(*silent)


async def _failure_at(host: str, port: int, folder: Path) -> FleetError:
    ssh = SshConfig(port=port, known_hosts=str(folder / "known_hosts"), connect_timeout_s=1.0)
    transport = AsyncsshTransport(LoginLimiter(1))
    try:
        with pytest.raises(FleetError) as raised:
            await transport.open(NodeConfig(name="away", address=host, ssh=ssh), "true", IgnoredOutput())
        return raised.value
    finally:
        await transport.close()


class IgnoredOutput:
    """Receiver of a command that never runs."""

    def on_bytes(self, data: bytes) -> None: ...

    def on_error_bytes(self, data: bytes) -> None: ...

    def on_end(self, exit_status: int | None, error: Exception | None) -> None: ...
