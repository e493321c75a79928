"""The HTTP API against clients with too many connections, with tokens of too small a scope, or without any."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gconsole.config import Config, ConsoleConfig
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet.fleet import Fleet
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import Log
from gconsole.web import middleware
from gconsole.web.app import make_app
from gconsole.web.audit import READS_EVERY_S, REJECTIONS_EVERY_S, AuditLog
from gconsole.web.auth import TokenAuth
from gconsole.web.openapi import described
from gconsole.web.operation import Operation, UploadOperation, WebContext
from gconsole.web.resources import OPERATIONS
from gconsole.web.server import listen_at, open_socket, serving
from gconsole.web.tokens import SCOPES, AccessScope, ApiToken, TokenError, tokens_of

TOKENS: dict[str, ApiToken] = {scope: ApiToken(scope * 16, f"holder-{scope}", scope) for scope in SCOPES}
EXPIRED = ApiToken("expired" * 4, "former", "run", expires_s=time.time() - 1)
ALL = described(OPERATIONS)


class RunningApi:
    """An API over no nodes, in this process."""

    def __init__(self, port: int, records: list[Any]) -> None:
        self.port, self.records = port, records

    async def request(self, method: str, path: str, token: str | None, body: bytes | None = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self._request, method, path, token, body)

    def _request(self, method: str, path: str, token: str | None, body: bytes | None) -> tuple[int, Any]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            headers |= {"Authorization": f"Bearer {token}"} if token is not None else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if response.headers["content-type"].startswith("text/event-stream"):
                return response.status, None
            data = response.read()
            is_json = response.headers["content-type"] == "application/json"
            return response.status, json.loads(data) if is_json else data

    def audited(self) -> list[Log]:
        return [record for record in self.records if isinstance(record, Log) and record.source == "api"]


@contextlib.asynccontextmanager
async def running(read_only: bool = True, rate_s: float = 10_000) -> AsyncIterator[RunningApi]:
    config = Config(cluster="lab", nodes=(), console=ConsoleConfig(read_only=read_only))
    hub, store, records = Hub(), Store(), list[Any]()
    hub.subscribe(store.apply)
    hub.subscribe(records.extend)
    fleet = Fleet(config, hub)
    context = WebContext(config, hub, store, fleet, FindingTracker(hub, config.health), Path("/nonexistent"))
    auth = TokenAuth((*TOKENS.values(), EXPIRED), frozenset({"localhost"}))
    listen = listen_at("127.0.0.1:0")
    listener = open_socket(listen)
    app = make_app(context, ALL, auth, rate_s)
    async with serving(app, listen, listener, lambda text: pytest.fail(text)):
        try:
            yield RunningApi(listener.getsockname()[1], records)
        finally:
            context.closing.set()
            await fleet.stop()


async def test_idle_connections_without_a_token_lock_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gconsole.web.server.MAX_CONNECTIONS", 40)  # 512 in production
    async with running() as api:
        with contextlib.ExitStack() as stack:
            keep = http.client.HTTPConnection("127.0.0.1", api.port, timeout=60)
            stack.callback(keep.close)
            await asyncio.to_thread(_get, keep)
            idle = [stack.enter_context(socket.create_connection(("127.0.0.1", api.port), 60)) for _ in range(120)]
            for connection in idle[::2]:
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET /status HTTP/1.1\r\nHost: loc")
            for _ in range(20):
                status, _ = await api.request("GET", "/status", TOKENS["read"].value)
                assert status == 200
            assert await asyncio.to_thread(_get, keep) == 200, "connections with a token are kept"


def _get(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/status", headers={"Authorization": f"Bearer {TOKENS['read'].value}"})
    response = connection.getresponse()
    response.read()
    return response.status


def test_limits_of_connections_leave_room_for_requests() -> None:
    assert middleware.MAX_CONNECTIONS > middleware.MAX_CONCURRENT


@pytest.mark.parametrize("read_only", [True, False])
async def test_nodes_are_added_and_removed_only_where_changes_are_allowed(read_only: bool) -> None:
    async with running(read_only) as api:
        body = b'{"nodes": "node[1-2]"}'
        status, answer = await api.request("POST", "/nodes", TOKENS["run"].value, body)
        assert status == (403 if read_only else 202), answer
        assert answer.get("name") == ("read_only" if read_only else None)
        status, answer = await api.request("DELETE", "/nodes/node1", TOKENS["run"].value)
        assert status == (403 if read_only else 200), answer


#: The least scope of each operation that is not a read.
LEAST: dict[tuple[str, str], AccessScope] = {
    ("GET", "/"): "metrics", ("GET", "/openapi.json"): "metrics", ("GET", "/docs"): "metrics",
    ("GET", "/metrics"): "metrics", ("GET", "/metrics/latest"): "metrics",
    ("POST", "/nodes/health"): "read", ("POST", "/query"): "read", ("POST", "/jobs/plan"): "read",
    ("POST", "/captures"): "capture", ("POST", "/diagnose"): "capture",
    ("POST", "/profiling/start"): "capture", ("POST", "/profiling/stop"): "capture",
    ("POST", "/nodes"): "run", ("DELETE", "/nodes/{name}"): "run",
    ("POST", "/jobs"): "run", ("POST", "/jobs/{id}/stop"): "run",
    ("GET", "/folders"): "run", ("POST", "/folders"): "run", ("DELETE", "/folders/{id}"): "run",
}  # fmt: skip


def test_scope_of_every_operation_that_is_not_a_read_is_listed_here() -> None:
    scopes = {(item.method, item.path): item.scope for item in ALL}
    assert {key for key, scope in scopes.items() if scope != "read"} <= LEAST.keys()
    assert all(isinstance(item, Operation | UploadOperation) for item in ALL if item.method != "GET")
    assert {key: scope for key, scope in scopes.items() if key in LEAST} == LEAST
    assert all(key in LEAST for key in scopes if key[0] != "GET")


async def test_token_permits_only_operations_of_its_scope() -> None:
    async with running() as api:
        for item in ALL:
            path = item.path.replace("{name}", "x").replace("{id}", "x")
            for scope, token in TOKENS.items():
                status, answer = await api.request(item.method, path, token.value)
                is_permitted = SCOPES.index(item.scope) <= SCOPES.index(scope)
                has_failed = status == 403 and isinstance(answer, dict) and answer["name"] == "scope"
                assert has_failed != is_permitted, (item.method, path, scope, status, answer)


async def test_expired_and_unknown_tokens_are_rejected() -> None:
    async with running() as api:
        for value in (EXPIRED.value, "x" * 40, "", None):
            status, answer = await api.request("GET", "/status", value)
            assert status == 401 and answer["name"] == "no_token"


async def test_every_action_and_rejection_is_a_record_that_names_its_token() -> None:
    async with running() as api:
        await api.request("POST", "/captures", TOKENS["capture"].value)
        await api.request("POST", "/captures", TOKENS["read"].value)
        await api.request("POST", "/jobs/%1b]0;x%07%0agconsole/stop", TOKENS["run"].value)
        for _ in range(5):
            await api.request("GET", "/status", TOKENS["read"].value)
            await api.request("GET", "/status", "wrong" * 8)
        lines = [(log.subject, log.severity, log.text) for log in api.audited()]
        assert [(subject, severity) for subject, severity, _ in lines] == [
            ("holder-capture", "info"), ("holder-read", "warning"), ("holder-run", "info"), ("holder-read", "info"),
            (None, "warning"),
        ], lines  # fmt: skip
        assert lines[0][2].startswith("holder-capture from 127.0.0.1: POST /captures: ")
        assert lines[1][2] == "holder-read from 127.0.0.1: POST /captures: 403"
        assert lines[4][2] == "no valid token from 127.0.0.1: GET /status: 401"
        assert all(text.isprintable() for _, _, text in lines)
        assert not [text for _, _, text in lines if any(token.value in text for token in TOKENS.values())]


def test_repeated_reads_and_rejections_are_counted() -> None:
    now, logs = [0.0], list[Log]()
    audit = AuditLog(logs.append, lambda: now[0])
    for _ in range(100):
        audit.report(TOKENS["read"], "10.0.0.1", "GET", "/metrics", 200)
        audit.report(None, "10.0.0.2", "GET", "/metrics", 401)
    assert len(logs) == 2
    now[0] = READS_EVERY_S + REJECTIONS_EVERY_S
    audit.report(TOKENS["read"], "10.0.0.1", "GET", "/metrics", 200)
    audit.report(None, "10.0.0.2", "GET", "/metrics", 401)
    assert [log.text.endswith("(99 more since the last such line)") for log in logs] == [False, False, True, True]
    for number in range(10_000):
        audit.report(None, str(number), "GET", "/", 401)
    assert len(audit._series) <= 4096


def test_token_file_lists_names_scopes_and_expiries(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(
        f"# of the lab\n{'a' * 20} grafana metrics\n\n{'b' * 20} ci capture 2099-12-31\n"
        f"{'c' * 20} old read 2001-01-01T00:00:00Z\n{'d' * 20}\n"
    )
    tokens = tokens_of(path)
    assert [(token.name, token.scope, token.is_expired()) for token in tokens] == [
        ("grafana", "metrics", False), ("ci", "capture", False), ("old", "read", True), ("token", "run", False),
    ]  # fmt: skip
    assert "aaaa" not in repr(tokens)


@pytest.mark.parametrize(
    "text",
    ["a" * 20 + " x root", "a" * 20 + " x read tomorrow", "a" * 20 + " x read 2099-01-01 y", "a" * 20 + " \x1b[2J read",
     "a" * 20 + " x read\n" + "a" * 20 + " y read", "a" * 20 + " x read\n" + "b" * 20 + " x read", "# none"],
)  # fmt: skip
def test_invalid_token_file_is_rejected_without_a_token_in_the_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(TokenError) as raised:
        tokens_of(path)
    assert "aaaa" not in str(raised.value) and str(raised.value).isprintable()
