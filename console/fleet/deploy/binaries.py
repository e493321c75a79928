"""The two binaries that nodes may need, per architecture: psutil's extension and py-spy.

They come from this installation for its own architecture, and from wheels in the console's cache (`gconsole bundle`
fetches them, also for sites without internet) for any other.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import lzma
import platform
import sys
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import platformdirs

from ...text.atomic_files import make_folder, write_atomically

PSUTIL, PY_SPY = "psutil", "py-spy"
#: Architectures of nodes, as `uname -m` names them.
ARCHES = ("x86_64", "aarch64")
_INSIDE_WHEEL = {PSUTIL: "psutil/_psutil_linux.abi3.so", PY_SPY: "/py-spy"}


def wheel_dir() -> Path:
    """Where `gconsole bundle` keeps wheels for nodes."""
    return platformdirs.user_cache_path("gconsole") / "wheels"


class Unreadable(Exception):
    """A file that should hold a binary does not; the text says which and why."""


@dataclass(frozen=True)
class Binary:
    """One binary for one architecture, read from a file of this installation or from a wheel."""

    name: str
    arch: str
    source: Path  # the file itself, or the wheel that holds it

    @cached_property
    def content(self) -> bytes:
        """Raises Unreadable."""
        try:
            if self.source.suffix != ".whl":
                return self.source.read_bytes()
            with zipfile.ZipFile(self.source) as wheel:
                inside = [name for name in wheel.namelist() if name.endswith(_INSIDE_WHEEL[self.name])]
                return wheel.read(inside[0])
        except (OSError, zipfile.BadZipFile, zlib.error, IndexError) as error:
            raise Unreadable(f"{self.source} cannot be used: {error}; remove it and run gconsole bundle") from error

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def packed(self, encoding: str) -> bytes:
        """The content as it travels: "xz", or "zlib" for a node whose Python has no lzma. Raises Unreadable."""
        if encoding == "zlib":
            return zlib.compress(self.content, 6)
        kept = platformdirs.user_cache_path("gconsole") / "packed" / f"{self.digest}.xz"
        with contextlib.suppress(OSError):
            return kept.read_bytes()
        # a dictionary of 1 MiB: the node's decoder needs as much memory as that, and no more
        packed = lzma.compress(self.content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 4, "dict_size": 1 << 20}])
        with contextlib.suppress(OSError):  # a full or read-only home costs two seconds at every start, nothing else
            make_folder(kept.parent)
            write_atomically(kept, packed)
        return packed


class Binaries:
    """What this console can send: {name: {arch: Asset}}, found without reading the binaries."""

    def __init__(self) -> None:
        self._found = {(a.name, a.arch): a for a in [*_from_wheels(wheel_dir()), *_installed()]}

    def get(self, name: str, arch: str) -> Binary | None:
        return self._found.get((name, arch))

    def offer(self, name: str) -> dict[str, str]:
        """{arch: sha256} of one binary, for the start frame; a source that cannot be read is none."""
        offered = {}
        for (known, arch), asset in self._found.items():
            if known == name:
                with contextlib.suppress(Unreadable):
                    offered[arch] = asset.digest
        return offered


def _installed() -> list[Binary]:
    """The binaries of this very installation, where this machine could be a node itself."""
    arch = platform.machine()
    if sys.platform != "linux" or arch not in ARCHES:
        return []
    found = []
    for name in (PSUTIL, PY_SPY):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            path = Path(str(file.locate()))
            if f"/{path.as_posix()}".endswith(f"/{_INSIDE_WHEEL[name].lstrip('/')}") and path.is_file():
                found.append(Binary(name, arch, path))
    return found


def _from_wheels(folder: Path) -> list[Binary]:
    """Binaries in cached wheels of exactly the versions this installation has."""
    found = []
    for name in (PSUTIL, PY_SPY):
        for arch in ARCHES:
            found += [Binary(name, arch, path) for path in wheels(folder, name, arch)]
    return found


def wheels(folder: Path, name: str, arch: str) -> list[Path]:
    """Wheels of a binary for an architecture, of the version this installation has, for glibc and any CPython."""
    pattern = f"{name.replace('-', '_')}-{importlib.metadata.version(name)}-*manylinux*{arch}*.whl"
    return [path for path in sorted(folder.glob(pattern)) if "-abi3-" in path.name or "-none-" in path.name]
