"""The ASGI application of `gconsole api`: routes each operation, validates its request, encodes its response."""

from __future__ import annotations

import asyncio
import re
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
from ..text import documents, format, logs
from .audit import AuditLog
from .auth import TokenAuth
from .middleware import BODY_S, MAX_BODY, READS_PER_S, RequestMiddleware, problem_response, token_of_request
from .operation import AnyOperation, Operation, OperationRequest, StreamOperation, UploadOperation, WebContext
from .problems import HttpProblemError, http_problem

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    context: WebContext, operations: Sequence[AnyOperation], auth: TokenAuth, reads_per_s: float = READS_PER_S
) -> ASGIApp:
    """The application behind its middleware; `reads_per_s` is the rate limit of one address for GET requests."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = _endpoint(context, operation)
    literal_first = sorted(by_path, key=lambda path: "{" in path)
    routes = [Route(path, _PathEndpoint(by_path[path])) for path in literal_first]

    async def not_found(request: Request, error: Exception) -> Response:
        text = f"{request.url.path} is not a path of this API"
        return problem_response(http_problem(404, "no_such_path", text, "GET / lists all paths"))

    basic_paths = frozenset(
        operation.path
        for operation in operations
        if isinstance(operation, StreamOperation) and operation.allows_basic_auth
    )
    app = Starlette(routes=routes, exception_handlers={HTTPException: not_found})
    return RequestMiddleware(app, auth, reads_per_s, basic_paths, audit=AuditLog(context.hub.publish_own).report)


class _PathEndpoint:
    """The operations of one path, by method."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        endpoint = self._endpoints.get("GET" if request.method == "HEAD" else request.method)
        response = await endpoint(request) if endpoint is not None else self._method_not_allowed(request)
        await response(scope, receive, send)

    def _method_not_allowed(self, request: Request) -> Response:
        allowed = ", ".join(sorted(self._endpoints))
        text = f"{request.method} is not supported by {request.url.path}"
        return problem_response(http_problem(405, "no_such_method", text, f"use {allowed}", Allow=allowed))


def _endpoint(context: WebContext, operation: AnyOperation) -> Endpoint:
    async def respond(request: Request) -> Response:
        try:
            _check_scope(operation, request)
            if isinstance(operation, StreamOperation):
                return await operation.handler(context, request)
            if isinstance(operation, UploadOperation):
                result = await operation.handler(context, request, _upload_query(operation, request))
            else:
                result = await operation.handler(context, await _parse_request(operation, request))
            return Response(documents.encode(result), operation.status, media_type="application/json")
        except HttpProblemError as error:
            return problem_response(error)
        except BadNodeSet as error:
            return problem_response(http_problem(400, "no_node_set", str(error)))
        except ConfigError as error:
            return problem_response(http_problem(400, "configuration", str(error)))
        except SessionError as error:
            return problem_response(http_problem(409, "session", str(error)))
        except ClientDisconnect:
            return Response(status_code=400)  # never sent
        except Exception as error:  # noqa: BLE001 - reported as an internal error; one request must not end the console
            text = f"{request.url.path} failed: {logs.internal_error(error, f'HTTP {request.method}')}"
            context.hub.publish_own(Log(source="console", severity="error", text=text))
            text = f"internal error in gconsole: {type(error).__name__}"
            return problem_response(http_problem(500, "internal", text, f"{logs.details()} (please report)"))

    return respond


def _check_scope(operation: AnyOperation, request: Request) -> None:
    """Raises HttpProblemError if the token of a request does not permit the operation."""
    token = token_of_request(request.scope)
    if not token.permits(operation.scope):
        raise http_problem(
            403, "scope", f"token {token.name} has scope {token.scope}; this needs {operation.scope}",
            "use another token of the token file of gconsole api",
            WWW_Authenticate=f'Bearer realm="gconsole", error="insufficient_scope", scope="{operation.scope}"',
        )  # fmt: skip


# -- requests ----------------------------------------------------------------------------------------------------------


async def _parse_request(operation: Operation[Any], request: Request) -> OperationRequest[Any]:
    """Path parameter with query or body. Raises HttpProblemError."""
    name = next(iter(request.path_params.values()), "")
    if operation.name_pattern and re.search(operation.name_pattern, name) is None:
        listing = operation.path.partition("/{")[0]
        raise http_problem(404, "no_such_name", f"{name[:80]!r} is not a valid name", f"GET {listing} lists them")
    try:
        if operation.method == "GET":
            return OperationRequest(name, query_of(request, operation.parameters))
        values = _with_integers(msgspec.json.decode(await _body(request) or b"{}"))
        return OperationRequest(name, msgspec.convert(values, operation.parameters))
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        part = "query" if operation.method == "GET" else "body"
        text = f"invalid {part} of {operation.method} {operation.path}: {error}"
        raise http_problem(400, "malformed", text, "GET /openapi.json describes it") from error


def _upload_query(operation: UploadOperation[Any], request: Request) -> Any:
    """The query of a request whose body is a file. Raises HttpProblemError, also for a file of another type."""
    if _media_type(request) not in operation.media:
        raise http_problem(415, "no_archive", f"request body has type {_media_type(request) or 'unknown'}",
                           f"send Content-Type: {' or '.join(operation.media)}")  # fmt: skip
    try:
        return query_of(request, operation.parameters)
    except msgspec.ValidationError as error:
        text = f"invalid query of POST {operation.path}: {error}"
        raise http_problem(400, "malformed", text, "GET /openapi.json describes it") from error


def _with_integers(value: Any) -> Any:
    """A JSON value with floats that are whole numbers as integers: JSON has one type of number."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**63:
            return int(value)
        case list():
            return [_with_integers(item) for item in value]
        case dict():
            return {key: _with_integers(item) for key, item in value.items()}
    return value


def query_of(request: Request, kind: type[Any]) -> Any:
    """The query as a record. Raises HttpProblemError, msgspec.ValidationError."""
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise http_problem(400, "malformed", f"duplicate query parameter {name}")
    return msgspec.convert(dict(pairs), kind, strict=False)


async def _body(request: Request) -> bytes:
    """The request body. Raises HttpProblemError if it is too large, too slow, or its type is not JSON."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise http_problem(413, "too_large", f"request body larger than {format.size(MAX_BODY)}")
                parts.append(part)
    except TimeoutError:
        raise http_problem(408, "too_slow", f"request body incomplete after {BODY_S:g} s") from None
    kind = _media_type(request)
    if size and kind != "application/json":
        raise http_problem(415, "no_json", f"request body has type {kind or 'unknown'}, not application/json",
                      "send Content-Type: application/json")  # fmt: skip
    return b"".join(parts)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
