"""Access tokens of `gconsole api`: what a client may do, until when, and the file that lists them."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from ..text.atomic_files import write_new
from ..text.secrets import HIDDEN

#: What a token permits; each scope includes those before it. metrics: /metrics. read: everything that the console
#: knows. capture: stack samples and recordings. run: jobs and nodes, where `[console] read_only` permits it.
AccessScope = Literal["metrics", "read", "capture", "run"]
SCOPES: Final[tuple[AccessScope, ...]] = get_args(AccessScope)
#: Bytes of randomness, as in an ed25519 key.
_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")  # RFC 6750, with a length that cannot be guessed
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Bytes and tokens of a file.
_MAX_FILE: Final = 64 << 10
_MAX_TOKENS: Final = 256


class TokenError(ValueError):
    """The file has no usable token; the text is one line that names the remedy."""


class ApiToken(msgspec.Struct, frozen=True):
    """One token. `name` identifies its holder in the audit log; `expires_s` is in seconds since the epoch."""

    value: str
    name: str = "token"
    scope: AccessScope = "run"
    expires_s: float | None = None

    def permits(self, scope: AccessScope) -> bool:
        """Whether requests that need `scope` are permitted."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_s is not None and time.time() >= self.expires_s

    def __repr__(self) -> str:
        return f"ApiToken({self.name!r}, {self.scope!r}, {HIDDEN})"


def matching(tokens: Sequence[ApiToken], given: str) -> ApiToken | None:
    """The token with this value, found in a time that does not depend on the values; None if there is none."""
    data, match = given.encode(errors="replace"), None
    for token in tokens:
        if hmac.compare_digest(data, token.value.encode()):
            match = token
    return match


def new_token() -> str:
    """The value of a new token, at random."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def tokens_of(path: Path) -> tuple[ApiToken, ...]:
    """The tokens in a file; created with one of scope `run` and mode 0600 if the file is missing.

    One a line: `TOKEN [NAME [SCOPE [EXPIRY]]]`, the expiry as ISO 8601, in local time unless it has an offset. Lines
    that begin with # are comments. Raises TokenError for a file that others may read, that has another owner, or with
    an invalid line; OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        token = ApiToken(new_token())
        write_new(path, token.value.encode() + b"\n")
        return (token,)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TokenError(f"{path} is not a regular file")
        if status.st_uid != os.getuid():
            raise TokenError(f"{path} is owned by another user")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise TokenError(f"{path} may be read by others; try: chmod 600 {path}")
        lines = file.read(_MAX_FILE).decode(errors="replace").splitlines()
    tokens = [
        _parsed(line.split(), f"{path}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not 0 < len(tokens) <= _MAX_TOKENS:
        raise TokenError(f"{path} does not contain a token: at least 16 letters and digits on one line")
    for field in ("value", "name"):
        if len({getattr(token, field) for token in tokens}) < len(tokens):
            raise TokenError(f"{path}: two tokens have the same {field}; give each token a {field} of its own")
    return tuple(tokens)


def _parsed(words: list[str], where: str) -> ApiToken:
    """The token of one line. Raises TokenError."""
    value, name, scope, expiry, *rest = *words, *("token", "run", "")[len(words) - 1 :]
    if rest or _TOKEN.fullmatch(value) is None:
        raise TokenError(f"{where} does not contain a token: at least 16 letters and digits, then NAME SCOPE EXPIRY")
    if _NAME.fullmatch(name) is None:
        raise TokenError(f"{where}: {name!r} is not a name; use letters, digits, dots and hyphens")
    if scope not in SCOPES:
        raise TokenError(f"{where}: {scope!r} is not a scope; use {', '.join(SCOPES)}")
    try:
        expires_s = datetime.fromisoformat(expiry).timestamp() if expiry else None
    except (ValueError, OverflowError):
        raise TokenError(f"{where}: {expiry!r} is not an instant; use 2027-01-31 or 2027-01-31T14:00:00Z") from None
    return ApiToken(value, name, scope, expires_s)
