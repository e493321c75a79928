"""`-` is standard input wherever a recording is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli.main import gconsole

RECORD = (
    b'{"kind":"node_state","node":"a","agent":"x","seq":1,"t":1000,"mono":1000,"rx":1000,"state":"ok","attempt":1}\n'
)


@pytest.mark.parametrize(
    "words",
    [
        ["query", "-", "SELECT node FROM node_state", "--format", "csv"],
        ["batch", "--from", "-", "-q", "-o", "-"],
        ["export", "-", "--format", "json", "-o", "-"],
        ["diagnose", "-", "-q", "-o", "-"],
    ],
    ids=lambda words: words[0],
)
def test_recording_is_read_from_standard_input(words: list[str], tmp_path: Path):
    argv = [sys.executable, "-m", "gconsole", *words]
    done = subprocess.run(
        argv, input=RECORD, capture_output=True, timeout=120, check=False, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert b"Traceback" not in done.stderr and b"a" in done.stdout and done.returncode in (0, 3), done.stderr
    assert not list(tmp_path.glob("gconsole-*")), "the copy is removed"


def test_session_is_imported_from_standard_input(tmp_path: Path):
    folder = tmp_path / "sessions"
    done = CliRunner().invoke(
        gconsole, ["sessions", "import", "-", "--name", "n", "--folder", str(folder)], input=RECORD
    )
    assert done.exit_code == 0 and (folder / "n" / "session.json").is_file(), done.output


@pytest.mark.parametrize(
    ("words", "text", "complaint"),
    [
        (["why", "local", "--against", "-"], b"not json", "--against"),
        (["check", "local", "--checks", "-"], b"[[nonsense]]", "nonsense"),
        (["clocks", "apply", "-", "--from", "-"], b"{}", "which only one of the inputs can be"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_other_inputs_are_read_from_standard_input(words: list[str], text: bytes, complaint: str):
    done = CliRunner().invoke(gconsole, words, input=text)
    assert done.exit_code == 2 and complaint in done.output, done.output
