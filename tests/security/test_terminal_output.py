"""JSON and CSV keep the text of nodes unchanged; on a terminal, control characters are replaced."""

from __future__ import annotations

import io
import json
import os
import pty
import threading

import fork_server
import pytest
from fork_server import GCONSOLE
from hostile_records import TEXTS
from injection_checks import assert_safe_text

from gconsole.cli.terminal import PrintableOut
from gconsole.records import Log, NodeState
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, Session

SQL = "SELECT node, text FROM log ORDER BY seq"
COMMANDS = {
    "json": ["query", "night", SQL, "--format", "json"],
    "csv": ["query", "night", SQL, "--format", "csv"],
    "table": ["query", "night", SQL],
    "export": ["export", "night", "--format", "json", "-o", "-"],
}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sessions")
    logs = [Log(node="evil", agent="e", seq=n, rx=n, source="agent", text=text) for n, text in enumerate(TEXTS, 1)]
    state = NodeState(node="evil", agent="c", seq=1, rx=99, state="ok")
    writer.write_session(Session(folder / "night"), [*logs, state], Meta())
    return {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(folder), "TERM": "xterm", "COLUMNS": "200"}


def on_a_terminal(args: list[str], env: dict[str, str]) -> str:
    """The output of a command on a terminal."""
    ours, theirs = pty.openpty()
    got = io.BytesIO()

    def read() -> None:
        try:
            while data := os.read(ours, 1 << 16):
                got.write(data)
        except OSError:  # the other end is closed: all output was read
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        done = fork_server.run([GCONSOLE, *args], env=env, stdout=theirs, timeout=120)
        assert done.returncode == 0, done.stderr
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return got.getvalue().replace(b"\r\n", b"\n").decode()


@pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS)
def test_terminal_output_contains_no_control_sequences(env: dict[str, str], args: list[str]) -> None:
    shown = on_a_terminal(args, env)
    assert "EVIL" in shown
    assert_safe_text(shown, args[0])


def test_piped_json_preserves_hostile_text_unchanged(env: dict[str, str]) -> None:
    done = fork_server.run([GCONSOLE, *COMMANDS["json"]], env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [row["text"] for row in json.loads(done.stdout)] == list(TEXTS)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_split_utf8_writes_are_escaped_like_whole_ones(size: int) -> None:
    buffer = io.BytesIO()
    out = PrintableOut(buffer)
    data = "ä\x9b31m\u202e€\u200b\ufeffｆ ok\n\x1b[2J\r".encode()
    for offset in range(0, len(data), size):
        out.write(data[offset : offset + size])
    assert buffer.getvalue().decode() == "ä·31m·€··ｆ ok\n·[2J·"
