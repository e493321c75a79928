"""The state of the rules on disk, so that a restart does not alert again: one small file per cluster."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from ...text.atomic_files import make_folder, write_atomically
from .alerts import RuleState

#: Bytes. 64 rules with a few thousand incidents.
_MOST_BYTES: Final = 64 << 20


class _State(msgspec.Struct):
    version: int = 1
    rules: dict[str, RuleState] = {}


class StateFile:
    """The file of one target. A file that cannot be read counts as empty; `problem` tells why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._written = b""

    @classmethod
    def of(cls, target: str, folder: Path | None = None) -> StateFile:
        """The file of a target, in the user's state folder."""
        folder = folder or platformdirs.user_state_path("gconsole") / "watch"
        name = hashlib.sha256(target.encode(errors="surrogateescape")).hexdigest()[:16]
        return cls(folder / f"{name}.json")

    def read(self) -> dict[str, RuleState]:
        """The states of the rules by name; empty without a usable file."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                return msgspec.json.decode(file.read(_MOST_BYTES), type=_State).rules
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problem = f"{self.path} cannot be read ({error.strerror}); alerts may be repeated"
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self.problem = f"{self.path} is damaged; alerts may be repeated"
        return {}

    def write(self, rules: dict[str, RuleState]) -> None:
        """Replace the file in one step if its content changes; sets `problem` if that fails."""
        data = msgspec.json.encode(_State(rules=rules))
        if data == self._written:
            return
        try:
            make_folder(self.path.parent)
            write_atomically(self.path, data)
        except OSError as error:
            self.problem = f"{self.path} cannot be written ({error.strerror}); a restart may repeat alerts"
        else:
            self._written, self.problem = data, ""
