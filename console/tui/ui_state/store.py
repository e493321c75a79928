"""What a person arranged, kept for the next time: one small file for each cluster in their state folder.

A file that cannot be read is set aside under another name and told once; the console then begins as at first.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

import msgspec
import platformdirs

from ...text import format
from ...text.atomic_files import make_folder, write_atomically
from ...text.json import pretty
from ..models.list_kind import DEFAULT_ARRANGEMENT, Arrangement

#: Everything anybody arranges is a few kilobytes; what is larger was not written by us.
_MOST_BYTES = 1 << 20
#: Longer names of clusters are cut, and told apart by a digest.
_LONGEST_NAME = 100


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one cluster's file holds. Empty is as at first."""

    view: str = ""
    theme: str = ""
    views: dict[str, Arrangement] = {}  # by the view's name; msgspec copies the default

    def of(self, view: str) -> Arrangement:
        return self.views.get(view, DEFAULT_ARRANGEMENT)


class Memory:
    """Reads and writes one file; without a path nothing is remembered."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @classmethod
    def of_cluster(cls, cluster: str) -> Memory:
        """What whoever runs this arranged for that cluster."""
        name = quote(cluster, safe=" ")
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(cluster.encode()).hexdigest()[:12]}"
        return cls(platformdirs.user_state_path("gconsole") / f"{name}.json")

    @property
    def is_kept(self) -> bool:
        """Whether anything is remembered at all."""
        return self._path is not None

    def read(self) -> tuple[Remembered, str]:
        """What was kept last, and what was wrong with it, else ""."""
        if self._path is None:
            return Remembered(), ""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise ValueError(f"larger than {format.size(_MOST_BYTES)}")
            return msgspec.json.decode(data, type=Remembered), ""
        except FileNotFoundError:
            return Remembered(), ""
        except OSError as error:
            return Remembered(), f"{self._path}: cannot be read ({error.strerror or error})"
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return Remembered(), f"{self._path}: {error}; {self._set_aside(self._path)}"

    def _set_aside(self, path: Path) -> str:
        aside = path.with_name(f"{path.name}.broken")
        try:
            path.replace(aside)
        except OSError as error:
            return f"it cannot be set aside either ({error.strerror or error})"
        return f"it is kept as {aside.name}"

    def write(self, remembered: Remembered) -> str:
        """Keep it; why it could not be kept, else ""."""
        if self._path is None:
            return ""
        try:
            make_folder(self._path.parent)
            data = pretty(remembered).encode()
            write_atomically(self._path, data + b"\n")
        except OSError as error:
            return f"{self._path}: cannot be written ({error.strerror or error})"
        return ""

    def forget(self) -> str:
        """Nothing is kept any more; why that could not be, else ""."""
        try:
            if self._path is not None:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"{self._path}: cannot be removed ({error.strerror or error})"
        return ""
