"""Configuration files that other users own or can change are rejected: hosts.toml names programs to run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gconsole.config import ConfigError
from gconsole.config.load import load

TEXT = '[ssh]\ntransport = "local"\n\n[agent]\npython = "./x"\n\n[[nodes]]\nhosts = "here"\n'
SOMEBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change a file's owner")


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def test_own_file_is_used(hosts: Path) -> None:
    assert load(str(hosts)).nodes[0].agent.python == "./x"


@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_file_that_others_can_change_is_rejected(hosts: Path, mode: int) -> None:
    hosts.chmod(mode)
    with pytest.raises(ConfigError, match="can be changed by other users"):
        load(str(hosts))


@needs_root
def test_file_of_another_user_is_rejected_also_through_a_link(hosts: Path, tmp_path: Path) -> None:
    os.chown(hosts, SOMEBODY, SOMEBODY)
    link = tmp_path / "own.toml"
    link.symlink_to(hosts)
    for path in (hosts, link):
        with pytest.raises(ConfigError, match="belongs to another user"):
            load(str(path))


def test_file_in_a_folder_that_others_can_change_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = folder / "hosts.toml"
    path.write_text(TEXT)
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="in which other users can replace it"):
        load(str(path))
    folder.chmod(0o1777)
    assert load(str(path)).nodes


@needs_root
def test_file_that_a_foreign_group_can_change_is_rejected(hosts: Path) -> None:
    hosts.chmod(0o664)
    assert load(str(hosts)).nodes, "the private group of this user"
    os.chown(hosts, 0, 1)
    with pytest.raises(ConfigError, match="can be changed by other users"):
        load(str(hosts))


def test_file_from_a_pipe_is_used() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, TEXT.encode())
        os.close(writer)
        assert load(f"/dev/fd/{reader}").nodes
    finally:
        os.close(reader)
