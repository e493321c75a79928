"""Request authentication of both servers, `gconsole api` and `gconsole serve`: token, Host and Origin checks.

A port on 127.0.0.1 can be reached by every user of the machine, and by every page that is open in a browser on it. A
page elsewhere whose name was made to resolve to 127.0.0.1 (DNS rebinding) is rejected by its Host header, one that
sends cross-origin requests by its Origin header; and neither of them has the token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from ..text.atomic_files import write_new
from ..text.secrets import HIDDEN
from .problems import http_problem

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
#: Bytes of randomness, as in an ed25519 key.
_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")  # RFC 6750, with a length that cannot be guessed


class TokenError(ValueError):
    """The file has no usable token; the text is one line that names the remedy."""


class TokenAuth(msgspec.Struct, frozen=True):
    """Checks the head of a request.

    `names` are the allowed names in Host, lower case, `*.` in front for all below. `addresses` are the IP addresses
    allowed beside: "none"; "loopback"; or "any", because no other site's name is in an address. `in_path`: the token is
    the first part of the path, for pages and websockets, to which a browser adds no Authorization header.
    """

    token: str
    names: frozenset[str]
    addresses: Literal["none", "loopback", "any"] = "loopback"
    scheme: str = "http"
    in_path: bool = False

    def check(
        self, headers: Mapping[str, str], path: str = "/", *, basic: bool = False, is_websocket: bool = False
    ) -> None:
        """Raises HttpProblemError for a request to reject. `basic`: the token may be the password of HTTP Basic."""
        host = headers.get("host", "")
        if not self._is_own_name(host):
            raise http_problem(403, "foreign_name", "Host header does not name this server",
                          "use the address that gconsole printed")  # fmt: skip
        origin = headers.get("origin")
        if origin is None and is_websocket:
            raise http_problem(403, "foreign_site", "websocket request without Origin header",
                          "open the address that gconsole printed in a browser")  # fmt: skip
        if origin is not None and origin.lower() != f"{self.scheme}://{host}".lower():
            raise http_problem(403, "foreign_site", "cross-origin request rejected",
                          "use the address that gconsole printed; a proxy must keep Host and Origin")  # fmt: skip
        if self.in_path:
            if not self._is_token(path.split("/", 2)[1] if path.startswith("/") else ""):
                raise http_problem(403, "no_token", "missing or invalid token", "use the address that gconsole printed")
        elif not self._is_token(_given_token(headers.get("authorization", ""), basic)):
            challenge = 'Bearer realm="gconsole"' + (', Basic realm="gconsole"' if basic else "")
            raise http_problem(401, "no_token", "missing or invalid token",
                          "send the header Authorization: Bearer TOKEN; gconsole api printed the token or its file",
                          WWW_Authenticate=challenge)  # fmt: skip

    def without_token(self, path: str) -> str:
        """A request's path for the log: the part that is or should be the token is replaced by ***."""
        if not self.in_path:
            return path.replace(self.token, HIDDEN)
        rest = path.lstrip("/").partition("/")[2]
        return f"/{HIDDEN}/{rest}".replace(self.token, HIDDEN)

    def _is_own_name(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].lower().rstrip(".")
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return f"*.{name.partition('.')[2]}" in self.names
        return self.addresses == "any" or (self.addresses == "loopback" and address.is_loopback)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())


def _given_token(authorization: str, basic: bool) -> str:
    scheme, _, given = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return given.strip()
        case "basic" if basic:
            return _password(given).strip()
    return ""


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def new_token() -> str:
    """A random token."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_of(path: Path) -> str:
    """The token in a file; created with mode 0600 if the file is missing.

    Raises TokenError for a file that others may read, that has another owner, or without a token; OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        token = new_token()
        write_new(path, token.encode() + b"\n")
        return token
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TokenError(f"{path} is not a regular file")
        if status.st_uid != os.getuid():
            raise TokenError(f"{path} is owned by another user")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise TokenError(f"{path} may be read by others; try: chmod 600 {path}")
        token = file.read(1024).decode(errors="replace").strip()
    if _TOKEN.fullmatch(token) is None:
        raise TokenError(f"{path} does not contain a token: at least 16 letters and digits on one line")
    return token
