"""Authentication, rate limit and listening address of `gconsole api`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, cast

import pytest

from gconsole.web.auth import TokenAuth
from gconsole.web.middleware import RateLimit, RequestMiddleware
from gconsole.web.problems import HttpProblemError
from gconsole.web.server import ListenError, listen_at
from gconsole.web.tokens import ApiToken, TokenError, new_token, tokens_of

TOKEN = "a-token-that-nobody-guesses"
HERE = TokenAuth((ApiToken(TOKEN),), frozenset({"localhost"}), addresses="loopback")
OUTSIDE = TokenAuth(
    (ApiToken(TOKEN),), frozenset({"localhost", "head.example", "*.pod.example"}), addresses="any", scheme="https"
)


def status_of(auth: TokenAuth, host: str, basic: bool = False, **headers: str) -> int:
    given = {"host": host, "authorization": f"Bearer {TOKEN}", **headers}
    try:
        auth.check(given, basic=basic)
    except HttpProblemError as error:
        return error.problem.status
    return 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8091", "127.0.0.1:1", "127.0.0.2", "[::1]:80", "localhost."])
def test_loopback_names_and_addresses_are_accepted(host: str) -> None:
    assert status_of(HERE, host) == 200


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "192.0.2.1", "localhost:1:2", "a@b",
                                  "127.0.0.1, evil.example", "[::1", "[fe80::1]", "localhost\n", "0x7f.1"])  # fmt: skip
def test_other_host_headers_are_rejected_on_a_loopback_listener(host: str) -> None:
    assert status_of(HERE, host) == 403


def test_public_listener_accepts_any_address_and_only_certificate_names() -> None:
    for host in ("192.0.2.1:8091", "head.example", "a.pod.example"):
        assert status_of(OUTSIDE, host) == 200
    for host in ("pod.example", "a.b.pod.example", "evil.example"):
        assert status_of(OUTSIDE, host) == 403


def test_same_origin_request_is_accepted_and_other_origins_are_rejected() -> None:
    assert status_of(HERE, "localhost:1", origin="http://localhost:1") == 200
    for origin in ("http://localhost:2", "https://localhost:1", "null", "http://evil.example"):
        assert status_of(HERE, "localhost:1", origin=origin) == 403


@pytest.mark.parametrize("text", ["", "Bearer", "Bearer ", "Basic x", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN,
                                  f"Digest {TOKEN}", "Bearer \xe9\xe9", "Basic bm9ib2R5Ondyb25n"])  # fmt: skip
def test_invalid_credentials_are_rejected_with_401(text: str) -> None:
    assert status_of(HERE, "localhost", basic=True, authorization=text) == 401


def test_basic_auth_is_accepted_only_where_it_is_enabled() -> None:
    text = "Basic YW55Ym9keTphLXRva2VuLXRoYXQtbm9ib2R5LWd1ZXNzZXM="
    assert status_of(HERE, "localhost", basic=True, authorization=text) == 200
    assert status_of(HERE, "localhost", authorization=text) == 401


def test_rate_limit_allows_a_burst_and_then_applies_per_address() -> None:
    now = [100.0]
    rate = RateLimit(10.0, lambda: now[0])
    assert [rate.wait_s("a") for _ in range(20)] == [0.0] * 20
    assert rate.wait_s("a") == pytest.approx(0.1)
    assert rate.wait_s("b") == 0.0
    now[0] += 0.35
    assert [rate.wait_s("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_rate_limiter_bounds_the_number_of_tracked_addresses() -> None:
    rate = RateLimit(1.0, lambda: 0.0)
    for number in range(5000):
        rate.wait_s(str(number))
    assert len(rate._buckets) <= 1024


@pytest.mark.parametrize("text", ["127.0.0.1:0", "localhost:8091", "[::1]:65535", "127.9.9.9:1"])
def test_loopback_listen_address_is_accepted_without_tls(text: str) -> None:
    assert listen_at(text).is_loopback and listen_at(text).scheme == "http"


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "192.0.2.1:8091", "head:8091", "8091", "127.0.0.1", ":1",
                                  "127.0.0.1:70000", "127.0.0.1:x", ""])  # fmt: skip
def test_non_loopback_or_malformed_listen_address_is_rejected_without_tls(text: str) -> None:
    with pytest.raises(ListenError):
        listen_at(text)


def test_tls_files_belong_together() -> None:
    with pytest.raises(ListenError, match="belong together"):
        listen_at("127.0.0.1:1", Path("cert.pem"))
    assert listen_at("0.0.0.0:1", Path("cert.pem"), Path("key.pem")).scheme == "https"


@pytest.mark.parametrize("path", [f"/{TOKEN}/", f"/{TOKEN}/files/page.js", f"/{TOKEN[:-1]}/socket", f"//{TOKEN}/",
                                  f"/files/{TOKEN}", TOKEN, "/", ""])  # fmt: skip
async def test_token_in_a_path_is_not_logged(caplog: pytest.LogCaptureFixture, path: str,
                                             monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(logging.getLogger("gconsole"), "propagate", True)
    caplog.set_level(logging.DEBUG, "gconsole")
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")], "client": None}

    async def send_nothing(message: object) -> None:
        pass

    async def app(scope: object, receive: object, send: object) -> None:
        pass

    auth = TokenAuth((ApiToken(TOKEN),), frozenset({"localhost"}), in_path=True)
    await RequestMiddleware(app, auth)(scope, cast(Any, None), send_nothing)
    assert "HTTP GET /***/" in caplog.text and TOKEN[:-1] not in caplog.text


def test_token_file_is_created_once_with_mode_0600_and_then_reused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    (token,) = tokens_of(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert tokens_of(path) == (token,) and len(token.value) >= 40 and token.scope == "run"
    assert len({new_token() for _ in range(20)}) == 20


@pytest.mark.parametrize("content", ["", "short", "two words that are long enough", "a" * 600])
def test_malformed_token_file_is_rejected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(TokenError):
        tokens_of(path)


def test_token_file_that_is_readable_by_others_or_not_regular_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens_of(path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for bad in ("link", "pipe"):
        with pytest.raises((TokenError, OSError)):
            tokens_of(tmp_path / bad)
    path.chmod(0o604)
    with pytest.raises(TokenError, match="chmod 600"):
        tokens_of(path)
