"""The SSH server of one demo node: accepts one key and runs commands in the node's environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

import asyncssh


class NodeServer:
    """Listens on a free port of 127.0.0.1. Commands run with `environment` and end with their connection."""

    def __init__(self, client_key: asyncssh.SSHKey, environment: Mapping[str, str]) -> None:
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._client_key = client_key
        self._environment = environment
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        public = self._client_key.export_public_key("openssh").decode()
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Login(self._connections),
            server_host_keys=[self._host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(public),
            process_factory=self._serve,
            encoding=None,
            allow_pty=False,
            agent_forwarding=False,
            line_editor=False,
            compression_algs=None,
        )

    @property
    def port(self) -> int:
        """Port of the server, after `start`."""
        assert self._acceptor is not None, "the port exists after start"
        port: int = self._acceptor.get_port()
        return port

    @property
    def known_hosts_line(self) -> str:
        """The line of this server in known_hosts."""
        return f"[127.0.0.1]:{self.port} {self._host_key.export_public_key('openssh').decode().strip()}\n"

    async def stop(self) -> None:
        """Stop listening, close all connections, and wait until their commands have ended."""
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*self._sessions)

    async def _serve(self, channel: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run one command on its channel; when either ends, the process group is killed."""
        session = asyncio.current_task()
        assert session is not None
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        pipe = asyncio.subprocess.PIPE
        argv = ["/bin/sh", "-c", channel.command] if channel.command else ["/bin/sh"]
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment, start_new_session=True
        )
        try:
            await _join(channel, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


class _Login(asyncssh.SSHServer):  # type: ignore[misc]  # asyncssh is Any to mypy, see pyproject.toml
    """Registers open connections. Otherwise asyncssh's defaults: keys only, no forwarding."""

    def __init__(self, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self._connection)


async def _join(channel: asyncssh.SSHServerProcess[bytes], process: asyncio.subprocess.Process) -> None:
    """Forward both ways until the process has ended and its output is sent, or the channel has closed."""
    await channel.redirect(process.stdin, process.stdout, process.stderr)
    exited = asyncio.create_task(process.wait())
    closed = asyncio.create_task(channel.wait_closed())
    await asyncio.wait({exited, closed}, return_when=asyncio.FIRST_COMPLETED)
    if closed.done():
        exited.cancel()
        return
    await channel.stdout.drain()  # its output precedes its exit status
    await channel.stderr.drain()
    _send_exit(channel, exited.result())
    await closed


def _send_exit(channel: asyncssh.SSHServerProcess[bytes], status: int) -> None:
    """Send the exit status, or the name of the signal, as sshd does."""
    if status < 0:
        channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        channel.exit(status)
