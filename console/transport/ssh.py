"""The default transport: asyncssh with OpenSSH's configuration, one shared connection per jump host."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import getpass
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..config.model import NodeConfig
from ..config.sections import SshConfig
from ..text.format import plural
from . import errors
from .asyncssh_import import asyncssh
from .host_keys import HostKeyCheck, KnownHosts
from .jump_host import JumpHost
from .liveness import ConnectionPath, DirectPath, Keepalive, TunnelPath
from .login_limiter import LoginLimiter, LoginSlot, LoginTimeout
from .ssh_config import ResolvedHost, Resolver, with_ours
from .ssh_keys import Identities, KeyRing, Prompt
from .tcp_connect import Address, LastAddresses, address_of, reach
from .transport import Channel, Receiver, Unacked

_log = logging.getLogger(__name__)

#: Seconds from session request to start; shell rc files and PAM run in between.
SESSION_TIMEOUT_S = 20.0
#: AES-GCM first: one OpenSSL call per packet; asyncssh's own first choice, chacha20-poly1305, needs four.
CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"


class _Client(asyncssh.SSHClient):  # type: ignore[misc]  # mypy is not shown asyncssh (see pyproject.toml)
    """Handshake callbacks: host key verification and prompts."""

    def __init__(
        self, check: HostKeyCheck, prompt_user: Prompt | None, name: str, user: str | None, login_timeout: LoginTimeout
    ) -> None:
        self.check, self.prompt_user, self.name = check, prompt_user, name
        self.wanted_typing = False
        self.unanswered = False  # a prompt was shown and dismissed
        self.was_prompted = False
        self._login = f"{user}@{name}" if user else name
        self._login_timeout = login_timeout

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self.check.check(addr, port, key)

    def kbdint_auth_requested(self) -> str | None:
        self.wanted_typing = True
        return "" if self.prompt_user else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        answers: list[str] = []
        for prompt, _ in prompts:
            answer = await self._prompt(prompt.strip() or instructions)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def password_auth_requested(self) -> str | None:
        self.wanted_typing = True
        return await self._prompt(f"Password for {self._login}")

    async def _prompt(self, prompt: str) -> str | None:
        """The user's answer; the login timeout is paused meanwhile."""
        if self.prompt_user is None or self.unanswered:
            return None
        self.was_prompted = True
        async with self._login_timeout.prompting():
            answer = await self.prompt_user(self._login, prompt)
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
    """A session channel and its connection."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        channel: asyncssh.SSHClientChannel[bytes],
        path: ConnectionPath | None,
    ) -> None:
        self._connection, self._channel, self._path = connection, channel, path

    def write(self, data: bytes) -> None:
        if not self._channel.is_closing():
            with contextlib.suppress(BrokenPipeError):  # closed concurrently; on_end reports it
                self._channel.write(data)

    def pause(self) -> None:
        self._channel.pause_reading()

    def resume(self) -> None:
        self._channel.resume_reading()

    def unacked(self, silent_s: float) -> Unacked | None:
        return self._path.unacked(silent_s) if self._path else None

    async def answers(self) -> bool | None:
        return await self._path.answers() if self._path else None

    def is_relay_late(self) -> bool:
        return False  # a jump host passes on bytes without reading them

    def close(self) -> None:
        self._connection.abort()


class AsyncsshTransport:
    """SSH in this process; `prompt_user` prompts for passphrases and second factors where a user is present."""

    def __init__(self, limiter: LoginLimiter, prompt_user: Prompt | None = None) -> None:
        self._limiter = limiter
        self._prompt_user = prompt_user
        self._resolver = Resolver()
        self._ring = KeyRing(prompt_user)
        self._hosts_by_paths: dict[tuple[Path, ...], KnownHosts] = {}
        self._jump_hosts: dict[str, asyncio.Task[JumpHost]] = {}
        self._addresses = LastAddresses()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Log in and start the command."""
        resolved = with_ours(await self._resolver.resolve(node.host), node.ssh, node.address)
        jump = resolved.proxy_jump
        _log.debug("%s: connecting to %s port %d as %s%s%s", node.name, resolved.hostname, resolved.port,
                   resolved.user or "this user", f" through {jump}" if jump else "",
                   " by ProxyCommand" if resolved.proxy_command else "")  # fmt: skip
        jump_host = await self._jump_host(jump, node.ssh) if jump else None
        identities = await self._ring.identities(resolved)  # may prompt, so not while holding a login slot
        async with self._limiter.enter(jump) as slot:
            last_address = self._addresses.of(node.name)
            connection = await self._connect(node.name, resolved, node.ssh, jump_host, identities, slot, last_address)
        path = _path(connection, Keepalive(connection), resolved, jump_host)
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
                    f"ssh {node.name} true; check shell start-up files, home and MaxSessions",
                ) from error
            raise errors.Lost(f"logged in, but the session failed: {error}", f"ssh {node.name} true") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        return _SshChannel(connection, channel, path)

    async def answers(self, node: NodeConfig) -> bool | None:
        """Whether the node's last address is reachable."""
        return await self._addresses.answer(node.name)

    def forget_refused_prompts(self) -> None:
        """Allow dismissed prompts again."""
        self._ring.forget_refused_prompts()

    async def close(self) -> None:
        """Close jump hosts and ssh-agent connections."""
        for task in tuple(self._jump_hosts.values()):
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()
            else:
                task.cancel()
        self._jump_hosts.clear()
        await self._ring.close()

    async def _jump_host(self, jump: str, ssh: SshConfig) -> JumpHost:
        """The shared connection to a jump host (or the last of a chain), opened on first use."""
        task = self._jump_hosts.get(jump)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().is_over)):
            task = self._jump_hosts[jump] = asyncio.create_task(self._open_jump_host(jump, ssh))
        try:
            return await asyncio.shield(task)
        except errors.FleetError as error:
            raise type(error)(f"jump host {jump}: {error.text}", error.try_) from error

    async def _open_jump_host(self, jump: str, ssh: SshConfig) -> JumpHost:
        *hops, last = jump.split(",")
        user, _, host_port = last.strip().rpartition("@")
        host, _, port = host_port.partition(":")
        own = msgspec.structs.replace(ssh, user=user or None, port=int(port) if port else None, jump=None)
        resolved = with_ours(await self._resolver.resolve(host), own, None)
        next_jump = ",".join(hops) or resolved.proxy_jump
        tunnel = await self._jump_host(next_jump, ssh) if next_jump else None
        identities = await self._ring.identities(resolved)
        async with self._limiter.enter() as slot:
            connection = await self._connect(host, resolved, ssh, tunnel, identities, slot)
        keepalive = Keepalive(connection)
        return JumpHost(connection, keepalive, _path(connection, keepalive, resolved, tunnel))

    async def _connect(
        self, name: str, resolved: ResolvedHost, ssh: SshConfig, tunnel: JumpHost | None,
        identities: Identities, slot: LoginSlot, last_address: Address | None = None,
    ) -> asyncssh.SSHClientConnection:  # fmt: skip
        """Connect and authenticate; `last_address`: where the node was last reached."""
        _require_user_name()
        hosts = self._known_hosts(resolved)
        host = resolved.host_key_alias or resolved.hostname
        accept_new = ssh.host_key_policy == "accept-new" or resolved.accept_new
        check = HostKeyCheck(hosts, name, host, accept_new)
        login_timeout = LoginTimeout(ssh.connect_timeout_s, slot)
        client = _Client(check, self._prompt_user, name, resolved.user, login_timeout)
        sock: socket.socket | None = None
        try:
            async with login_timeout.handshake():  # asyncssh's own timeouts would count prompts
                if tunnel is None and not resolved.proxy_command:
                    sock = await reach(resolved.hostname, resolved.port, last_address)
                address = sock.getpeername()[0] if sock else ""  # unknown behind a jump host
                connection = await asyncssh.connect(
                    resolved.hostname,
                    resolved.port,
                    config=None,
                    sock=sock,
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
                    keepalive_interval=0,  # links, gateways and jump hosts notice silence themselves
                    encryption_algs=CIPHERS,
                    compression_algs=None,
                )
                _log.info("%s: logged in to %s, login method %s, %d identities offered, server %s", name, host,
                          "interactive" if client.was_prompted else "non-interactive", len(identities.keys),
                          connection.get_extra_info("server_version"))  # fmt: skip
                return connection
        except BaseException as error:
            if sock is not None:
                sock.close()  # asyncssh closes the socket only after taking it over
            if isinstance(error, (OSError, asyncssh.Error, ValueError)):
                failure = explain(error, resolved, client, identities)
                is_direct = tunnel is None and not resolved.proxy_command
                failure.was_away = is_direct and sock is None and not isinstance(error, socket.gaierror)
                raise failure from error
            raise

    def _known_hosts(self, resolved: ResolvedHost) -> KnownHosts:
        paths = resolved.known_hosts()
        if paths not in self._hosts_by_paths:
            self._hosts_by_paths[paths] = KnownHosts(paths)
        return self._hosts_by_paths[paths]


def _path(
    connection: asyncssh.SSHClientConnection, keepalive: Keepalive, resolved: ResolvedHost, tunnel: JumpHost | None
) -> ConnectionPath | None:
    if tunnel is not None:
        return TunnelPath(keepalive, lambda: tunnel.probe(resolved.hostname, resolved.port))
    connected, peer = connection.get_extra_info("socket"), connection.get_extra_info("peername")
    if resolved.proxy_command or connected is None or not peer:  # without them the connection has ended
        return None
    return DirectPath(connected, address_of(peer))


def _require_user_name() -> None:
    """Raise SshConfigInvalid if the uid has no user name: asyncssh needs one; containers may lack it."""
    try:
        getpass.getuser()
    except (KeyError, OSError) as error:
        raise errors.SshConfigInvalid(
            f"uid {os.getuid()} has no user name",
            "set USER in the environment, or add it to /etc/passwd",
        ) from error


def explain(error: Exception, resolved: ResolvedHost, client: _Client, identities: Identities) -> errors.FleetError:
    """Return the FleetError for an exception raised by asyncssh or the operating system."""
    where, name, check = f"{resolved.hostname}:{resolved.port}", client.name, client.check
    if check.failure is not None:
        return check.failure
    if isinstance(error, socket.gaierror):
        return errors.Dns(
            f"cannot resolve host name {resolved.hostname}", f"check the spelling, or set address for {name}"
        )
    if isinstance(error, ConnectionRefusedError):
        return errors.ConnectionRefused(
            f"connection refused by {where}", "check that sshd is running there and that the port is right"
        )
    if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
        reason = f" ({error})" if str(error) else ""  # that of a time limit has no text
        return errors.Timeout(f"no response from {where}{reason}", f"ssh -v {name}")
    if isinstance(error, asyncssh.KeyExchangeFailed) and check.known.is_known(check.host, "", resolved.port):
        expected = ", ".join(check.known.fingerprints(check.host, "", resolved.port))
        return check.changed(expected, "of another type", resolved.port)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return errors.HostKeyChanged(
            f"host key of {where} is not trusted: {error.reason}",
            f"check @revoked and @cert-authority in {check.known.paths[0]}; to see the offered key: ssh -v {name}",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return _explain_denied(resolved, client, identities)
    if isinstance(error, asyncssh.ChannelOpenError):
        return errors.ConnectionRefused(
            f"jump host cannot reach {where}: {error.reason}",
            "check that the node is up and that its address is valid from the jump host",
        )
    if isinstance(error, (ConnectionResetError, BrokenPipeError, asyncssh.ConnectionLost)):
        return errors.Throttled(
            f"{where} closed the connection during the handshake ({error or type(error).__name__})",
            "sshd limits logins (MaxStartups, PerSourcePenalties); retrying with back-off",
        )
    if isinstance(error, OSError):
        return errors.ConnectionRefused(f"{where} is unreachable: {_system_text(error)}", f"ssh -v {name}")
    return errors.Lost(f"login at {where} failed: {error}", f"ssh -v {name}")


def _system_text(error: OSError) -> str:
    """The operating system's text for an error, e.g. "no route to host"; asyncio puts the address there instead."""
    text = (
        os.strerror(error.errno)
        if error.errno is not None and error.errno in errno.errorcode
        else error.strerror or str(error)
    )
    return text[:1].lower() + text[1:]


def _explain_denied(resolved: ResolvedHost, client: _Client, identities: Identities) -> errors.FleetError:
    user = resolved.user or "the current user"
    cause, remedy = _refused_keys(resolved, client.name, user, identities)
    if identities.locked:
        keys = ", ".join(map(str, identities.locked))
        return errors.AuthInteractive(
            f"key {keys} is encrypted and not loaded in an ssh-agent", f"ssh-add {identities.locked[0]}"
        )
    if client.unanswered:
        return errors.AuthInteractive(
            f"server asks for a password or second factor for {user}; the prompt was dismissed",
            "press R to be prompted again",
        )
    if client.wanted_typing and client.prompt_user is None:
        return errors.AuthInteractive(
            f"{cause}; server asks for a password or second factor (not available here)",
            f'{remedy}; for passwords an ssh ControlMaster with transport = "openssh"',
        )
    return errors.Auth(cause, remedy)


def _refused_keys(resolved: ResolvedHost, name: str, user: str, identities: Identities) -> tuple[str, str]:
    """Why no key was accepted, and what to try: a configured key file is missing, there is no key, or a wrong one."""
    offered, missing = len(identities.keys), resolved.missing_identity_files
    broken = f"; unreadable: {'; '.join(identities.broken)}" if identities.broken else ""
    if missing:
        files = ", ".join(map(str, missing))
        refused = f"; {plural(offered, 'other key')} refused for {user}" if offered else ""
        text = f"identity file {files} does not exist{refused}{broken}"
        return text, "correct identity_file in hosts.toml or IdentityFile in ~/.ssh/config"
    if not offered:
        agent = f", and {identities.agent}" if identities.agent else ""
        text = f"no key to offer for {user}: no identity file can be used{agent}{broken}"
        return text, "ssh-add KEY, or set identity_file in hosts.toml"
    text = f"key refused for {user} ({plural(offered, 'key')} offered{broken})"
    return text, f"ssh -v {name}; check authorized_keys on the node, and the user name"
