"""A real HTTP server on loopback that keeps what it receives and answers as it is told."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

#: (status, headers, body) of the answer to the n-th request, from 0.
Answer = Callable[[int], tuple[int, dict[str, str], bytes]]


class Server:
    """`requests` are (path, headers, body) of all requests."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.requests.append((self.path, dict(self.headers), body))
                status, headers, text = answer(len(outer.requests) - 1)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def serving(
    answer: Answer = lambda number: (200, {}, b"ok"), context: ssl.SSLContext | None = None
) -> Iterator[Server]:
    server = Server(answer, context)
    thread = threading.Thread(target=server.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        thread.join()
        server.server.server_close()


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server's context with a certificate that no client trusts."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
