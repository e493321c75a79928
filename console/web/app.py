"""The application: every operation at its path, its request checked against its type, its answer encoded."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import ConfigError
from ..config.nodeset_parser import BadNodeSet
from ..records import Log
from ..session.format.layout import SessionError
from ..text import format
from .auth import TokenAuth
from .context import WebContext
from .limits import BODY_S, LOOKS_S, MAX_BODY
from .middleware import RequestMiddleware, problem_response
from .operation import AnyOperation, Operation, OperationRequest, StreamOperation, method_of
from .problems import HttpProblem, HttpProblemError, http_problem

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    context: WebContext, operations: Sequence[AnyOperation], door: TokenAuth, looks_s: float = LOOKS_S
) -> ASGIApp:
    """The application behind its gate; `looks_s`: so many requests a second of one address."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[method_of(operation)] = _endpoint(context, operation)
    literal_first = sorted(by_path, key=lambda path: "{" in path)
    routes = [Route(path, _Methods(by_path[path])) for path in literal_first]

    async def failed(request: Request, error: Exception) -> Response:
        text = f"{request.url.path} is not a path of this API"
        return problem_response(http_problem(404, "no_such_path", text, "GET / lists all paths"))

    described = frozenset(one.path for one in operations if isinstance(one, StreamOperation) and one.is_described)
    return RequestMiddleware(
        Starlette(routes=routes, exception_handlers={HTTPException: failed}), door, described, looks_s
    )


class _Methods:
    """What can be done with one path, by method."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        endpoint = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        answer = await endpoint(request) if endpoint is not None else self._refusal(request)
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> Response:
        allowed = ", ".join(sorted(self._endpoints))
        text = f"{request.method} is not supported by {request.url.path}"
        return problem_response(http_problem(405, "no_such_method", text, f"use {allowed}", Allow=allowed))


def _endpoint(context: WebContext, operation: AnyOperation) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            if isinstance(operation, StreamOperation):
                return await operation.handler(context, request)
            operation_request = await _parse_request(operation, request)
            found = await operation.handler(context, operation_request)
            return Response(msgspec.json.encode(found), operation.status, media_type="application/json")
        except HttpProblemError as error:
            return problem_response(error)
        except BadNodeSet as error:
            return problem_response(http_problem(400, "no_node_set", str(error)))
        except ConfigError as error:
            return problem_response(http_problem(400, "configuration", str(error)))
        except SessionError as error:
            return problem_response(http_problem(409, "session", str(error)))
        except ClientDisconnect:
            return Response(status_code=400)  # to nobody
        except Exception as error:  # noqa: BLE001 - told as an error of ours; one request ends no console
            story = "".join(traceback.format_exception(error, limit=-4))
            context.hub.publish_own(
                Log(source="console", severity="error", text=f"{request.url.path} failed: {story[-1500:]}")
            )
            return problem_response(http_problem(500, "internal", f"an error in gconsole: {type(error).__name__}",
                                          "details are in the log of this console"))  # fmt: skip

    return answer


# -- what is asked -----------------------------------------------------------------------------------------------------


async def _parse_request(operation: Operation[Any], request: Request) -> OperationRequest[Any]:
    name = next(iter(request.path_params.values()), "")
    if operation.name and re.search(operation.name, name) is None:
        raise http_problem(404, "no_such_name", f"{name[:80]!r} is not a valid name")
    try:
        if operation.method == "GET":
            return OperationRequest(name, query_of(request, operation.asks))
        body = await _body(request)
        return OperationRequest(name, msgspec.convert(_whole(msgspec.json.decode(body or b"{}")), operation.asks))
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(operation, error) from error


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 8.0 is the integer 8 wherever one is asked for."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**63:
            return int(value)
        case list():
            return [_whole(one) for one in value]
        case dict():
            return {key: _whole(one) for key, one in value.items()}
    return value


def query_of(request: Request, kind: type[Any]) -> Any:
    """The query as a record. Raises Refused, msgspec.ValidationError."""
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise http_problem(400, "malformed", f"{name} is given twice in the query")
    return msgspec.convert(dict(pairs), kind, strict=False)


async def _body(request: Request) -> bytes:
    """All of it. Raises Refused for one that is too large, too slow, or no JSON by its own word."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise http_problem(413, "too_large", f"the body is larger than {format.size(MAX_BODY)}")
                parts.append(part)
    except TimeoutError:
        text = f"the body did not arrive within {BODY_S:g} s"
        raise HttpProblemError(HttpProblem(status=408, name="too_slow", text=text)) from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        raise http_problem(415, "no_json", f"the body is {kind or 'of no type'}, and must be JSON",
                      "send Content-Type: application/json")  # fmt: skip
    return b"".join(parts)


def _malformed(operation: Operation[Any], error: Exception) -> HttpProblemError:
    where = "query" if operation.method == "GET" else "body"
    return http_problem(
        400,
        "malformed",
        f"the {where} is not what {operation.method} {operation.path} asks for: {error}",
        "GET /openapi.json describes it",
    )
