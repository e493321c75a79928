"""The package table in docs/architecture.md lists every package and whether it does I/O."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture.md"
#: Folders whose subfolders share one row.
GROUPED = "console/tui/views/"
#: Modules and methods that access files, sockets, processes or a terminal.
MODULES = {
    "asyncssh", "duckdb", "fcntl", "mmap", "pty", "pynvml", "select", "selectors", "shutil", "socket", "subprocess",
    "tempfile", "termios", "uvicorn",
}  # fmt: skip
CALLS = {
    "create_subprocess_exec", "exists", "is_dir", "is_file", "listdir", "mkdir", "read_bytes", "read_text", "readlink",
    "scandir", "unlink", "write_bytes", "write_text",
}  # fmt: skip


def packages() -> dict[str, list[Path]]:
    """Python files by package folder, as named in the table."""
    files: dict[str, list[Path]] = {}
    for top in ("console", "remote"):
        for path in sorted((ROOT / top).rglob("*.py")):
            folder = path.parent.relative_to(ROOT).as_posix() + "/"
            if folder in ("console/", "remote/") or "__pycache__" in folder:
                continue
            if folder.startswith(GROUPED) and folder != GROUPED:
                folder = f"{GROUPED}NAME/"
            files.setdefault(folder, []).append(path)
    return files


def io_rows() -> dict[str, str]:
    """Rows of the page: folder → its I/O column."""
    rows = re.findall(r"^\| `((?:console|remote)/[\w/]+/)` \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {folder: io.strip() for folder, io in rows}


def does_io(path: Path) -> bool:
    """Whether the module imports or calls something that does I/O."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and {name.name.partition(".")[0] for name in node.names} & MODULES:
            return True
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in MODULES:
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "")
            mode = node.args[0] if node.args else None
            opens = name == "open" and isinstance(mode, ast.Constant) and str(mode.value)[:1] in "rwax"
            if name in CALLS or opens or getattr(node.func, "id", "") == "open":
                return True
    return False


def test_every_package_has_a_row_and_every_row_a_package() -> None:
    assert sorted(io_rows()) == sorted(packages())


@pytest.mark.slow
def test_packages_listed_without_io_use_no_file_socket_or_process() -> None:
    named_no = {folder for folder, io in io_rows().items() if io == "no"}
    offenders = {
        folder: [path.name for path in files if does_io(path)]
        for folder, files in packages().items()
        if folder in named_no
    }
    assert {folder: names for folder, names in offenders.items() if names} == {}


def test_packages_listed_with_io_do_io() -> None:
    named = {folder for folder, io in io_rows().items() if io != "no" and "through" not in io}
    idle = [folder for folder, files in packages().items() if folder in named and not any(map(does_io, files))]
    assert idle == []
