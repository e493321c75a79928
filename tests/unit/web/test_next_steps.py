"""Problem responses of the HTTP API include a next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from gconsole.core.bus import Hub
from gconsole.records import Log
from gconsole.text import logs
from gconsole.web.app import _endpoint, _parse_request
from gconsole.web.auth import TokenAuth
from gconsole.web.problems import HttpProblem, HttpProblemError
from gconsole.web.resources import OPERATIONS
from gconsole.web.resources.profiling import recordings_of
from gconsole.web.tokens import ApiToken

AUTH = TokenAuth((ApiToken("t" * 40),), frozenset({"localhost"}))


def problem_of_request(headers: dict[str, str], *, is_websocket: bool) -> HttpProblem:
    with pytest.raises(HttpProblemError) as failure:
        AUTH.check({"host": "localhost", **headers}, is_websocket=is_websocket)
    return failure.value.problem


def test_cross_origin_request_is_rejected_with_the_address_to_use() -> None:
    problem = problem_of_request({"origin": "http://evil.example"}, is_websocket=False)
    assert problem.name == "foreign_site" and "address that gconsole printed" in problem.try_


def test_websocket_without_origin_is_rejected_with_the_address_to_use() -> None:
    problem = problem_of_request({}, is_websocket=True)
    assert problem.name == "foreign_site" and "address that gconsole printed" in problem.try_


@pytest.mark.parametrize(("method", "path", "listing"), [("DELETE", "/nodes/{name}", "GET /nodes"),
                                                         ("GET", "/jobs/{id}/logs", "GET /jobs")])  # fmt: skip
async def test_invalid_name_is_rejected_with_the_path_that_lists_the_names(
    method: str, path: str, listing: str
) -> None:
    [operation] = [item for item in OPERATIONS if (item.method, item.path) == (method, path)]
    request = Request({"type": "http", "method": method, "path": path, "headers": [], "query_string": b"",
                       "path_params": {"name": "\n"}})  # fmt: skip
    with pytest.raises(HttpProblemError) as failure:
        await _parse_request(cast(Any, operation), request)
    problem = failure.value.problem
    assert problem.name == "no_such_name" and problem.try_ == f"{listing} lists them"
    assert (listing.split()[0], listing.split()[1]) in {(item.method, item.path) for item in OPERATIONS}


def test_console_of_a_recording_names_the_console_that_can_record() -> None:
    context = cast(Any, SimpleNamespace(control=SimpleNamespace(recordings=None)))
    with pytest.raises(HttpProblemError) as failure:
        recordings_of(context)
    problem = failure.value.problem
    assert problem.name == "no_recordings" and "gconsole api" in problem.try_


async def test_internal_error_names_the_log_file_and_hides_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_path", "/state/own.log")
    published: list[Any] = []
    hub = Hub()
    hub.subscribe(published.extend)

    async def broken(context: Any, request: Any) -> None:
        raise RuntimeError("private")

    operation = SimpleNamespace(handler=broken, name_pattern="", path="/nodes", body=None, query=None, scope="read")
    context = SimpleNamespace(hub=hub)
    scope = {"type": "http", "method": "GET", "path": "/nodes", "headers": [], "query_string": b""}
    request = Request({**scope, "gconsole.token": ApiToken("t" * 40)})
    monkeypatch.setattr("gconsole.web.app._parse_request", broken)
    response = await _endpoint(cast(Any, context), cast(Any, operation))(request)
    assert response.status_code == 500
    assert b"details in /state/own.log" in response.body and b"private" not in response.body
    [record] = published
    assert isinstance(record, Log) and "RuntimeError: private; details in /state/own.log" in record.text
