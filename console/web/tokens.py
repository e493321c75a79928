"""The token that every request carries: made anew, or kept in a file that nobody else can read."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from ..text.atomic_files import write_new

#: As many bytes as an ed25519 key has.
_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")  # what RFC 6750 allows, and nobody guesses


class TokenError(ValueError):
    """The file holds no token that can be used; the text is one line that says what to try."""


def new_token() -> str:
    """A token nobody has."""
    return secrets.token_urlsafe(_BYTES)


def token_of(path: Path) -> str:
    """The token in a file; created with mode 0600 if the file is missing.

    Raises BadToken for a file that others may read, that is not ours, or that holds no token; OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        token = new_token()
        write_new(path, token.encode() + b"\n")
        return token
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise TokenError(f"{path} is not a regular file")
        if about.st_uid != os.getuid():
            raise TokenError(f"{path} is owned by another user")
        if stat.S_IMODE(about.st_mode) & 0o077:
            raise TokenError(f"{path} may be read by others; try: chmod 600 {path}")
        token = file.read(1024).decode(errors="replace").strip()
    if _TOKEN.fullmatch(token) is None:
        raise TokenError(f"{path} holds no token: 16 letters and digits at least, on one line")
    return token
