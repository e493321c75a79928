"""Synchronization of a folder to the nodes: selected files, and the result on the node."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from gconsole.core.job_protocol import Synced, SyncFolder
from gconsole.launch import code_folder, format
from gconsole.launch.code_folder import BadFolder, has_program, read_folder
from gconsole_remote.agent.requests import RequestError
from gconsole_remote.jobs import sync


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small repository."""
    root = tmp_path / "llama"
    for name, text in {"train.py": "print(1)", "lib/data.py": "x = 2", ".git/HEAD": "ref", "lib/.git": "gitdir: x",
                       "lib/__pycache__/data.pyc": "junk"}.items():  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


def synchronize(folder: SyncFolder, node: Path) -> int:
    """Synchronize the folder to a node; returns the number of transferred files."""
    files = [[file.path, file.bytes, file.sha256, file.mode] for file in folder.files]
    links = [[link.path, link.target] for link in folder.links]
    wanted = sync.compare(None, {"workdir": str(node), "files": files, "links": links})["wanted"]
    for number in wanted:
        file = folder.files[number]
        data = base64.b64encode(Path(folder.local, file.path).read_bytes()).decode()
        sync.put(None, {"workdir": str(node), "path": file.path, "sha256": file.sha256, "offset": 0, "data": data,
                        "mode": file.mode})  # fmt: skip
    sync.done(None, {"workdir": str(node)})
    return len(wanted)


def test_all_files_are_copied_except_git_history_and_bytecode(folder: Path):
    assert [file.path for file in read_folder(folder).files] == ["run.sh", "train.py", "lib/data.py"]


def test_node_gets_the_same_files_and_modes_and_later_only_changed_ones(folder: Path, tmp_path: Path):
    node = tmp_path / "node/llama"
    (folder / "latest").symlink_to("train.py")
    assert synchronize(read_folder(folder), node) == 3
    assert (node / "lib/data.py").read_text() == "x = 2"
    assert os.access(node / "run.sh", os.X_OK)
    assert (node / "latest").readlink() == Path("train.py")
    assert sorted(path.name for path in node.iterdir()) == ["latest", "lib", "run.sh", "train.py"]
    (folder / "lib/data.py").write_text("x = 3")
    (node / "checkpoint.pt").write_text("of the last run")
    assert synchronize(read_folder(folder), node) == 1
    assert (node / "lib/data.py").read_text() == "x = 3"
    assert (node / "checkpoint.pt").exists(), "files that exist only on the node are kept"


def test_symlink_out_of_the_folder_is_rejected_by_name(folder: Path):
    (folder / "data").symlink_to("/etc")
    with pytest.raises(BadFolder, match=r"data links to /etc, outside of the folder; copy what it needs"):
        read_folder(folder)


def test_absolute_symlink_within_the_folder_becomes_relative(folder: Path):
    (folder / "lib/main.py").symlink_to(folder / "train.py")
    assert [(link.path, link.target) for link in read_folder(folder).links] == [("lib/main.py", "../train.py")]


def test_folder_with_too_many_files_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_folder, "MAX_FILES", 2)
    with pytest.raises(BadFolder, match="choose the subfolder with the code"):
        read_folder(folder)


def test_special_file_and_path_that_is_not_a_folder_are_rejected(folder: Path):
    os.mkfifo(folder / "pipe")
    with pytest.raises(BadFolder, match="cannot be copied"):
        read_folder(folder)
    with pytest.raises(BadFolder, match="is not a folder"):
        read_folder(folder / "train.py")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "lib/../../x", "a//b", ".gconsole-sync/x", "./x"])
def test_a_node_writes_nothing_outside_of_the_folder(tmp_path: Path, path: str):
    with pytest.raises(RequestError, match="is not a relative path inside the folder"):
        sync.compare(None, {"workdir": str(tmp_path), "files": [[path, 1, "x", 0o644]], "links": []})


def test_existing_symlink_on_the_node_does_not_lead_out_of_the_folder(tmp_path: Path):
    (tmp_path / "node").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "node/lib").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="leads out of"):
        sync.compare(None, {"workdir": str(tmp_path / "node"), "files": [["lib/x", 1, "x", 0o644]], "links": []})


def test_file_that_changed_during_the_copy_is_not_installed(tmp_path: Path):
    manifest = {"workdir": str(tmp_path), "files": [["x", 3, "other", 0o644]], "links": []}
    assert sync.compare(None, manifest)["wanted"] == [0]
    piece = {"workdir": str(tmp_path), "path": "x", "sha256": hashlib.sha256(b"old").hexdigest(), "offset": 0,
             "data": base64.b64encode(b"new").decode(), "mode": 0o644}  # fmt: skip
    with pytest.raises(RequestError, match="x changed while it was copied"):
        sync.put(None, piece)
    assert not (tmp_path / "x").exists()


def test_program_given_by_relative_path_is_found_in_the_synced_folder(folder: Path):
    found = read_folder(folder)
    assert has_program(found, "./run.sh")
    assert not has_program(found, "run.sh"), "searched on the PATH"
    assert not has_program(found, "/bin/sh")


def test_result_counts_changed_files_of_a_node_or_says_that_none_had_changed(folder: Path) -> None:
    local = read_folder(folder)
    [changed] = format.sync_lines(local, {"node1": Synced(1, 5), "node2": Synced(0, 0)})
    assert changed.endswith("to node[1-2]: up to 1 file changed per node")
    [same] = format.sync_lines(local, {"node1": Synced(0, 0)})
    assert same.endswith("to node1: no file had changed")
