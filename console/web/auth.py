"""Request authentication of both servers, `gconsole api` and `gconsole serve`: token, Host and Origin checks.

A port on 127.0.0.1 can be reached by every user of the machine, and by every page that is open in a browser on it. A
page elsewhere whose name was made to resolve to 127.0.0.1 (DNS rebinding) is rejected by its Host header, one that
sends cross-origin requests by its Origin header; and neither of them has the token.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..text.secrets import HIDDEN
from .problems import http_problem
from .tokens import ApiToken, matching

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")


class TokenAuth(msgspec.Struct, frozen=True):
    """Checks the head of a request.

    `names` are the allowed names in Host, lower case, `*.` in front for all below. `addresses` are the IP addresses
    allowed beside: "none"; "loopback"; or "any", because no other site's name is in an address. `in_path`: the token is
    the first part of the path, for pages and websockets, to which a browser adds no Authorization header.
    """

    tokens: tuple[ApiToken, ...]
    names: frozenset[str]
    addresses: Literal["none", "loopback", "any"] = "loopback"
    scheme: str = "http"
    in_path: bool = False
    origins: frozenset[str] = frozenset()  # other sites whose pages may send requests, which need a token all the same

    def check(
        self, headers: Mapping[str, str], path: str = "/", *, basic: bool = False, is_websocket: bool = False
    ) -> ApiToken:
        """Return the token of a request. `basic`: it may be the password of HTTP Basic.

        Raises HttpProblemError for a request to reject.
        """
        host = headers.get("host", "")
        if not self._is_own_name(host):
            raise http_problem(403, "foreign_name", "Host header does not name this server",
                          "use the address that gconsole printed")  # fmt: skip
        origin = headers.get("origin")
        if origin is None and is_websocket:
            raise http_problem(403, "foreign_site", "websocket request without Origin header",
                          "open the address that gconsole printed in a browser")  # fmt: skip
        is_own = origin is not None and origin.lower() == f"{self.scheme}://{host}".lower()
        if origin is not None and not is_own and not self.allows(origin):
            raise http_problem(403, "foreign_site", "cross-origin request rejected",
                          "use the address that gconsole printed; a proxy must keep Host and Origin")  # fmt: skip
        if self.in_path:
            token = matching(self.tokens, path.split("/", 2)[1] if path.startswith("/") else "")
            if token is None:
                raise http_problem(403, "no_token", "missing or invalid token", "use the address that gconsole printed")
            return token
        token = matching(self.tokens, _given_token(headers.get("authorization", ""), basic))
        if token is None or token.is_expired():
            challenge = 'Bearer realm="gconsole"' + (', Basic realm="gconsole"' if basic else "")
            text = "missing or invalid token" if token is None else f"token {token.name} has expired"
            raise http_problem(401, "no_token", text,
                          "send the header Authorization: Bearer TOKEN; gconsole api printed the token or its file",
                          WWW_Authenticate=challenge)  # fmt: skip
        return token

    def allows(self, origin: str) -> bool:
        """Whether pages of another site may send requests."""
        return origin.lower() in self.origins

    def check_preflight(self, headers: Mapping[str, str]) -> bool:
        """Whether these are the headers of a preflight of such a site. Raises HttpProblemError for a foreign Host."""
        if "access-control-request-method" not in headers or not self.allows(headers.get("origin", "")):
            return False
        if not self._is_own_name(headers.get("host", "")):
            raise http_problem(403, "foreign_name", "Host header does not name this server",
                          "use the address that gconsole printed")  # fmt: skip
        return True

    def without_token(self, path: str) -> str:
        """A request's path for the log: the part that is or should be the token is replaced by ***."""
        shown = f"/{HIDDEN}/{path.lstrip('/').partition('/')[2]}" if self.in_path else path
        for token in self.tokens:
            shown = shown.replace(token.value, HIDDEN)
        return shown

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
