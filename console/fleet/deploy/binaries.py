"""Binaries that nodes may need, per architecture: py-spy.

From this installation for its own architecture; for others from wheels in the console's cache (`gconsole bundle`
fetches them, also for sites without internet).
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import platform
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from ...text.atomic_files import make_folder, write_atomically

PY_SPY = "py-spy"
#: Architectures of nodes, as `uname -m` names them.
ARCHES = ("x86_64", "aarch64")
_INSIDE_WHEEL = {PY_SPY: "/py-spy"}


def wheel_dir() -> Path:
    """Where `gconsole bundle` stores wheels for nodes."""
    return platformdirs.user_cache_path("gconsole") / "wheels"


#: SHA-256 of the binaries in the wheels of this release, by name, version and architecture.
_PINNED: Final = {
    (PY_SPY, "0.4.3", "x86_64"): "a41205d4925beafd108e1ace85e66c0a1a7adbfcbebcd4441f07848b608886c0",
    (PY_SPY, "0.4.3", "aarch64"): "ad6e22882e8dcaced4f0a76fef10d372645cc7b94c48a289ebe1bedb754774ed",
}
#: Bytes of a binary at most; one of py-spy has 8 MB.
_MOST_BYTES: Final = 64 << 20
#: The beginning of a 64-bit ELF file, and e_machine by architecture (elf.h).
_ELF64: Final = b"\x7fELF\x02"
_MACHINES: Final = {"x86_64": b"\x3e\0", "aarch64": b"\xb7\0"}


class UnreadableBinary(Exception):
    """A file does not contain the expected binary; the text names it and the reason."""


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
            data = self._read()
        except (OSError, zlib.error, IndexError) as error:
            raise UnreadableBinary(f"cannot read {self.source}: {error}; remove it and run gconsole bundle") from error
        if self.source.suffix == ".whl":
            self._check_pinned(data)
        elif data[:5] != _ELF64 or data[18:20] != _MACHINES[self.arch]:
            raise UnreadableBinary(f"{self.source}: {self.name} in it is not a program for {self.arch}; remove it")
        return data

    def _read(self) -> bytes:
        if self.source.suffix != ".whl":
            return self.source.read_bytes()
        import zipfile  # with importlib.metadata, 6 ms of each start: most commands send no binary

        try:
            with zipfile.ZipFile(self.source) as wheel:
                inside = [name for name in wheel.namelist() if name.endswith(_INSIDE_WHEEL[self.name])]
                with wheel.open(inside[0]) as file:
                    return file.read(_MOST_BYTES)
        except zipfile.BadZipFile as error:
            raise OSError(str(error)) from error

    def _check_pinned(self, data: bytes) -> None:
        pinned = _PINNED.get((self.name, _installed_version(self.name), self.arch))
        if hashlib.sha256(data).hexdigest() != pinned:
            text = f"the SHA-256 of {self.name} in it is not that of this release; remove it and run gconsole bundle"
            raise UnreadableBinary(f"{self.source}: {text}")

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
    from importlib.metadata import PackageNotFoundError, files  # as zipfile above

    binaries = []
    for name in (PY_SPY,):
        try:
            paths = files(name) or []
        except PackageNotFoundError:
            continue
        for file in paths:
            path = Path(str(file.locate()))
            if f"/{path.as_posix()}".endswith(f"/{_INSIDE_WHEEL[name].lstrip('/')}") and path.is_file():
                binaries.append(Binary(name, arch, path))
    return binaries


def _installed_version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


def _from_wheels(folder: Path) -> list[Binary]:
    """Binaries in cached wheels of the installed versions."""
    binaries = []
    for name in (PY_SPY,):
        for arch in ARCHES:
            binaries += [Binary(name, arch, path) for path in wheels(folder, name, arch)]
    return binaries


def wheels(folder: Path, name: str, arch: str) -> list[Path]:
    """Cached wheels of the installed version of a binary, for glibc and any CPython."""
    pattern = f"{name.replace('-', '_')}-{_installed_version(name)}-*manylinux*{arch}*.whl"
    return [path for path in sorted(folder.glob(pattern)) if "-abi3-" in path.name or "-none-" in path.name]


#: Platform tags of the wheels that run on any glibc of the last ten years, newest names first.
_PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1", "manylinux_2_28")
_TIMEOUT_S = 300.0


class WheelhouseError(Exception):
    """pip could not find or fetch a wheel; the text names it, with pip's last line."""


def fill(source: Path | None) -> None:
    """Fetch missing wheels from the package index or a folder. Raises WheelhouseError."""
    folder = wheel_dir()
    make_folder(folder)
    for arch in ARCHES:
        for name in (PY_SPY,):
            if not any(_is_whole(Binary(name, arch, path)) for path in wheels(folder, name, arch)):
                _fetch(name, arch, folder, source)


class CachedBinary(msgspec.Struct, frozen=True):
    """A binary for nodes of one architecture."""

    name: str
    version: str
    arch: str
    source: str | None  # file; null if there is none
    problem: str | None  # why it cannot be used

    @property
    def line(self) -> str:
        """Version, architecture, and source or problem."""
        glyph = "◌" if self.source is None else "●" if self.problem is None else "✖"
        return f"{glyph} {self.name} {self.version} {self.arch}  {self.problem or self.source}"


def cached() -> tuple[CachedBinary, ...]:
    """Every binary that nodes may need, whether it is here or not."""
    binaries = Binaries()
    return tuple(_cached(name, arch, binaries.get(name, arch)) for name in (PY_SPY,) for arch in ARCHES)


def _cached(name: str, arch: str, binary: Binary | None) -> CachedBinary:
    version = _installed_version(name)
    if binary is None:
        return CachedBinary(name, version, arch, None, "missing; gconsole bundle")
    try:
        problem = None if binary.content else f"{binary.source} is empty"
    except UnreadableBinary as error:
        problem = str(error)
    return CachedBinary(name, version, arch, str(binary.source), problem)


def _is_whole(binary: Binary) -> bool:
    try:
        return bool(binary.content)
    except UnreadableBinary:
        return False


def _fetch(name: str, arch: str, folder: Path, source: Path | None) -> None:
    wanted = f"{name}=={_installed_version(name)}"
    origin = ["--no-index", "--find-links", str(source)] if source else []
    platforms = [word for tag in _PLATFORMS for word in ("--platform", f"{tag}_{arch}")]
    with tempfile.TemporaryDirectory() as scratch:
        argv = [
            sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
            "--implementation", "cp", "--python-version", "3.11", "--abi", "abi3", "--abi", "none",
            *platforms, *origin, "--dest", scratch, wanted,
        ]  # fmt: skip
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WheelhouseError(f"pip could not fetch {wanted} for {arch}: {error}") from error
        fetched = list(Path(scratch).glob("*.whl"))
        if done.returncode or not fetched:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no error message"]
            raise WheelhouseError(f"pip could not fetch {wanted} for {arch}: {last[0]}")
        write_atomically(folder / fetched[0].name, fetched[0].read_bytes())
