"""The default transport: asyncssh, configured as OpenSSH would be, one shared connection per jump host."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
from pathlib import Path

import asyncssh
import msgspec

from ..config.model import NodeConfig
from ..config.sections import SshConfig
from . import errors
from .asyncssh_errors import explain
from .host_keys import HostKeyCheck, KnownHosts
from .jump_host import JumpHost
from .liveness import ConnectionPath, DirectPath, Keepalive, TunnelPath
from .login_limiter import LoginLimiter, LoginSlot
from .login_timeout import LoginTimeout
from .reachability import Address, LastAddresses, address_of
from .ssh_config import ResolvedHost, Resolver, with_ours
from .ssh_keys import Identities, KeyRing, Prompt
from .tcp_connect import reach
from .tcp_info import Unacked
from .transport import Channel, Receiver

#: From the request of a session to its start: a shell's rc files and PAM run in between.
SESSION_TIMEOUT_S = 20.0
KEEPALIVE_S, KEEPALIVE_COUNT = 15, 3
#: First what one call into OpenSSL does; asyncssh builds chacha20-poly1305, its own first choice, from four a packet.
CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"


class _Client(asyncssh.SSHClient):  # type: ignore[misc]  # mypy is not shown asyncssh (see pyproject.toml)
    """Answers what a handshake asks: is this host key good, is anybody there to type."""

    def __init__(
        self, check: HostKeyCheck, ask: Prompt | None, who: str, user: str | None, patience: LoginTimeout
    ) -> None:
        self.check, self.ask, self.who = check, ask, who
        self.wanted_typing = False
        self.unanswered = False  # somebody was there to type, and did not
        self._login = f"{user}@{who}" if user else who
        self._patience = patience

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self.check.judge(addr, port, key)

    def kbdint_auth_requested(self) -> str | None:
        self.wanted_typing = True
        return "" if self.ask else None

    async def kbdint_challenge_received(self, name, instructions, lang, prompts):  # type: ignore[no-untyped-def]
        answers = []
        for prompt, _ in prompts:
            answer = await self._typed(prompt.strip() or instructions)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def password_auth_requested(self) -> str | None:
        self.wanted_typing = True
        return await self._typed(f"Password for {self._login}")

    async def _typed(self, prompt: str) -> str | None:
        """What a person answers; the time it takes them is not the handshake's."""
        if self.ask is None or self.unanswered:
            return None
        async with self._patience.typing():
            answer = await self.ask(self._login, prompt)
        self.unanswered = answer is None
        return answer


class _Session(asyncssh.SSHClientSession[bytes]):  # type: ignore[misc]
    """Feeds a Receiver from a session channel."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._status: int | None = None

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self._receiver.on_error_bytes(data)
        else:
            self._receiver.on_bytes(data)

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.on_end(self._status, exc)


class _SshChannel:
    """A session channel and the connection that only it uses."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        channel: asyncssh.SSHClientChannel[bytes],
        way: ConnectionPath | None,
    ) -> None:
        self._connection, self._channel, self._path = connection, channel, way

    def write(self, data: bytes) -> None:
        if not self._channel.is_closing():
            with contextlib.suppress(BrokenPipeError):  # it closed between the two lines; on_end tells
                self._channel.write(data)

    def pause(self) -> None:
        self._channel.pause_reading()

    def resume(self) -> None:
        self._channel.resume_reading()

    def unacked(self, silent_s: float) -> Unacked | None:
        return self._path.unacked(silent_s) if self._path else None

    async def answers(self) -> bool | None:
        return await self._path.answers() if self._path else None

    def close(self) -> None:
        self._connection.abort()


class AsyncsshTransport:
    """SSH in this process. `ask` is given where a person can type a passphrase or a second factor."""

    def __init__(self, gate: LoginLimiter, ask: Prompt | None = None) -> None:
        self._gate = gate
        self._ask = ask
        self._resolver = Resolver()
        self._ring = KeyRing(ask)
        self._known: dict[tuple[Path, ...], KnownHosts] = {}
        self._jump_hosts: dict[str, asyncio.Task[JumpHost]] = {}
        self._addresses = LastAddresses()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        resolved = with_ours(await self._resolver.resolve(node.host), node.ssh, node.address)
        jump = resolved.proxy_jump
        jump_host = await self._jump_host(jump, node.ssh) if jump else None
        identities = await self._ring.identities(resolved)  # may ask for a passphrase, so not while others wait for us
        async with self._gate.enter(jump) as place:
            known = self._addresses.of(node.name)
            connection = await self._connect(node.name, resolved, node.ssh, jump_host, identities, place, known)
        way = _path(connection, Keepalive(connection), resolved, jump_host)
        if jump_host is not None:
            jump_host.carry(loses_records=node.agent.linger_s <= 0)
        elif not resolved.proxy_command:
            self._addresses.note(node.name, connection.get_extra_info("peername"))
        try:
            async with asyncio.timeout(SESSION_TIMEOUT_S):
                channel, _ = await connection.create_session(
                    lambda: _Session(receiver), command, encoding=None, window=4 << 20
                )
        except (TimeoutError, asyncssh.Error, OSError) as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                raise errors.Timeout(
                    f"logged in, but no session started within {SESSION_TIMEOUT_S:g} s",
                    f"try: ssh {node.name} true; look at its shell start-up files, its home, its MaxSessions",
                ) from error
            raise errors.Lost(f"logged in, but no session: {error}", f"try: ssh {node.name} true") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        return _SshChannel(connection, channel, way)

    async def answers(self, node: NodeConfig) -> bool | None:
        return await self._addresses.answer(node.name)

    def forget_refused_prompts(self) -> None:
        self._ring.forget_refused_prompts()

    async def close(self) -> None:
        for task in tuple(self._jump_hosts.values()):
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()
            else:
                task.cancel()
        self._jump_hosts.clear()
        await self._ring.close()

    async def _jump_host(self, jump: str, ssh: SshConfig) -> JumpHost:
        """The one connection to a jump host (or to the last of a chain), opened by whoever needs it first."""
        task = self._jump_hosts.get(jump)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().is_over)):
            task = self._jump_hosts[jump] = asyncio.create_task(self._open_bastion(jump, ssh))
        try:
            return await asyncio.shield(task)
        except errors.FleetError as error:
            raise type(error)(f"at the jump host {jump}: {error.text}", error.try_) from error

    async def _open_bastion(self, jump: str, ssh: SshConfig) -> JumpHost:
        *before, last = jump.split(",")
        user, _, host_port = last.strip().rpartition("@")
        host, _, port = host_port.partition(":")
        own = msgspec.structs.replace(ssh, user=user or None, port=int(port) if port else None, jump=None)
        resolved = with_ours(await self._resolver.resolve(host), own, None)
        through = ",".join(before) or resolved.proxy_jump
        tunnel = await self._jump_host(through, ssh) if through else None
        identities = await self._ring.identities(resolved)
        async with self._gate.enter() as place:
            connection = await self._connect(host, resolved, ssh, tunnel, identities, place)
        keepalive = Keepalive(connection)
        return JumpHost(connection, keepalive, _path(connection, keepalive, resolved, tunnel))

    async def _connect(
        self, name: str, resolved: ResolvedHost, ssh: SshConfig, tunnel: JumpHost | None,
        identities: Identities, place: LoginSlot, known: Address | None = None,
    ) -> asyncssh.SSHClientConnection:  # fmt: skip
        """`known`: where it was reached before."""
        _require_a_name()
        hosts = self._known_hosts(resolved)
        host = resolved.host_key_alias or resolved.hostname
        accept_new = ssh.host_key_policy == "accept-new" or resolved.accept_new
        check = HostKeyCheck(hosts, name, host, accept_new)
        patience = LoginTimeout(ssh.connect_timeout_s, place)
        client = _Client(check, self._ask, name, resolved.user, patience)
        below: socket.socket | None = None
        try:
            async with patience.handshake():  # asyncssh's own limits would count the time that a person types
                if tunnel is None and not resolved.proxy_command:
                    below = await reach(resolved.hostname, resolved.port, known)
                address = below.getpeername()[0] if below else ""  # of one behind others only they know it
                return await asyncssh.connect(
                    resolved.hostname,
                    resolved.port,
                    config=None,
                    sock=below,
                    tunnel=tunnel.connection if tunnel else (),
                    proxy_command=(resolved.proxy_command or ()) if tunnel is None else (),
                    client_factory=lambda: client,
                    username=resolved.user or (),
                    client_keys=identities.keys or None,
                    agent_path=None,
                    known_hosts=hosts.match,
                    server_host_key_algs=hosts.algorithms(host, address, resolved.port),
                    host_key_alias=resolved.host_key_alias or (),
                    agent_forwarding=False,
                    connect_timeout=None,
                    login_timeout=0,
                    keepalive_interval=KEEPALIVE_S,
                    keepalive_count_max=KEEPALIVE_COUNT,
                    encryption_algs=CIPHERS,
                    compression_algs=None,
                )
        except BaseException as error:
            if below is not None:
                below.close()  # asyncssh closes what it took over, and nothing where it refused before
            if isinstance(error, (OSError, asyncssh.Error, ValueError)):
                failure = explain(error, name, resolved, check, client, identities)
                is_direct = tunnel is None and not resolved.proxy_command
                failure.was_away = is_direct and below is None and not isinstance(error, socket.gaierror)
                raise failure from error
            raise

    def _known_hosts(self, resolved: ResolvedHost) -> KnownHosts:
        paths = resolved.known_hosts()
        if paths not in self._known:
            self._known[paths] = KnownHosts(paths)
        return self._known[paths]


def _path(
    connection: asyncssh.SSHClientConnection, keepalive: Keepalive, resolved: ResolvedHost, tunnel: JumpHost | None
) -> ConnectionPath | None:
    if tunnel is not None:
        return TunnelPath(keepalive, lambda: tunnel.probe(resolved.hostname, resolved.port))
    connected, peer = connection.get_extra_info("socket"), connection.get_extra_info("peername")
    if resolved.proxy_command or connected is None or not peer:  # without them it has ended already
        return None
    return DirectPath(connected, address_of(peer))


def _require_a_name() -> None:
    """asyncssh asks for the local user's name even where it does not need it, and a container's uid may have none."""
    try:
        getpass.getuser()
    except (KeyError, OSError) as error:
        raise errors.SshConfigInvalid(
            f"this account (uid {os.getuid()}) has no name here",
            "set USER in the environment, or name it in /etc/passwd",
        ) from error
