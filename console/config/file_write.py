"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from .model import ConfigError


def create(path: Path, text: str, name: str) -> None:
    """Write a file that is not there yet. Raises ConfigError where it is, or cannot be written."""
    try:
        with path.open("xb") as file:
            file.write(text.encode())
    except FileExistsError:
        raise ConfigError(name, "", "is already there; --force overwrites it") from None
    except OSError as error:
        raise ConfigError(name, "", f"cannot be written ({error.strerror})") from error


def replace(path: Path, text: str, name: str) -> None:
    """Replace a file's contents in one step; its mode and owner stay, and a link stays a link to the replaced file.

    Raises ConfigError, and then the file is as it was.
    """
    target = Path(os.path.realpath(path))
    try:
        if not os.access(target, os.W_OK):
            raise PermissionError(None, "not writable for you")
        before = target.stat()
        descriptor, new = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                with contextlib.suppress(PermissionError):  # only root may give a file away; the mode still holds
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, before.st_mode & 0o7777)
                file.write(text.encode())
                file.flush()
                os.fsync(descriptor)
            Path(new).replace(target)
        except BaseException:
            Path(new).unlink()
            raise
    except OSError as error:
        raise ConfigError(name, "", f"cannot be written ({error.strerror})") from error
