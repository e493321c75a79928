"""Secrets that hosts.toml refers to: `env:NAME` or `file:PATH`, a file that only this user may read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Bytes. An URL or a key is far shorter.
_MOST_BYTES: Final = 4096
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")


class SecretError(Exception):
    """A secret that cannot be read; the text names the variable or file, never its content."""


def resolve(text: str, folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The secret that `env:NAME` or `file:PATH` refers to; any other text is returned as it is.

    A relative PATH is relative to `folder`. Raises SecretError.
    """
    kind, _, rest = text.partition(":")
    if kind == "env":
        value, source = environ.get(rest, ""), f"the environment variable {rest}"
        if not value.strip():
            raise SecretError(f"{source} is not set")
    elif kind == "file":
        path = folder / Path(rest).expanduser()
        value, source = _read(path), str(path)
    else:
        return text
    value = value.strip()
    if _PRINTABLE.fullmatch(value) is None or len(value) > _MOST_BYTES:
        raise SecretError(f"{source} must contain one line without spaces")
    return value


def _read(path: Path) -> str:
    """The content of a regular file of this user (or root) with mode 0600 or less."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{path} cannot be read ({error.strerror})") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(f"{path} is not a regular file")
        if status.st_uid not in (os.geteuid(), 0):
            raise SecretError(f"{path} is owned by another user")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SecretError(f"{path} may be read by others; try: chmod 600 {path}")
        return file.read(_MOST_BYTES + 1).decode(errors="replace")
