"""Slow clients (slowloris): they do not block others, and are disconnected."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from api_client import DEADLINE_S, Api

#: Enough to exhaust a server with one thread per connection.
CLIENTS = 100


@contextlib.contextmanager
def open_connections(api: Api, count: int, head: bytes) -> Iterator[list[socket.socket]]:
    """Connections that have sent only `head`."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(("127.0.0.1", api.port), DEADLINE_S))
                       for _ in range(count)]  # fmt: skip
        for connection in connections:
            connection.sendall(head)
        yield connections


def read_to_end(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection; a reset counts as closed."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def test_slow_clients_are_disconnected_and_do_not_block_others(api: Api) -> None:
    incomplete_head = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    body = (b"POST /captures HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{" % api.token.encode())  # fmt: skip
    complete = b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % api.token.encode()
    with (
        open_connections(api, CLIENTS, incomplete_head) as heads, open_connections(api, 5, b"") as silent,
        open_connections(api, 5, body) as bodies,
        open_connections(api, 1, complete) as [again],
    ):  # fmt: skip
        first = again.recv(65536)
        again.sendall(b"GET / HTTP/1.1\r\nHos")
        assert api.get("/status")["connected_clients"], "other clients are answered meanwhile"
        for connection in heads[:20]:
            with contextlib.suppress(OSError):
                connection.sendall(b"a")  # single bytes do not extend the timeout
        assert [read_to_end(connection) for connection in (*heads, *silent)] == [b""] * (CLIENTS + 5)
        for connection in bodies:
            received = read_to_end(connection)
            assert received.startswith(b"HTTP/1.1 408 ") and b'"too_slow"' in received
        assert (first + read_to_end(again)).count(b"HTTP/1.1 200 ") == 1, "a second request is not awaited either"
    assert api.get("/status")["connected_clients"]


def test_non_http_bytes_get_a_400_error_response(api: Api) -> None:
    with open_connections(api, 1, b"\x16\x03\x01 hello\r\n\r\n") as [connection]:
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 400 ") and b'"no_http"' in received


def test_endless_request_header_is_rejected(api: Api) -> None:
    with open_connections(api, 1, b"GET / HTTP/1.1\r\n") as [connection]:
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(b"X-More: %s\r\n" % (b"x" * 1000))
        received = read_to_end(connection)
    assert received == b"" or received.startswith(b"HTTP/1.1 4")
