"""Fills the console's cache with wheels for each node architecture, fetched by pip."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

from ...text.atomic_files import make_folder, write_atomically
from .binaries import ARCHES, PSUTIL, PY_SPY, Binaries, Binary, UnreadableBinary, wheel_dir, wheels

#: Platform tags of the wheels that run on any glibc of the last ten years, newest names first.
_PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1", "manylinux_2_28")
_TIMEOUT_S = 300.0


class WheelhouseError(Exception):
    """pip could not find or fetch a wheel; the text says which, with pip's last line."""


def fill(source: Path | None) -> None:
    """Fetch missing wheels from the package index or a folder. Raises WheelhouseError."""
    folder = wheel_dir()
    make_folder(folder)
    for arch in ARCHES:
        for name in (PSUTIL, PY_SPY):
            if not any(_is_whole(Binary(name, arch, path)) for path in wheels(folder, name, arch)):
                _fetch(name, arch, folder, source)


def describe() -> list[str]:
    """One line per binary: version, architecture, source."""
    binaries = Binaries()
    lines = []
    for name in (PSUTIL, PY_SPY):
        for arch in ARCHES:
            binary = binaries.get(name, arch)
            glyph, where = ("◌", "missing; gconsole bundle") if binary is None else _state(binary)
            lines.append(f"{glyph} {name} {importlib.metadata.version(name)} {arch}  {where}")
    return lines


def _state(binary: Binary) -> tuple[str, str]:
    try:
        return ("●", str(binary.source)) if binary.content else ("✖", f"{binary.source} is empty")
    except UnreadableBinary as error:
        return "✖", str(error)


def _is_whole(binary: Binary) -> bool:
    try:
        return bool(binary.content)
    except UnreadableBinary:
        return False


def _fetch(name: str, arch: str, folder: Path, source: Path | None) -> None:
    wanted = f"{name}=={importlib.metadata.version(name)}"
    origin = ["--no-index", "--find-links", str(source)] if source else []
    platforms = [word for tag in _PLATFORMS for word in ("--platform", f"{tag}_{arch}")]
    with tempfile.TemporaryDirectory() as scratch:
        argv = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
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
