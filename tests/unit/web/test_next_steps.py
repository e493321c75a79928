"""Problem responses of the HTTP API include a next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from gconsole.web.app import _parse_request
from gconsole.web.auth import TokenAuth
from gconsole.web.problems import HttpProblem, HttpProblemError
from gconsole.web.resources import OPERATIONS
from gconsole.web.resources.profiling import recordings_of

AUTH = TokenAuth("t" * 40, frozenset({"localhost"}))


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
