"""Error responses: one form for all of them, with a stable name, what happened and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..records import Failure


class HttpProblem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What happened, and what to try. `name` is stable and short; programs match on it, never on the text."""

    status: int
    name: str
    text: str
    try_: str = msgspec.field(name="try", default="")
    nodes: dict[str, Failure] = {}  # failures by node, where several nodes were involved
    left_out: tuple[tuple[str, str], ...] = ()  # of a job that cannot start: node and reason
    change: tuple[str, ...] = ()  # options with which it could start


class HttpProblemError(Exception):
    """Ends a request with this problem."""

    def __init__(self, problem: HttpProblem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.text)
        self.problem, self.headers = problem, dict(headers or {})


def http_problem(status: int, name: str, text: str, try_: str = "", **headers: str) -> HttpProblemError:
    """A problem without optional fields; `headers` are response headers with _ for -."""
    response_headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return HttpProblemError(HttpProblem(status=status, name=name, text=text, try_=try_), response_headers)


#: Description of every problem in the OpenAPI document, by status.
MEANINGS: dict[int, str] = {
    400: "malformed request",
    401: "missing or invalid token",
    403: "not allowed: cross-origin request, foreign Host header, scope of the token, or read-only server",
    404: "not found",
    405: "method not allowed",
    408: "request timeout",
    409: "conflict with the current state; the text gives the reason",
    413: "request body too large",
    415: "request body is not JSON, or not of a type that is accepted",
    429: "rate limit exceeded; retry after Retry-After seconds",
    500: "internal error in gconsole",
    503: "too many concurrent requests, or the server is stopping",
}
