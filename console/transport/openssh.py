"""Transports by subprocess: the local machine, and the user's own `ssh`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

from ..config.model import NodeConfig
from . import errors
from .login_limiter import LoginLimiter
from .ssh_config import Resolver, with_ours
from .transport import Channel, Receiver

_log = logging.getLogger(__name__)


class _Pipes(asyncio.SubprocessProtocol):
    """Feeds a Receiver from a subprocess."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._receiver.on_bytes(data)
        else:
            self._receiver.on_error_bytes(data)

    def connection_lost(self, exc: Exception | None) -> None:  # after the exit and the end of all pipes
        assert self._transport is not None
        self._receiver.on_end(self._transport.get_returncode(), exc)


#: Seconds between SIGTERM and SIGKILL: an agent removes its files, ssh notifies its server.
END_S = 2.0


class SubprocessChannel:
    """Standard input of a subprocess; closing it terminates the process group."""

    def __init__(self, process: asyncio.SubprocessTransport) -> None:
        self._process = process
        self._stdin = cast(asyncio.WriteTransport, process.get_pipe_transport(0))

    def write(self, data: bytes) -> None:
        """Queue bytes; no effect once closed."""
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def pause(self) -> None:
        """Stop reading from the process."""
        for pipe in self._pipes():
            pipe.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        for pipe in self._pipes():
            pipe.resume_reading()

    def unacked(self, silent_s: float) -> None:
        """Unknown: the connection belongs to another program."""

    async def answers(self) -> None:
        """Unknown: the connection belongs to another program."""

    def is_relay_late(self) -> bool:
        """Unknown, and so not supposed."""
        return False

    def _pipes(self) -> list[asyncio.ReadTransport]:
        pipes = [cast(asyncio.ReadTransport, self._process.get_pipe_transport(fd)) for fd in (1, 2)]
        return [pipe for pipe in pipes if pipe is not None and not pipe.is_closing()]

    def close(self) -> None:
        """Terminate the process group, then kill it after `END_S`."""
        if self._process.get_returncode() is not None:
            self._process.close()
            return
        self._stdin.close()
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(END_S, self._kill)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.get_pid(), number)


async def _start(argv: list[str], receiver: Receiver, env: dict[str, str] | None = None) -> SubprocessChannel:
    loop = asyncio.get_running_loop()
    _log.debug("running: %s", " ".join(argv))
    process, _ = await loop.subprocess_exec(lambda: _Pipes(receiver), *argv, start_new_session=True, env=env)
    return SubprocessChannel(process)


class SubprocessTransport:
    """Base of subprocess transports: no shared connections, no prompts, no reachability probe."""

    async def answers(self, node: NodeConfig) -> bool | None:
        """Unknown without a login."""
        return None

    def forget_refused_prompts(self) -> None:
        """No prompts here."""
        pass

    async def close(self) -> None:
        """Nothing is shared."""
        pass


class LocalTransport(SubprocessTransport):
    """This machine, without SSH."""

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Run the command in a local shell."""
        env = dict(os.environ)
        if node.process_filter:  # as sshd's SetEnv does: the agent must carry the mark
            env[node.process_filter[0]] = node.process_filter[1]
        return await _start(["/bin/sh", "-c", command], receiver, env)


#: The failure of the intermediate program, from exit status and standard error; None where the far side ended.
Explain = Callable[[int | None, str], errors.FleetError | None]


async def start_limited(
    limiter: LoginLimiter, jump: str | None, argv: list[str], receiver: Receiver, explain: Explain
) -> Channel:
    """Start a program that connects to a node, under the login limiter. Raises OSError."""
    slot = limiter.enter(jump)
    await slot.__aenter__()
    try:
        return await _start(argv, LoginReceiver(receiver, slot, explain))
    except BaseException:
        await slot.__aexit__(None, None, None)
        raise


class LoginReceiver:
    """Holds a login slot until the first byte from the far side or the end; forwards to another receiver.

    Standard error before that goes to `explain` with the exit status; None means the far side ended, not the program.
    """

    def __init__(self, receiver: Receiver, slot: AbstractAsyncContextManager[object], explain: Explain) -> None:
        self._receiver, self._explain = receiver, explain
        self._slot: AbstractAsyncContextManager[object] | None = slot
        self._release_task: asyncio.Task[bool | None] | None = None
        self._stderr = b""  # standard error of the program before the agent's first byte

    def on_bytes(self, data: bytes) -> None:
        self._release()
        self._receiver.on_bytes(data)

    def on_error_bytes(self, data: bytes) -> None:
        if self._slot is not None:
            self._stderr = (self._stderr + data)[-8192:]
        self._receiver.on_error_bytes(data)

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if error is None and self._slot is not None:
            error = self._explain(exit_status, self._stderr.decode("utf-8", "replace"))
        self._release()
        self._receiver.on_end(exit_status, error)

    def _release(self) -> None:
        if self._slot is not None:
            self._release_task = asyncio.ensure_future(self._slot.__aexit__(None, None, None))
            self._slot = None


class OpensshTransport(SubprocessTransport):
    """The user's own `ssh`: supports ControlMaster, GSSAPI and hardware tokens."""

    def __init__(self, limiter: LoginLimiter) -> None:
        self._limiter = limiter
        self._resolver = Resolver()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Run the command through `ssh`."""
        try:
            argv = ssh_argv(node, command, accept_new=await self._accepts_new(node))
            return await start_limited(self._limiter, node.ssh.jump, argv, receiver, failure_of)
        except FileNotFoundError as error:
            raise errors.SshConfigInvalid(
                'transport = "openssh" needs the `ssh` program, which is not installed here',
                'install OpenSSH\'s client, or use transport = "asyncssh"',
            ) from error

    async def _accepts_new(self, node: NodeConfig) -> bool:
        """Whether `ssh` may save a host key: only for a host without any known key.

        ssh treats a key of another type as new, and one without a certificate where a CA is known.
        """
        if node.ssh.host_key_policy != "accept-new":
            return False
        from .host_keys import KnownHosts  # lazy: loads asyncssh

        resolved = with_ours(await self._resolver.resolve(node.host), node.ssh, node.address)
        host = resolved.host_key_alias or resolved.hostname
        return not KnownHosts(resolved.known_hosts()).is_known(host, "", resolved.port)


def ssh_argv(node: NodeConfig, command: str, *, accept_new: bool) -> list[str]:
    """The `ssh` command line for a node: our settings as options, the rest from the user's configuration."""
    ssh = node.ssh
    checking = "accept-new" if accept_new else "yes"
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(ssh.connect_timeout_s))),
        "StrictHostKeyChecking": checking,
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        "User": ssh.user,
        "Port": str(ssh.port) if ssh.port else None,
        "HostName": node.address,
        "ClearAllForwardings": "yes",  # a LocalForward port may be in use already
        "UserKnownHostsFile": str(Path(ssh.known_hosts).expanduser()) if ssh.known_hosts else None,
        "IdentityFile": str(Path(ssh.identity_file).expanduser()) if ssh.identity_file else None,
        "ProxyJump": ssh.jump,
    }
    argv = ["ssh", "-T", "-x"]
    for key, value in options.items():
        if value:
            argv += ["-o", f"{key}={_quoted(value)}"]
    return [*argv, "--", node.host, command]


def _quoted(value: str) -> str:
    """Quote a value for ssh_config(5): quotes keep spaces, percent signs are escaped."""
    text = value.replace("%", "%%")
    return f'"{text}"' if any(letter.isspace() for letter in text) else text


#: Exit status of ssh for any failure of its own.
SSH_FAILED = 255

_MEANINGS: tuple[tuple[str, type[errors.FleetError], str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        errors.HostKeyChanged,
        "if the node was reinstalled, run: ssh-keygen -R HOST",
    ),
    (r"REVOKED HOST KEY DETECTED", errors.HostKeyChanged, "check @revoked in known_hosts"),
    (
        r"Certificate invalid: ",
        errors.HostKeyChanged,
        "check @cert-authority in known_hosts, and the CA of its keys",
    ),
    (
        r"No .* host key is known for|Host key verification failed",
        errors.HostKeyUnknown,
        'verify the fingerprint, then connect once with ssh; or set host_key_policy = "accept-new"',
    ),
    (r"Could not resolve hostname", errors.Dns, "check the spelling, or set address"),
    (r"Connection refused", errors.ConnectionRefused, "check that sshd is running there and that the port is right"),
    (
        r"No route to host|Network is unreachable|Host is down",
        errors.ConnectionRefused,
        "check the node and the network",
    ),
    (r"timed out", errors.Timeout, "check that the node is up; ssh -v shows where it stops"),
    (
        r"no such identity: ",
        errors.Auth,
        "correct identity_file in hosts.toml or IdentityFile in ~/.ssh/config",
    ),
    (
        r"Permission denied \((?!publickey\))[^)]*(password|keyboard-interactive)",
        errors.AuthInteractive,
        "log in once with ssh and ControlMaster, or use a key or an ssh-agent",
    ),
    (
        r"Permission denied|Too many authentication failures",
        errors.Auth,
        "ssh -v; check authorized_keys on the node, and the user name",
    ),
    (
        r"kex_exchange_identification|Connection (reset|closed) by",
        errors.Throttled,
        "sshd limits logins (MaxStartups); retrying with back-off",
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad",
        errors.SshConfigInvalid,
        "fix ~/.ssh/config",
    ),
)


def failure_of(exit_status: int | None, stderr: str) -> errors.FleetError | None:
    """The failure of `ssh` itself, or None if the remote command ended."""
    return explain(stderr) if exit_status == SSH_FAILED else None


def explain(stderr: str) -> errors.FleetError:
    """Return the FleetError for the standard error of a failed `ssh`."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith(("@", "Warning:"))]
    for pattern, kind, try_ in _MEANINGS:
        for line in lines or [stderr]:
            if re.search(pattern, line) or (kind is errors.HostKeyChanged and re.search(pattern, stderr)):
                return kind(f"ssh: {line}", try_)
    return errors.Lost(f"ssh: {lines[-1] if lines else 'no error message'}", "ssh -v")
