"""What an operation is: the one description that serving, checking and describing it are derived from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .context import WebContext

A = TypeVar("A", bound=msgspec.Struct)
Method = Literal["GET", "POST", "DELETE"]


class NoParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No particulars."""


@dataclass(frozen=True)
class OperationRequest(Generic[A]):
    """One request: what stands in the braces of its path ("" where there are none), and what it asks for."""

    name: str
    parameters: A


@dataclass(frozen=True)
class Operation(Generic[A]):
    """`asks` is the query of a GET and the body of others, `answer` what it returns as JSON.

    `name` is the pattern of what may stand in the braces of the path. `problems` are those of its own, beside the ones
    that every operation may have.
    """

    method: Method
    path: str
    words: str
    handler: Callable[[WebContext, OperationRequest[A]], Awaitable[Any]]
    asks: type[A]
    answer: Any
    name: str = ""
    status: int = 200
    problems: tuple[int, ...] = ()


@dataclass(frozen=True)
class StreamOperation:
    """An operation whose answer is no JSON: a stream of events, figures for Prometheus, a page."""

    path: str
    words: str
    handler: Callable[[WebContext, Request], Awaitable[Response]]
    media: tuple[str, ...]
    asks: type[msgspec.Struct] = NoParameters
    problems: tuple[int, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # of the request that it looks at: name, meaning
    is_described: bool = False  # a browser may give the token as the password of HTTP Basic


AnyOperation = Operation[Any] | StreamOperation


def method_of(operation: AnyOperation) -> str:
    """Of what is told, there is nothing but looking."""
    return operation.method if isinstance(operation, Operation) else "GET"
