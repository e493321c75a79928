"""A client of `gconsole api`: starts the real process and sends requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fork_server
from program import GCONSOLE

DEADLINE_S = 60.0


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP response."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Api:
    """A running server. `tls` is the client's TLS context, if the server uses TLS."""

    port: int
    token: str
    pid: int
    tls: ssl.SSLContext | None = None
    hosts: Path | None = None  # its hosts.toml

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = "", deadline_s: float = DEADLINE_S,
        **headers: str,
    ) -> HttpResponse:  # fmt: skip
        """One request; `token` None sends none, "" the valid one; `headers` with _ for -. A body is sent as JSON."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token or self.token}")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = self.connection(deadline_s)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return HttpResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def connection(self, deadline_s: float = DEADLINE_S) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=deadline_s, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=deadline_s)

    def get(self, path: str, **headers: str) -> Any:
        """The JSON of a successful GET."""
        response = self.request("GET", path, **headers)
        assert response.status == 200, (path, response)
        return response.json

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """The JSON of a POST that returns `status`."""
        response = self.request("POST", path, {} if body is None else body, deadline_s=150.0)
        assert response.status == status, (path, response)
        return response.json

    def until_connected(self, nodes: int) -> None:
        """Wait until that many nodes are connected and sampled."""

        def are_there() -> bool:
            nodes_seen = self.get("/nodes")["nodes"]
            return sum(node["about"]["state"] == "ok" and node["cost"] is not None for node in nodes_seen) == nodes

        until(are_there)


def until(condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Wait until the condition is true; its value."""
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s"
        time.sleep(0.1)
    return value


@contextlib.contextmanager
def running_api(
    hosts: Path, folder: Path, *args: str, listen: str = "127.0.0.1:0", tls: ssl.SSLContext | None = None
) -> Iterator[Api]:
    """Run the real command until the block ends; then assert that it exits normally."""
    token = folder / "token"
    argv = [GCONSOLE, "api", hosts, "--listen", listen, "--token-file", token, "--set",
            f"sessions.folder={folder / 'sessions'}", *args]  # fmt: skip
    with (folder / "api.err").open("wb") as errors:
        process = fork_server.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                                    env=_environment())  # fmt: skip
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "api.err").read_text()
        yield Api(int(address.rpartition(":")[2]), token.read_text().strip(), process.pid, tls, hosts)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0, (folder / "api.err").read_text()
    finally:
        process.kill()
        process.communicate()
    errors = (folder / "api.err").read_text()
    assert errors == "", errors


def _environment() -> dict[str, str]:
    """The test's environment without test variables: gconsole warns about unknown GCONSOLE_ names."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GCONSOLE_TEST_")}
