"""Binaries that nodes may need, per architecture: psutil's extension and py-spy.

From this installation for its own architecture; for others from wheels in the console's cache (`gconsole bundle`
fetches them, also for sites without internet).
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
    """Where `gconsole bundle` stores wheels for nodes."""
    return platformdirs.user_cache_path("gconsole") / "wheels"


class UnreadableBinary(Exception):
    """A file does not contain the expected binary; the text says which and why."""


@dataclass(frozen=True)
class Binary:
    """One binary for one architecture, in a file of this installation or in a wheel."""

    name: str
    arch: str
    source: Path  # the file, or the wheel containing it

    @cached_property
    def content(self) -> bytes:
        """The binary's bytes. Raises UnreadableBinary."""
        try:
            if self.source.suffix != ".whl":
                return self.source.read_bytes()
            with zipfile.ZipFile(self.source) as wheel:
                inside = [name for name in wheel.namelist() if name.endswith(_INSIDE_WHEEL[self.name])]
                return wheel.read(inside[0])
        except (OSError, zipfile.BadZipFile, zlib.error, IndexError) as error:
            raise UnreadableBinary(f"cannot read {self.source}: {error}; remove it and run gconsole bundle") from error

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, hex."""
        return hashlib.sha256(self.content).hexdigest()

    def packed(self, encoding: str) -> bytes:
        """The compressed content: "xz", or "zlib" if the node's Python has no lzma. Raises UnreadableBinary."""
        if encoding == "zlib":
            return zlib.compress(self.content, 6)
        cached = platformdirs.user_cache_path("gconsole") / "packed" / f"{self.digest}.xz"
        with contextlib.suppress(OSError):
            return cached.read_bytes()
        # 1 MiB dictionary: bounds the memory of the node's decoder
        packed = lzma.compress(self.content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 4, "dict_size": 1 << 20}])
        with contextlib.suppress(OSError):  # without a writable home only 2 s per start are lost
            make_folder(cached.parent)
            write_atomically(cached, packed)
        return packed


class Binaries:
    """The available binaries by name and architecture, listed without reading them."""

    def __init__(self) -> None:
        self._by_name = {(binary.name, binary.arch): binary for binary in [*_from_wheels(wheel_dir()), *_installed()]}

    def get(self, name: str, arch: str) -> Binary | None:
        """A binary for an architecture, or None."""
        return self._by_name.get((name, arch))

    def offer(self, name: str) -> dict[str, str]:
        """{arch: sha256} of one binary for the start frame, without unreadable ones."""
        offered = {}
        for (known_name, arch), binary in self._by_name.items():
            if known_name == name:
                with contextlib.suppress(UnreadableBinary):
                    offered[arch] = binary.digest
        return offered


def _installed() -> list[Binary]:
    """The binaries of this installation, if this machine could be a node."""
    arch = platform.machine()
    if sys.platform != "linux" or arch not in ARCHES:
        return []
    binaries = []
    for name in (PSUTIL, PY_SPY):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            path = Path(str(file.locate()))
            if f"/{path.as_posix()}".endswith(f"/{_INSIDE_WHEEL[name].lstrip('/')}") and path.is_file():
                binaries.append(Binary(name, arch, path))
    return binaries


def _from_wheels(folder: Path) -> list[Binary]:
    """Binaries in cached wheels of the installed versions."""
    binaries = []
    for name in (PSUTIL, PY_SPY):
        for arch in ARCHES:
            binaries += [Binary(name, arch, path) for path in wheels(folder, name, arch)]
    return binaries


def wheels(folder: Path, name: str, arch: str) -> list[Path]:
    """Cached wheels of the installed version of a binary, for glibc and any CPython."""
    pattern = f"{name.replace('-', '_')}-{importlib.metadata.version(name)}-*manylinux*{arch}*.whl"
    return [path for path in sorted(folder.glob(pattern)) if "-abi3-" in path.name or "-none-" in path.name]
