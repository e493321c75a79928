"""Symlink attacks in world-writable folders: another user plants a link under the name that is written to."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gconsole.text import atomic_files

SOMEBODY_ELSE = 65_534
WRITERS: dict[str, Callable[[Path], object]] = {
    "whole": lambda path: atomic_files.write_atomically(path, b"ours"),
    "streamed": lambda path: atomic_files.write_streamed(path, lambda out: out.write(b"ours"), replace=True),
    "appended": lambda path: atomic_files.open_truncated(path).close(),
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change a file's owner")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp: world-writable and sticky, owned by a system account."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    if os.geteuid() == 0:
        os.chown(folder, 1, 1)
    return folder


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("precious")
    return file


@needs_root
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_file_writers_do_not_write_through_another_users_symlink(write, shared: Path, precious: Path) -> None:
    link = shared / "report.html"
    link.symlink_to(precious)
    os.lchown(link, SOMEBODY_ELSE, SOMEBODY_ELSE)
    with pytest.raises(OSError):
        write(link)
    assert precious.read_text() == "precious"


@needs_root
def test_own_symlink_to_another_users_symlink_is_not_followed(shared: Path, precious: Path, tmp_path: Path) -> None:
    theirs, ours = shared / "theirs", tmp_path / "ours"
    theirs.symlink_to(precious)
    os.lchown(theirs, SOMEBODY_ELSE, SOMEBODY_ELSE)
    ours.symlink_to(theirs)
    with pytest.raises(PermissionError):
        atomic_files.write_atomically(ours, b"ours")
    assert precious.read_text() == "precious"


def test_hard_link_in_a_shared_folder_is_not_truncated(shared: Path, precious: Path) -> None:
    (shared / "night.ndjson").hardlink_to(precious)
    with pytest.raises(PermissionError, match="another user"):
        atomic_files.open_truncated(shared / "night.ndjson")
    assert precious.read_text() == "precious"


@needs_root
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "pipe"])
def test_files_and_pipes_of_another_user_are_not_written_to(make, shared: Path) -> None:
    bait = shared / "night.ndjson"
    make(bait)
    bait.chmod(0o666)
    os.chown(bait, SOMEBODY_ELSE, SOMEBODY_ELSE)
    reader = os.open(bait, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for write in WRITERS.values():
            with pytest.raises(PermissionError):
                write(bait)
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_own_files_in_a_shared_folder_are_overwritten_with_mode_0600(write, shared: Path) -> None:
    file = shared / "report.html"
    file.write_text("old")
    file.chmod(0o666)
    write(file)
    assert "old" not in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600


def test_own_symlink_in_a_shared_folder_is_followed(shared: Path, precious: Path) -> None:
    (shared / "link").symlink_to(precious)
    atomic_files.write_atomically(shared / "link", b"ours")
    assert precious.read_text() == "ours" and (shared / "link").is_symlink()


def test_symlink_loop_raises_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):
        atomic_files.write_atomically(tmp_path / "a", b"ours")


def test_atomic_write_to_dev_stdout_works() -> None:
    program = (
        "import pathlib, gconsole.text.atomic_files as f; f.write_atomically(pathlib.Path('/dev/stdout'), b'ours')"
    )
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"ours"


def test_created_folders_have_mode_0700_with_umask_zero(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        atomic_files.make_folder(tmp_path / "data" / "gconsole" / "sessions")
        atomic_files.make_folder(tmp_path)
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == 3 and {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
