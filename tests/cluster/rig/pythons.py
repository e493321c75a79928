"""Interpreters on this machine, and the PATH folder that determines `python3` on a node."""

import os
import shutil
import sys
from pathlib import Path

from .detect import RigUnavailable

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Output of Python 2.7 for a Python 3 program, for machines without such an interpreter.
_FAKE_OLD_PYTHON = """#!/bin/sh
case "$1" in
-V|--version) echo "Python 2.7.18" >&2; exit 0 ;;
esac
echo 'Unknown option: -I' >&2
echo 'usage: python [option] ... [-c cmd | -m mod | file | -] [arg] ...' >&2
exit 2
"""


def pyenv_versions() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def own_python() -> Path:
    """The base interpreter, outside any virtual environment: nodes have none of our packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidate = Path(sys.base_prefix, "bin", version)
    return candidate if candidate.exists() else Path(os.path.realpath(sys.executable))


def package_folders() -> list[Path]:
    """The site-packages of `own_python`, whose .pth files run at each start; none if they belong to the system."""
    if Path(sys.base_prefix) == Path("/usr"):
        return []
    return [path.resolve() for path in Path(sys.base_prefix, "lib").glob("python3*/site-packages")]


def find_python(version: str) -> Path:
    """An interpreter of this version ("3.6"), from pyenv or PATH; RigUnavailable if there is none."""
    for home in sorted(pyenv_versions().glob(f"{version}*")):
        candidate = home / "bin" / f"python{version}"
        if home.name.startswith(f"{version}.") and candidate.exists():
            return candidate
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(folder) / f"python{version}"
        # A pyenv shim may exist for removed versions, and needs pyenv's own PATH.
        if candidate.exists() and candidate.parent.name != "shims":
            return candidate
    raise RigUnavailable(f"no Python {version} on this machine")


def fill_bin(folder: Path, python: Path | str) -> None:
    """Put a `python3` into `folder`: a path, a version, "old" (2.7) or "none" (everything but Python)."""
    folder.mkdir()
    if python == "none":
        _link_everything_but_python(folder)
    elif python == "old":
        _put_old_python(folder / "python3")
    else:
        target = python if isinstance(python, Path) else find_python(python)
        (folder / "python3").symlink_to(target)


def search_path(inside: str, python: Path | str) -> str:
    """The PATH of a node whose bin folder is `inside`."""
    return inside if python == "none" else os.pathsep.join((inside, *SYSTEM_PATH))


def _put_old_python(place: Path) -> None:
    try:
        place.symlink_to(find_python("2.7"))
    except RigUnavailable:
        place.write_text(_FAKE_OLD_PYTHON)
        place.chmod(0o755)


def _link_everything_but_python(folder: Path) -> None:
    for source in SYSTEM_PATH:
        for program in Path(source).glob("*"):
            link = folder / program.name
            if not program.name.startswith(("python", "pypy", "pydoc")) and not link.is_symlink():
                link.symlink_to(program)


def visible_prefixes() -> list[Path]:
    """Folders that stay visible on a node with its own home and /tmp: interpreters and this checkout."""
    paths = [Path(sys.prefix), Path(sys.base_prefix), pyenv_versions(), Path(__file__).resolve().parents[3]]
    torch_python = os.environ.get("GCONSOLE_TEST_TORCH_PYTHON")
    if torch_python:
        paths += [Path(torch_python).parents[1], Path(os.path.realpath(torch_python)).parents[1]]
    if shutil.which("python3"):
        paths.append(Path(os.path.realpath(shutil.which("python3"))).parents[1])
    return [path for path in dict.fromkeys(path.resolve() for path in paths) if path.is_dir() and path != Path("/usr")]
