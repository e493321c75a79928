"""One operation of the HTTP API: the description from which routing, validation and OpenAPI are derived."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import cleandoc
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar, get_args, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..config import Config
from ..config.model import Change
from ..core.bus import Hub
from ..core.control import Control
from ..core.store import Store
from ..monitor.finding_tracker import FindingTracker
from ..session.query.worker import QueryWorkerClient
from .problems import http_problem
from .tokens import AccessScope
from .uploads import Uploads

#: Responses of /metrics sent at a time; further ones wait. One of a large fleet takes 30 MB.
MAX_SCRAPES: Final = 4
#: Seconds between two checks of a condition of the store.
_POLL_S: Final = 0.1

P = TypeVar("P", bound=msgspec.Struct)
Method = Literal["GET", "POST", "DELETE"]


class Scrapes(msgspec.Struct):
    """Latest text of /metrics by format, with its monotonic time, and the locks to build and send it."""

    texts: dict[str, tuple[float, list[bytes]]] = msgspec.field(default_factory=dict)
    making: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    sending: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(MAX_SCRAPES))


class WebContext(msgspec.Struct):
    """The running console that operations work with. The locks serialise what two clients must not do at once."""

    config: Config
    hub: Hub
    store: Store
    control: Control
    findings: FindingTracker
    sessions: Path  # folder of recordings
    capturing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    starting: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    reading: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)  # output of jobs
    querying: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    queries: QueryWorkerClient = msgspec.field(default_factory=QueryWorkerClient)  # its process is kept
    uploads: Uploads = msgspec.field(default_factory=Uploads)
    scrapes: Scrapes = msgspec.field(default_factory=Scrapes)
    streams: int = 0  # open event streams
    closing: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until a condition of the store holds; False if it does not within `deadline_s`."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > deadline_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def permit(self, change: Change) -> None:
        """Raises HttpProblemError (403) where `[console] read_only` forbids a change of what runs on the nodes."""
        refusal = self.control.refusal(change)
        if refusal is not None:
            raise http_problem(
                403, refusal.name, f"{change.words} changes what runs on the nodes, and this server is read-only",
                "gconsole api --allow-run, or console.read_only = false",
            )  # fmt: skip


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class OperationRequest(msgspec.Struct, Generic[P], frozen=True):
    """One validated request: the path parameter ("" where the path has none), and query or body."""

    name: str
    parameters: P


Handler = Callable[[WebContext, OperationRequest[P]], Awaitable[Any]]
StreamHandler = Callable[[WebContext, Request], Awaitable[Response]]
UploadHandler = Callable[[WebContext, Request, P], Awaitable[Any]]


class Operation(msgspec.Struct, Generic[P], frozen=True):
    """An operation with a JSON response.

    `parameters` is the type of the query of a GET and of the body of other methods, `name_pattern` the regular
    expression of the path parameter, `problems` the statuses beyond those that every operation may have, `scope` what a
    token must permit.
    """

    method: Method
    path: str
    summary: str
    handler: Handler[P]
    parameters: type[P]
    response: Any
    name_pattern: str = ""
    status: int = 200
    problems: tuple[int, ...] = ()
    scope: AccessScope = "run"


class StreamOperation(msgspec.Struct, frozen=True):
    """A GET whose response is not JSON of a record: an event stream, Prometheus text, a page."""

    method: ClassVar[Method] = "GET"
    name_pattern: ClassVar[str] = ""

    path: str
    summary: str
    handler: StreamHandler
    media: tuple[str, ...]
    parameters: type[msgspec.Struct] = NoParameters
    problems: tuple[int, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # request headers with a meaning: name, description
    allows_basic_auth: bool = False  # a browser may send the token as the password of HTTP Basic
    scope: AccessScope = "read"


class UploadOperation(msgspec.Struct, Generic[P], frozen=True):
    """A POST whose body is a file of one of the types `media`, which its handler reads; the response is JSON.

    `parameters` is the type of the query.
    """

    method: ClassVar[Method] = "POST"
    name_pattern: ClassVar[str] = ""

    path: str
    summary: str
    handler: UploadHandler[P]
    media: tuple[str, ...]
    parameters: type[P]
    response: Any
    status: int = 201
    problems: tuple[int, ...] = ()
    scope: AccessScope = "run"


AnyOperation = Operation[Any] | StreamOperation | UploadOperation[Any]


def operation(method: Method, path: str, **options: Any) -> Callable[[Handler[P]], Operation[P]]:
    """Decorator that makes a handler an Operation: summary from its docstring, types from its annotations."""

    def decorate(handler: Handler[P]) -> Operation[P]:
        hints = get_type_hints(handler)
        (parameters,) = get_args(hints["request"])
        options.setdefault("scope", "read" if method == "GET" else "run")
        return Operation(method, path, cleandoc(handler.__doc__ or ""), handler, parameters, hints["return"], **options)

    return decorate


def stream(path: str, *media: str, **options: Any) -> Callable[[StreamHandler], StreamOperation]:
    """Decorator that makes a handler a StreamOperation with these content types, its summary from its docstring."""
    return lambda handler: StreamOperation(path, cleandoc(handler.__doc__ or ""), handler, media, **options)


def upload(
    path: str, *media: str, parameters: type[P], **options: Any
) -> Callable[[UploadHandler[P]], UploadOperation[P]]:
    """Decorator that makes a handler an UploadOperation with these content types."""

    def decorate(handler: UploadHandler[P]) -> UploadOperation[P]:
        response = get_type_hints(handler)["return"]
        return UploadOperation(path, cleandoc(handler.__doc__ or ""), handler, media, parameters, response, **options)

    return decorate
