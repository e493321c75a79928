"""Why a request got no answer: one form for all of them, what happened and what to try."""

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
    nodes: dict[str, Failure] = {}  # what each node said, where several were asked
    left_out: tuple[tuple[str, str], ...] = ()  # of a job that cannot start: nodes, and why they were left out
    change: tuple[str, ...] = ()  # and what to ask for instead


class HttpProblemError(Exception):
    """Ends a request with this problem."""

    def __init__(self, problem: HttpProblem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.text)
        self.problem, self.headers = problem, dict(headers or {})


def http_problem(status: int, name: str, text: str, try_: str = "", **headers: str) -> HttpProblemError:
    """A problem without further particulars; `headers` with _ for -."""
    told = {key.replace("_", "-"): value for key, value in headers.items()}
    return HttpProblemError(HttpProblem(status=status, name=name, text=text, try_=try_), told)


#: Every problem by its status, as the description tells of them.
MEANINGS: dict[int, str] = {
    400: "malformed request",
    401: "missing or invalid token",
    403: "this is not allowed here: another site, another name of this machine, or read only",
    404: "not found",
    405: "method not allowed",
    408: "request timeout",
    409: "not now: the text says what stands in the way",
    413: "the request is too large",
    415: "a body must be JSON",
    429: "too many requests; retry after Retry-After seconds",
    500: "an error in gconsole itself",
    503: "too many requests are being answered, or the server is ending",
}
