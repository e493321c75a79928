"""Who may come in: whoever knows the token, under a name of this very machine, from a page of ours.

A port on 127.0.0.1 can be reached by every user of the machine, and by every web page that is open in a browser on it.
So there is a token that nobody can guess. A page elsewhere that makes its own name point to 127.0.0.1 (DNS rebinding)
is found out by the name it asks for, and one that sends requests across by its Origin.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

#: Names under which a browser reaches this machine and nothing else; any port, for it may be forwarded by ssh -L.
_OWN_NAME: Final = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True)
class TerminalAuth:
    """Says of a request why it may not come in. The token is the first part of every path."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))

    def refusal(self, path: str, host: str | None, origin: str | None, *, is_socket: bool = False) -> str | None:
        """None for who may come in. `host` and `origin` are the headers; a websocket must have both."""
        if host is None or not _OWN_NAME.fullmatch(host):
            return "Host header does not name this machine; use the one that gconsole printed"
        if origin is None and is_socket:
            return "websocket request without Origin header"
        if origin is not None and origin != f"http://{host}":
            return "cross-origin request rejected"
        given = path.split("/", 2)[1] if path.startswith("/") else ""
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return "missing or invalid token; use the address that gconsole printed"
        return None
