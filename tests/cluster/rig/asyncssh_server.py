"""asyncssh servers for nodes, on machines without OpenSSH.

The servers of a rig share one event loop in a thread. Commands run through the account's real shell, so that an
agent is deployed as it is through sshd.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import asyncssh

from . import accounts, keys
from .kinds import BANNER, PASSWORD
from .openssh import Settings, write_shell
from .sandbox import Sandbox

CALL_DEADLINE_S = 60.0


class ServerLoop:
    """The event loop of a rig's servers, in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gct-asyncssh", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine) -> Any:
        """Run a coroutine in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_DEADLINE_S)

    def server(self, sandbox: Sandbox, settings: Settings) -> "AsyncsshServer":
        return AsyncsshServer(self, sandbox, settings)

    def close(self) -> None:
        self.call(self._cancel_everything())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_DEADLINE_S)
        self._loop.close()

    async def _cancel_everything(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class AsyncsshServer:
    """One listening asyncssh server, with the interface of OpenSshServer."""

    def __init__(self, loop: ServerLoop, sandbox: Sandbox, settings: Settings) -> None:
        self._loop = loop
        self.sandbox = sandbox
        self.settings = settings
        self._log = sandbox.folder / "sshd.log"
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self.connections: set[asyncssh.SSHServerConnection] = set()
        self._commands: set[int] = set()  # pids of running shells, each the leader of its process group

    def prepare(self) -> None:
        keys.make(self.sandbox.folder / "host_key")
        write_shell(self.sandbox.folder, self.settings.kind)
        self._log.touch()

    def host_key(self) -> str:
        return keys.public_line(self.sandbox.folder / "host_key")

    def change_host_key(self) -> None:
        keys.remove(self.sandbox.folder / "host_key")
        keys.make(self.sandbox.folder / "host_key")

    def start(self) -> None:
        """Start the server; it is listening when this returns."""
        self._acceptor = self._loop.call(self._listen())

    async def _listen(self) -> asyncssh.SSHAcceptor:
        return await asyncssh.create_server(
            lambda: _Login(self),
            self.settings.address,
            self.settings.port,
            server_host_keys=[str(self.sandbox.folder / "host_key")],
            process_factory=self.run_command,
            encoding=None,
            login_timeout=30,
            allow_pty=False,
        )

    def stop(self, sessions: bool = False) -> None:
        if self._acceptor is not None:
            self._loop.call(self._close(sessions))
            self._acceptor = None

    async def _close(self, sessions: bool) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        if sessions:
            for connection in list(self.connections):
                connection.abort()
            for pid in self._commands:
                with contextlib.suppress(ProcessLookupError):  # reaped a moment ago, by asyncio's thread
                    os.killpg(pid, signal.SIGKILL)

    def log(self) -> str:
        return self._log.read_text()

    def note(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(f"{line}\n")

    def logins(self) -> int:
        """Number of successful logins so far."""
        return self.log().count("Accepted ")

    def authorized(self) -> set[bytes]:
        lines = (self.sandbox.folder / "authorized_keys").read_text().splitlines()
        return {asyncssh.import_public_key(line).public_data for line in lines if line}

    async def run_command(self, process: asyncssh.SSHServerProcess) -> None:
        """One exec request: runs the shell, connects its pipes to the channel, returns its exit status."""
        try:
            child = await self._start_shell(process)
        except OSError as error:
            process.stderr.write(f"{error}\n".encode())
            process.exit(126)
            return
        self._commands.add(child.pid)
        feed = asyncio.create_task(_feed(process.stdin, child.stdin))
        try:
            status = await child.wait()
            await process.stdout.drain()  # returns at the end of the pipe, when the last writer has closed it
            await process.stderr.drain()
            process.exit(status if status >= 0 else 128 - status)
        except (OSError, asyncssh.Error):
            await child.wait()  # the client disconnected: pipes are closed, as sshd does, and the command keeps running
        finally:
            self._commands.discard(child.pid)
            feed.cancel()
            process.close()
            await process.wait_closed()

    async def _start_shell(self, process: asyncssh.SSHServerProcess) -> asyncio.subprocess.Process:
        account = accounts.current()
        command = process.command
        variables = {
            "USER": account.name,
            "LOGNAME": account.name,
            "SHELL": account.shell,
            "SSH_CLIENT": "127.0.0.1 0 0",
            "SSH_CONNECTION": "127.0.0.1 0 127.0.0.1 0",
            **self.sandbox.variables,
        }
        if self.settings.kind.shell != "plain":
            variables["SSH_ORIGINAL_COMMAND"] = command or ""
            command = f"{self.sandbox.inside}/shell"
        argv = [account.shell, "-c", command] if command else [account.shell, "-l"]
        from_stdout, stdout = os.pipe()
        from_stderr, stderr = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=variables,
                start_new_session=True,
                cwd=self.sandbox.variables["HOME"],
            )
        except OSError:
            os.close(from_stdout)
            os.close(from_stderr)
            raise
        finally:
            os.close(stdout)
            os.close(stderr)
        # send_eof: otherwise the end of stdout would close the channel before the end of stderr.
        await process.redirect(stdout=from_stdout, stderr=from_stderr, send_eof=False)
        return child


async def _feed(source: asyncssh.SSHReader, sink: asyncio.StreamWriter) -> None:
    """Forward stdin to its end. Not by redirect(): its EOF once overtook data (asyncssh 2.24)."""
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except (OSError, asyncssh.Error):
        pass  # the client disconnected, or the command closed stdin
    finally:
        sink.close()


class _Login(asyncssh.SSHServer):
    """Authentication of one server, and its log."""

    def __init__(self, server: AsyncsshServer) -> None:
        self._server = server
        self._kind = server.settings.kind
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        if self._kind.shell == "noisy":
            self._connection.send_auth_banner(BANNER)
        return True

    def auth_completed(self) -> None:
        self._server.note(f"Accepted {self._connection.get_extra_info('username')}")

    def public_key_auth_supported(self) -> bool:
        return self._kind.login != "password"

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == accounts.current().name and key.public_data in self._server.authorized()

    def password_auth_supported(self) -> bool:
        return self._kind.login == "password"

    def validate_password(self, username: str, password: str) -> bool:
        return username == accounts.current().name and password == PASSWORD

    def kbdint_auth_supported(self) -> bool:
        return self._kind.login == "password"

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> tuple:
        return "", "", lang, [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: list[str]) -> bool:
        return self.validate_password(username, responses[0])

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True  # a bastion forwards to any destination, as sshd does by default
