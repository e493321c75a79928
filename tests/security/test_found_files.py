"""A hosts.toml that was found in the working directory: nothing in it runs a program or uses a key unasked."""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from fork_server import GCONSOLE

import gconsole
import gconsole_remote
from gconsole.config import ConfigError, load, strict_modes

#: Settings that run a program of the folder, or use a key of the user, by what they are.
POWERS = {
    "a program": '[agent]\npython = "./x"\n[ssh]\ntransport = "local"\n[[nodes]]\nhosts = "n1"\n',
    "a program of one node": '[[nodes]]\nhosts = "n1"\ntransport = "local"\npython = "./x"\n',
    "a key": '[ssh]\nidentity_file = "~/.ssh/id_ed25519"\n[[nodes]]\nhosts = "n1"\n',
    "host keys": '[ssh]\nknown_hosts = "./known"\n[[nodes]]\nhosts = "n1"\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that was unpacked somewhere, with a program that leaves a trace."""
    folder = tmp_path / "unpacked"
    folder.mkdir(mode=0o700)
    (folder / "x").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (folder / "x").chmod(0o755)
    return folder


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "xterm"}


def gconsole_in(folder: Path, env: Mapping[str, str], *args: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a folder, without a terminal."""
    argv = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(folder), str(GCONSOLE), *args]
    return subprocess.run(argv, env=dict(env), capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False)


@pytest.mark.parametrize("text", POWERS.values(), ids=POWERS)
def test_found_file_that_names_programs_or_keys_is_refused_without_a_terminal(
    folder: Path, env: dict[str, str], tmp_path: Path, text: str
) -> None:
    (folder / "hosts.toml").write_text(text)
    done = gconsole_in(folder, env)
    assert done.returncode == 2
    assert b"found in this folder" in done.stderr
    assert b"gconsole --trust" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_found_file_without_such_settings_is_used_unasked(folder: Path, env: dict[str, str]) -> None:
    (folder / "hosts.toml").write_text('[[nodes]]\nhosts = "n1"\n')
    assert b"requires a terminal" in gconsole_in(folder, env).stderr


def test_agreement_holds_for_one_content_of_one_file(folder: Path, env: dict[str, str]) -> None:
    file = folder / "hosts.toml"
    file.write_text(POWERS["a program"])
    assert b"requires a terminal" in gconsole_in(folder, env, "--trust").stderr  # the next step: the file is used
    assert b"requires a terminal" in gconsole_in(folder, env).stderr
    file.write_text(POWERS["a program"].replace("./x", "./y"))
    assert b"found in this folder" in gconsole_in(folder, env).stderr
    copy = folder / "copy"
    copy.mkdir(mode=0o700)
    (copy / "hosts.toml").write_text(POWERS["a program"])
    assert b"found in this folder" in gconsole_in(copy, env).stderr


ASKS = """
from pathlib import Path
from gconsole.cli.terminal import require_consent
require_consent(Path("hosts.toml"), "hosts.toml", is_trusted=False)
print("used")
"""


@pytest.mark.parametrize(("answer", "is_used"), [(b"n\n", False), (b"\n", False), (b"y\n", True)])
def test_question_shows_the_settings_and_defaults_to_no(
    folder: Path, env: dict[str, str], tmp_path: Path, answer: bytes, is_used: bool
) -> None:
    (folder / "hosts.toml").write_text(POWERS["a program"])
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 1 << 16):
                shown.extend(data)
        except OSError:  # closed: all was read
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", ASKS], cwd=folder, env=env, stdin=theirs,
            stdout=subprocess.PIPE, stderr=theirs,
        )  # fmt: skip
        os.write(ours, answer)
        out, _ = process.communicate(timeout=120)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    assert b'hosts.toml:2  agent.python = "./x"' in shown
    assert b'hosts.toml:4  ssh.transport = "local"' in shown
    assert (out == b"used\n") is is_used
    assert (tmp_path / "state" / "gconsole" / "agreed_files.json").exists() is is_used


def test_file_that_changes_while_it_is_used_needs_another_agreement(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(strict_modes, "_found", set())
    file = folder / "hosts.toml"
    file.write_text(POWERS["a program"])
    assert load(str(file)).nodes  # named as TARGET
    strict_modes.mark_found(file)
    with pytest.raises(ConfigError, match=r"sets agent\.python, ssh\.transport"):
        load(str(file))


@pytest.mark.parametrize("name", ["pip", "json", "gconsole", "sitecustomize"])
def test_bundle_runs_no_module_of_the_working_directory(
    folder: Path, env: dict[str, str], tmp_path: Path, name: str
) -> None:
    (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "wheels").mkdir()
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = gconsole_in(folder, env | cache, "bundle", "--wheels", str(tmp_path / "wheels"))
    assert done.returncode != 0, "the folder has no wheels"
    assert b"pip could not fetch" in done.stderr + done.stdout
    assert not (tmp_path / "ran").exists()


def test_every_interpreter_is_started_without_the_working_directory_on_its_path() -> None:
    roots = [Path(next(iter(package.__path__))) for package in (gconsole, gconsole_remote)]
    lists = (
        (path, node) for root in roots for path in root.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) in ("sys.executable", "'{python}'")
    )  # fmt: skip
    words = [(path.name, [ast.unparse(word) for word in node.elts]) for path, node in lists]
    assert len(words) >= 6
    words.remove(("commands.py", ["'{python}'", "'-B'", "'-'"]))  # a job's interpreter, as the job gets it, in "/"
    assert [line for line in words if line[1][1].startswith("'-") and line[1][1] not in ("'-P'", "'-I'")] == []
