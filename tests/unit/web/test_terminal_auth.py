"""Authentication of `gconsole serve`."""

from __future__ import annotations

import pytest
from textual.app import App

from gconsole.web.problems import HttpProblemError
from gconsole.web.terminal.server import ConsoleServer

AUTH = ConsoleServer(lambda may_act: App(), "x")._auth
TOKEN = AUTH.tokens[0].value
HERE = "127.0.0.1:8000"


def refusal(path: str, host: str | None, origin: str | None, *, is_socket: bool = False) -> str | None:
    """Text of the rejection of such a request; None if it is accepted. `kept-secret` is replaced by the token."""
    headers = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    try:
        AUTH.check(headers, path.replace("kept-secret", TOKEN), is_websocket=is_socket)
    except HttpProblemError as error:
        assert error.problem.status == 403
        return error.problem.text
    return None


def test_server_token_is_long_and_differs_between_servers() -> None:
    tokens = {ConsoleServer(lambda may_act: App(), "x")._auth.tokens[0].value for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 40


@pytest.mark.parametrize("host", [HERE, "localhost:8000", "LOCALHOST:8000", "localhost:9000", "127.0.0.1"])
def test_url_with_the_token_is_accepted_also_through_a_forwarded_port(host: str) -> None:
    assert refusal("/kept-secret/", host, None) is None
    assert refusal("/kept-secret/socket", host, f"http://{host}", is_socket=True) is None


@pytest.mark.parametrize(
    "path", ["/", "", f"/{TOKEN[:-1]}/", "/kept-secret2/", f"/{TOKEN.swapcase()}/", "//kept-secret/",
             "/x/kept-secret/", "/é/", "/%2e"],
    ids=["root", "empty", "shorter", "longer", "other case", "two slashes", "below a folder", "not ASCII", "escaped"]
)  # fmt: skip
def test_path_without_the_exact_token_is_rejected(path: str) -> None:
    assert refusal(path, HERE, None)


@pytest.mark.parametrize(
    "host", [None, "", "evil.example:8000", "127.0.0.1.evil.example:8000", "localhost.evil.example", "127.0.0.2:8000",
             "0.0.0.0:8000", "127.0.0.1@evil.example", "x@127.0.0.1:8000", "127.0.0.1:8000; script-src *",
             "127.0.0.1:8000\n", "[::1", "[::1]:8000"]
)  # fmt: skip
def test_foreign_host_header_is_rejected_even_with_the_token(host: str | None) -> None:
    assert refusal("/kept-secret/", host, None)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "https://127.0.0.1:8000", "http://127.0.0.1:8001",
               "http://localhost:8000"]
)  # fmt: skip
def test_foreign_origin_is_rejected_even_with_the_token(origin: str) -> None:
    assert refusal("/kept-secret/", HERE, origin)
    assert refusal("/kept-secret/socket", HERE, origin, is_socket=True)


def test_websocket_without_an_origin_is_rejected() -> None:
    assert refusal("/kept-secret/socket", HERE, None, is_socket=True)
