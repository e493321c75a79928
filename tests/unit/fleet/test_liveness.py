"""Dead connection detection through a jump host, where the TCP connection to the node is not visible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncssh
import pytest

from gconsole.transport import jump_host as jump_host_module
from gconsole.transport import liveness, ssh
from gconsole.transport.jump_host import JumpHost
from gconsole.transport.liveness import (
    SAMPLE_INTERVAL_S,
    Keepalive,
    LivenessSample,
    TunnelPath,
    is_dead,
    min_retransmits,
)
from gconsole.transport.ssh_config import ResolvedHost
from gconsole.transport.transport import Unacked

LAN_S = 0.001


@pytest.mark.parametrize(("unheard_s", "answering_s", "round_trip_s", "tries"), [
    pytest.param(0.0, 0.0, LAN_S, 0, id="just received"),
    pytest.param(0.3, 0.0, LAN_S, 1, id="after 0.2 s"),
    pytest.param(0.7, 0.0, LAN_S, 2, id="after 0.6 s"),
    pytest.param(1.7, 0.0, LAN_S, 3, id="after 1.4 s"),
    pytest.param(1.7, 0.0, 0.5, 1, id="long round trip"),
    pytest.param(0.7, 0.0, 1.0, 0, id="shorter than the round trip"),
    pytest.param(3.2, 1.5, LAN_S, 3, id="node answers for less than one interval"),
    pytest.param(4.0, 2.2, LAN_S, 4, id="node answers for more than one interval"),
    pytest.param(9.0, 7.0, LAN_S, 5, id="node answers for two intervals"),
])  # fmt: skip
def test_minimum_retransmits_follow_from_silence_and_round_trip_time(
    unheard_s: float, answering_s: float, round_trip_s: float, tries: int
) -> None:
    assert min_retransmits(unheard_s, answering_s, round_trip_s) == tries


class ClosedConnection:
    """A connection that the server closed immediately: asyncssh has no transport for it."""

    def get_extra_info(self, name: str) -> None:
        return None


def test_closed_connection_has_no_liveness_path() -> None:
    assert ssh._path(ClosedConnection(), Keepalive(ClosedConnection()), ResolvedHost("n1", {}), None) is None


class Clock:
    """Fake `time` of the module under test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Sshd:
    """A fake asyncssh connection: the server answers requests immediately, or not at all."""

    def __init__(self) -> None:
        self.answers = True

    def create_task(self, question: object) -> None:
        """Runs a request to its first suspension, or to its end if it is answered."""
        try:
            question.send(None)  # type: ignore[attr-defined]
        except StopIteration:
            return
        self.pending_request = question

    async def _make_global_request(self, request: bytes) -> None:
        assert request == b"keepalive@openssh.com"
        if not self.answers:
            await PendingForever()


class PendingForever:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(liveness, "time", clock)
    return clock


async def given_up_after(
    clock: Clock, hears: list[bool], answers: list[bool], *, loses_records: bool = False, round_trip_s: float = LAN_S
) -> float | None:
    """Seconds of silence after which the connection is given up, sampled every 0.5 s from 1.2 s; None if it is kept.

    `hears`: whether sshd replies on the connection; `answers`: whether the node accepts a new one. The last value of
    each repeats.
    """
    sshd, found = Sshd(), [True]

    async def probe() -> bool:
        return found[-1]

    keepalive = Keepalive(sshd)
    way = TunnelPath(keepalive, probe)
    keepalive.round_trip_s = round_trip_s
    began, looks = clock.now, list[LivenessSample]()
    clock.now += 1.2
    for number in range(18):
        sshd.answers = hears[min(number, len(hears) - 1)]
        if sshd.answers and keepalive.is_pending:
            sshd.pending_request.close()  # the missing reply has arrived
            keepalive._pending_since, keepalive.last_reply = None, clock.now
        found.append(answers[min(number, len(answers) - 1)])
        owed = way.unacked(clock.now - began)
        if owed and (owed.segments or looks):
            answered = await way.answers()
            owed = way.unacked(clock.now - began)
            looks.append(LivenessSample(bool(answered), owed.retransmits if owed else 0))
        if is_dead(looks, loses_records=loses_records):
            return round(clock.now - began, 1)
        clock.now += SAMPLE_INTERVAL_S
    return None


YES, NO = True, False


@pytest.mark.parametrize(("hears", "answers", "anew_s", "in_vain_s"), [
    pytest.param([NO], [YES], 2.2, 4.2, id="sshd has dropped the connection"),
    pytest.param([YES], [YES], None, None, id="agent is stopped or slow"),
    pytest.param([NO, NO, YES], [YES], None, None, id="sshd was slow once"),
    pytest.param([NO], [NO], None, None, id="node unreachable"),
    pytest.param([YES, YES, YES, NO], [YES], 3.7, 5.2, id="agent is stopped, then sshd drops the connection"),
    pytest.param([NO], [NO] * 4 + [YES], 3.7, 4.2, id="path restored, no retransmit yet"),
    pytest.param([NO], [YES, NO], None, None, id="every other packet lost"),
])  # fmt: skip
async def test_tunneled_connection_is_dead_when_sshd_answers_only_new_connections(
    clock: Clock, hears: list[bool], answers: list[bool], anew_s: float | None, in_vain_s: float | None
) -> None:
    assert await given_up_after(clock, hears, answers) == anew_s
    assert await given_up_after(clock, hears, answers, loses_records=True) == in_vain_s


async def test_long_round_trip_delays_the_dead_connection_verdict(clock: Clock) -> None:
    near, far = await given_up_after(clock, [NO], [YES]), await given_up_after(clock, [NO], [YES], round_trip_s=0.5)
    assert near is not None
    assert far is not None
    assert near < far


async def test_server_that_never_answers_keepalives_yields_no_unacked_count(clock: Clock) -> None:
    sshd = Sshd()
    sshd.answers = False

    async def probe() -> bool:
        return True

    keepalive = Keepalive(sshd)
    way = TunnelPath(keepalive, probe)
    clock.now += 60
    assert way.unacked(60.0) is None
    assert keepalive.silent_s() == 0


class _OpenServer(asyncssh.SSHServer):
    """A jump host that accepts every login and every forwarding request."""

    def begin_auth(self, username: str) -> bool:
        return False

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True


@pytest.fixture
async def jump_host() -> AsyncIterator[JumpHost]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with asyncssh.listen("127.0.0.1", 0, server_factory=_OpenServer, server_host_keys=[key]) as server:
        connection = await asyncssh.connect("127.0.0.1", server.get_port(), known_hosts=None, config=None,
                                            client_keys=None, username="anybody")  # fmt: skip
        jump_host = JumpHost(connection, Keepalive(connection), None)
        try:
            yield jump_host
        finally:
            await jump_host.close()
            await connection.wait_closed()


class Node:
    """A TCP server that sends a fixed greeting and counts its connections."""

    def __init__(self, word: bytes) -> None:
        self.word, self.visits, self.writers = word, 0, list[asyncio.StreamWriter]()

    async def visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self.writers.append(writer)
        writer.write(self.word)

    async def __aenter__(self) -> int:
        self.server = await asyncio.start_server(self.visit, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def __aexit__(self, *error: object) -> None:
        for writer in self.writers:
            writer.close()
        self.server.close()


async def test_probe_through_a_jump_host_succeeds_once_the_server_sends_its_banner(jump_host: JumpHost) -> None:
    async with Node(b"SSH-2.0-x\r\n") as port:
        assert await jump_host.probe("127.0.0.1", port)
        assert await jump_host.probe("127.0.0.1", port)
    assert not await jump_host.probe("127.0.0.1", port), "the port is closed"


async def test_silent_node_behind_a_jump_host_gets_only_one_probe_connection(
    jump_host: JumpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jump_host_module, "PROBE_TIMEOUT_S", 0.05)
    node = Node(b"")
    async with node as port:
        assert not any([await jump_host.probe("127.0.0.1", port) for _ in range(4)])
        async with asyncio.timeout(20):
            while await jump_host.probe("127.0.0.1", port) is not None:
                pass
        assert node.visits == 1


async def test_late_banner_does_not_answer_the_next_probe(jump_host: JumpHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump_host_module, "PROBE_TIMEOUT_S", 0.05)
    node = Node(b"")
    async with node as port, asyncio.timeout(20):
        while not node.writers:
            assert not await jump_host.probe("127.0.0.1", port)
        node.writers[0].write(b"SSH-2.0-x\r\n")
        while jump_host._banner_checks:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
    assert not await jump_host.probe("127.0.0.1", port), "the port is closed"


async def test_sshd_answers_a_keepalive_request(jump_host: JumpHost) -> None:
    keepalive = Keepalive(jump_host.connection)
    keepalive.send()
    assert keepalive.is_pending
    async with asyncio.timeout(20):
        while keepalive.is_pending:  # noqa: ASYNC110 - the answer has no event of its own
            await asyncio.sleep(0.01)
    assert keepalive.round_trip_s is not None


@pytest.mark.slow
async def test_reachable_jump_host_with_unacknowledged_data_is_closed(jump_host: JumpHost) -> None:
    class Dead:
        def unacked(self, silent_s: float) -> Unacked:
            return Unacked(3, 4)

        async def answers(self) -> bool:
            return True

    keepalive = jump_host._keepalive
    async with asyncio.timeout(20):
        while keepalive.round_trip_s is None:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
    dead = JumpHost(jump_host.connection, keepalive, Dead())
    assert not dead.is_over
    keepalive._pending_since = 0.0  # since boot
    async with asyncio.timeout(20):
        await jump_host.connection.wait_closed()
    assert dead.is_over
    await dead.close()
