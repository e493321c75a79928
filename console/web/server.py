"""The HTTP server of `gconsole api` and `gconsole serve`: listening address, TLS, connections, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..text import logs
from .middleware import HEAD_S, KEEP_ALIVE_S, MAX_CONNECTIONS, SHUTDOWN_S, STALL_S, is_admitted
from .problems import HttpProblem

_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<name>[A-Za-z0-9_.-]+)):(?P<port>[0-9]{1,5})")


class ListenError(ValueError):
    """The server cannot listen on this address; the text is one line that names the remedy."""


class Listen(msgspec.Struct, frozen=True):
    """A listening address, with its TLS files if it has any."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def scheme(self) -> str:
        """URL scheme: https with a certificate, else http."""
        return "https" if self.certificate is not None else "http"

    def url(self, port: int) -> str:
        """The address to print; `port` is the one that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if ipaddress.ip_address(self.host).is_unspecified:
            host = socket.gethostname()
        return f"{self.scheme}://{host}:{port}"


def listen_at(text: str, certificate: Path | None = None, key: Path | None = None) -> Listen:
    """Parse HOST:PORT. Raises ListenError, also for an address that is not loopback without TLS files."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ListenError(f"{text!r} is not HOST:PORT; use 127.0.0.1:8091 or [::1]:8091")
    host = match["six"] or match["name"]
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ListenError(f"{host} is a host name, which may resolve to any address; give the IP address") from None
    if (certificate is None) != (key is None):
        raise ListenError("--tls-cert and --tls-key belong together; give both")
    if not address.is_loopback and certificate is None:
        raise ListenError(
            f"{address} is not a loopback address, and without TLS the token can be intercepted; give --tls-cert "
            "and --tls-key, or listen on 127.0.0.1 and forward the port with ssh -L"
        )
    return Listen(str(address), int(match["port"]), certificate, key)


def open_socket(listen: Listen) -> socket.socket:
    """A listening socket. Raises OSError if the port is in use, or the address is not of this machine."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=256)


def names_of(listen: Listen) -> frozenset[str]:
    """Names that clients may send in Host: those of this machine, and those in its certificate.

    Raises ListenError for an invalid certificate.
    """
    if listen.certificate is None:
        return frozenset({"localhost"})
    own = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(own | _certificate_names(listen.certificate))


def check_files(listen: Listen) -> None:
    """Raises ListenError if the TLS files cannot be loaded, at start instead of at the first client."""
    if listen.certificate is None or listen.key is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(listen.certificate, listen.key)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(f"{listen.certificate}, {listen.key}: {error.strerror or error}") from error


def _certificate_names(path: Path) -> set[str]:
    from cryptography import x509  # a dependency of asyncssh

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    except (OSError, ValueError) as error:
        raise ListenError(f"{path}: {error}") from error
    return {name.lower() for name in names.get_values_for_type(x509.DNSName)}


class HttpConnection(H11Protocol):
    """Aborts connections with an incomplete head or a blocked reader, and the oldest one without a token if there are
    too many.

    uvicorn itself has no timeout for the first request of a connection, nor for an incomplete request head.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._opened_s = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the head timeout; above the connection limit, make room or abort."""
        super().connection_made(transport)
        if len(self.connections) <= MAX_CONNECTIONS or self._make_room():
            self._await_head()
        else:
            transport.abort()

    def _make_room(self) -> bool:
        """Abort a connection whose client has not shown a token; False if there is none.

        The oldest one of the address that has most of them, so that idle connections of a client lock out only itself.
        """
        strangers = [
            connection for connection in self.connections
            if isinstance(connection, HttpConnection) and connection is not self and not is_admitted(connection.scope)
        ]  # fmt: skip
        if not strangers:
            return False
        counts = Counter(connection._host for connection in strangers)
        oldest = min(strangers, key=lambda connection: (-counts[connection._host], connection._opened_s))
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    @property
    def _host(self) -> str:
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        """Stop or restart the head timeout."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_head()
        elif self._head is None and not self.transport.is_closing():
            self._await_head()

    def on_response_complete(self) -> None:
        """Stop the head timeout: uvicorn's own timer runs until the next request."""
        super().on_response_complete()
        self._end_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timeouts."""
        self._end_head()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the stall timeout."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the stall timeout."""
        self._end_stall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Reject a malformed request with a problem as JSON."""
        problem = HttpProblem(status=400, name="no_http", text="malformed HTTP request")
        body = msgspec.json.encode(problem)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
                   (b"connection", b"close")]  # fmt: skip
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)

    def _end_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class _ErrorHandler(logging.Handler):
    """Passes uvicorn's errors on, exceptions as internal errors; its warnings about malformed requests are dropped."""

    def __init__(self, on_error: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._on_error = on_error

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = logs.internal_error(error, "the HTTP server") if error is not None else record.getMessage()[-1500:]
        self._on_error(f"http: {text}")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the program."""
        yield


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, listen: Listen, server_socket: socket.socket, on_error: Callable[[str], None],
    websocket: type[asyncio.Protocol] | None = None, **options: Any,
) -> AsyncIterator[None]:  # fmt: skip
    """Serve requests until the block ends, then close the socket. `websocket` is the protocol class, None for none.

    `options` are further ones of uvicorn.Config. Requests still in progress are cancelled after `SHUTDOWN_S`.
    """
    config = uvicorn.Config(
        app, http=HttpConnection, ws=websocket or "none", loop="asyncio", lifespan="off", interface="asgi3",
        log_config=None, log_level=logging.WARNING,  # INFO would log addresses with the token of `gconsole serve`
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S, ssl_certfile=listen.certificate, ssl_keyfile=listen.key, **options,
    )  # fmt: skip
    server, handler, logger = _Server(config), _ErrorHandler(on_error), logging.getLogger("uvicorn")
    logger.addHandler(handler)
    running = asyncio.create_task(server.serve(sockets=[server_socket]), name="http")
    try:
        yield
    finally:
        server.should_exit = True
        try:
            await running
        finally:
            logger.removeHandler(handler)
