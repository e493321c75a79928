"""Request authentication: token, Host and Origin checks.

A port on 127.0.0.1 can be reached by every user of the machine, and by every page that is open in a browser on it. A
page elsewhere that makes its own name point here (DNS rebinding) is found out by the name it asks for, one that sends
requests across by its Origin; and neither of them has the token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .problems import http_problem

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class TokenAuth:
    """Looks at the head of a request. `names` are those of this machine, lower case, `*.` in front for all below.

    Where `loopback`, an address must be one of this very machine; elsewhere any address will do, because no other
    site's name stands in it.
    """

    token: str
    names: frozenset[str]
    loopback: bool
    scheme: str = "http"

    def check(self, headers: Mapping[str, str], *, basic: bool = False) -> None:
        """Raises Refused for who may not come in. `basic`: the token may be the password of HTTP Basic."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise http_problem(403, "foreign_name", "Host header does not name this server",
                          "use the address that gconsole api printed")  # fmt: skip
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{self.scheme}://{host}".lower():
            raise http_problem(403, "foreign_site", "cross-origin request rejected")
        if not self._has_token(headers.get("authorization", ""), basic):
            challenge = 'Bearer realm="gconsole"' + (', Basic realm="gconsole"' if basic else "")
            raise http_problem(401, "no_token", "missing or invalid token",
                          "send the header Authorization: Bearer TOKEN; gconsole api printed the token, or where it is",
                          WWW_Authenticate=challenge)  # fmt: skip

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].lower().rstrip(".")
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in self.names or f"*.{name.partition('.')[2]}" in self.names
        return address.is_loopback or not self.loopback

    def _has_token(self, authorization: str, basic: bool) -> bool:
        scheme, _, given = authorization.partition(" ")
        if basic and scheme.lower() == "basic":
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self.token.encode())


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
