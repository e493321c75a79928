"""Transports that are a subprocess here: this machine itself, and the user's own `ssh`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

from ..config.model import NodeConfig
from . import errors, openssh_errors
from .login_limiter import LoginLimiter
from .ssh_config import Resolver, with_ours
from .transport import Channel, Receiver


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


#: A process that is told to end has this long before it is killed: an agent removes its traces, ssh tells its server.
END_S = 2.0


class SubprocessChannel:
    """The standard input of a subprocess; closing it ends the whole process group."""

    def __init__(self, process: asyncio.SubprocessTransport) -> None:
        self._process = process
        self._stdin = cast(asyncio.WriteTransport, process.get_pipe_transport(0))

    def write(self, data: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(data)

    def pause(self) -> None:
        for pipe in self._pipes():
            pipe.pause_reading()

    def resume(self) -> None:
        for pipe in self._pipes():
            pipe.resume_reading()

    def unacked(self, silent_s: float) -> None:
        """The connection, if there is one, is another program's."""

    async def answers(self) -> None:
        """Likewise."""

    def _pipes(self) -> list[asyncio.ReadTransport]:
        found = [cast(asyncio.ReadTransport, self._process.get_pipe_transport(fd)) for fd in (1, 2)]
        return [pipe for pipe in found if pipe is not None and not pipe.is_closing()]

    def close(self) -> None:
        if self._process.get_returncode() is not None:
            self._process.close()
            return
        self._stdin.close()
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(END_S, self._end)

    def _end(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.get_pid(), number)


async def _start(argv: list[str], receiver: Receiver, env: dict[str, str] | None = None) -> SubprocessChannel:
    loop = asyncio.get_running_loop()
    process, _ = await loop.subprocess_exec(lambda: _Pipes(receiver), *argv, start_new_session=True, env=env)
    return SubprocessChannel(process)


class SubprocessTransport:
    """What transports by a program have in common: nothing is shared, nothing is asked, nothing is known beforehand."""

    async def answers(self, node: NodeConfig) -> bool | None:
        return None

    def forget_refused_prompts(self) -> None:
        pass

    async def close(self) -> None:
        pass


class LocalTransport(SubprocessTransport):
    """This machine, without SSH."""

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        env = dict(os.environ)
        if node.process_filter:  # what sshd's SetEnv does for other nodes: the agent carries its node's own mark
            env[node.process_filter[0]] = node.process_filter[1]
        return await _start(["/bin/sh", "-c", command], receiver, env)


#: The failure of the program between, by its exit status and its words; None where the far side ended.
Explain = Callable[[int | None, str], errors.FleetError | None]


async def start_behind(
    gate: LoginLimiter, jump: str | None, argv: list[str], receiver: Receiver, explain: Explain
) -> Channel:
    """Start a program that leads to a node, in its turn at the gate. Raises OSError."""
    place = gate.enter(jump)
    await place.__aenter__()
    try:
        return await _start(argv, _UntilItSpeaks(receiver, place, explain))
    except BaseException:
        await place.__aexit__(None, None, None)
        raise


class _UntilItSpeaks:
    """A receiver in front of another, which holds a place at the gate until the far side has said something.

    Such programs do not tell when they are through; the first byte of the agent, or the end, does. What one said before
    it ended is handed to `explain` with its exit status: the failure behind it, or None where it was not its own.
    """

    def __init__(self, receiver: Receiver, place: AbstractAsyncContextManager[object], explain: Explain) -> None:
        self._receiver, self._explain = receiver, explain
        self._place: AbstractAsyncContextManager[object] | None = place
        self._leaving: asyncio.Task[bool | None] | None = None
        self._said = b""  # on standard error, before the first byte of the agent: by the program itself

    def on_bytes(self, data: bytes) -> None:
        self._leave()
        self._receiver.on_bytes(data)

    def on_error_bytes(self, data: bytes) -> None:
        if self._place is not None:
            self._said = (self._said + data)[-8192:]
        self._receiver.on_error_bytes(data)

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if error is None and self._place is not None:
            error = self._explain(exit_status, self._said.decode("utf-8", "replace"))
        self._leave()
        self._receiver.on_end(exit_status, error)

    def _leave(self) -> None:
        if self._place is not None:
            self._leaving = asyncio.ensure_future(self._place.__aexit__(None, None, None))
            self._place = None


class OpensshTransport(SubprocessTransport):
    """The user's own `ssh`: ControlMaster, GSSAPI, hardware tokens, whatever their configuration says."""

    def __init__(self, gate: LoginLimiter) -> None:
        self._gate = gate
        self._resolver = Resolver()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        try:
            argv = ssh_argv(node, command, accept_new=await self._accepts_new(node))
            return await start_behind(self._gate, node.ssh.jump, argv, receiver, openssh_errors.failure_of)
        except FileNotFoundError as error:
            raise errors.SshConfigInvalid(
                'transport = "openssh" needs the `ssh` program, and this machine has none',
                'install OpenSSH\'s client, or use transport = "asyncssh"',
            ) from error

    async def _accepts_new(self, node: NodeConfig) -> bool:
        """Whether `ssh` may keep a key: only of a host of which nothing is known.

        To ssh a key of another type is new, and so is one without a certificate where an authority is known.
        """
        if node.ssh.host_key_policy != "accept-new":
            return False
        from .host_keys import KnownHosts  # it loads asyncssh, which this transport else does without

        resolved = with_ours(await self._resolver.resolve(node.host), node.ssh, node.address)
        host = resolved.host_key_alias or resolved.hostname
        return not KnownHosts(resolved.known_hosts()).is_known(host, "", resolved.port)


def ssh_argv(node: NodeConfig, command: str, *, accept_new: bool) -> list[str]:
    """The `ssh` command line for a node: our settings as options, everything else as the user's configuration says."""
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
        "ClearAllForwardings": "yes",  # the user's LocalForward is for their shell; here its port would be taken
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
    """A value as ssh_config(5) reads it: quotes keep spaces, and a percent sign would begin a token."""
    text = value.replace("%", "%%")
    return f'"{text}"' if any(letter.isspace() for letter in text) else text
