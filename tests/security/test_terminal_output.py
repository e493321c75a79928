"""JSON and CSV keep the text of nodes unchanged; on a terminal and on stderr, control characters are replaced."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import fork_server
import pytest
from fork_server import GCONSOLE
from hostile_records import TEXTS
from injection_checks import assert_safe_text
from rich.segment import Segment
from textual.app import ComposeResult
from textual.strip import Strip
from textual.widget import Widget

from gconsole.cli.terminal import PrintableOut, overwrite_line
from gconsole.records import Log, NodeState, encode
from gconsole.session.format import writer
from gconsole.session.format.layout import Meta, Session
from gconsole.text.sanitize import join_lines
from gconsole.tui.base_app import BaseApp

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


@pytest.mark.parametrize("form", ["session", "file"])
def test_error_about_a_value_of_a_record_contains_no_control_sequences(
    env: dict[str, str], tmp_path: Path, form: str
) -> None:
    recorded = "night"
    if form == "file":
        recorded = str(tmp_path / "records.ndjson")
        record = Log(node="evil", agent="e", seq=1, rx=1, source="agent", text=TEXTS[0] + "\ngconsole: all is well")
        Path(recorded).write_bytes(encode(record) + b"\n")
    done = fork_server.run([GCONSOLE, "query", recorded, "SELECT text::INT FROM log"], env=env, timeout=120)
    assert done.returncode == 2, done.stderr
    shown = done.stderr.decode()
    assert "EVIL" in shown
    assert_safe_text(shown, "query")
    assert [line for line in shown.splitlines() if line.startswith("gconsole:")] == shown.splitlines()[:1]


#: What a folder that was sent contains, by the name of each file.
SENT = {
    "a folder of nothing": {},
    "an unreadable dump": {"%s.json": b'{"ranks": '},
}


@pytest.mark.parametrize("files", SENT.values(), ids=SENT)
def test_names_of_a_folder_and_its_files_contain_no_control_sequences(
    env: dict[str, str], tmp_path: Path, files: dict[str, bytes]
) -> None:
    name = "\x1b]0;owned\x07\x9b31mEVIL\u202e"
    folder = tmp_path / name
    folder.mkdir()
    for pattern, data in files.items():
        (folder / (pattern % name)).write_bytes(data)
    done = fork_server.run([GCONSOLE, "diagnose", str(folder)], env=env, timeout=120)
    assert "EVIL" in done.stderr.decode()
    assert_safe_text(done.stderr.decode(), "diagnose")


def test_internal_errors_and_logs_contain_no_control_sequences(env: dict[str, str], tmp_path: Path) -> None:
    code = """if True:
        import logging, sys, warnings
        from gconsole.cli import batch, main
        def fail(*_, **__):
            logging.getLogger("gconsole.test").error("EVIL %s", "\\x1b[2J")
            warnings.warn("EVIL \\x9b2J")
            print("EVIL \\x1b]0;owned\\x07", file=sys.stderr)
            raise RuntimeError("EVIL \\x1b[31m")
        batch.diagnose.callback = fail
        sys.argv = ["gconsole", "diagnose", "-v", sys.argv[1]]
        main.main()
    """
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, env={**env, "XDG_STATE_HOME": str(tmp_path)}, capture_output=True, timeout=120)
    assert done.returncode == 5, done.stderr
    shown = done.stderr.decode()
    assert shown.count("EVIL") >= 4
    assert_safe_text(shown, "diagnose")


def test_progress_on_a_terminal_clears_only_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(PrintableOut(written), "utf-8", line_buffering=True))
    overwrite_line("1/2 \r\x1b[K nodes\nnode1 ok")
    overwrite_line("2/2 nodes", end=True)
    assert written.getvalue().decode() == "\r\x1b[K1/2 ··[K nodes·node1 ok\r\x1b[K2/2 nodes\n"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_split_utf8_writes_are_escaped_like_whole_ones(size: int) -> None:
    buffer = io.BytesIO()
    out = PrintableOut(buffer)
    data = "ä\x9b31m\u202e€\u200b\ufeffｆ ok\n\x1b[2J\r".encode()
    for offset in range(0, len(data), size):
        out.write(data[offset : offset + size])
    assert buffer.getvalue().decode() == "ä·31m·€··ｆ ok\n·[2J·"


# -- one sink, by type -------------------------------------------------------------------------------------------------

CONSOLE = Path(__file__).parents[2] / "console"
#: Modules that write to a terminal, stdout, stderr or a descriptor themselves, or hand these on, each with what keeps
#: text of others from steering a terminal.
WRITERS = {
    "cli/terminal.py": "the sink of text: it accepts Printable, and documents; the sink of stderr cleans all bytes",
    "cli/options.py": "the sink of output files: bytes of documents and records; cleaned on a terminal",
    "cli/config.py": "configuration of the user, and key bindings",
    "cli/api.py": "its own address and token",
    "cli/serve.py": "its own addresses",
    "cli/main.py": "help of commands; nothing after the reader of a pipe has gone",
    "cli/export.py": "bytes of a format; cleaned on a terminal",
    "cli/clocks.py": "bytes of a trace; cleaned on a terminal",
    "cli/live.py": "bytes of clock records; cleaned on a terminal",
    "cli/output.py": "the descriptor of samples: see session/ndjson.py",
    "cli/screen.py": "whether there is a terminal",
    "cli/evaluate.py": "a question, on stderr",
    "cli/run.py": "a question, on stderr",
    "cli/sessions.py": "a question, on stderr",
    "cli/watch_live.py": "bytes of events; cleaned on a terminal",
    "cli/linear/lines.py": "the sink of --linear: it accepts Printable",
    "session/ndjson.py": "bytes of samples; cleaned on a terminal",
    "session/format/writer.py": "files of a session",
    "session/query/worker.py": "replies to its parent",
    "text/logs.py": "messages that its formatter made printable",
    "tui/controllers/row_commands.py": "commands and exit codes, cleaned, while the terminal is handed over",
    "tui/controllers/shutdown.py": "one constant line",
    "tui/terminal_driver.py": "what Textual draws: see tui/screen_sink.py",
    "web/terminal/server.py": "puts back the streams that apps of visitors redirected; writes nothing",
    "demo/cluster.py": "the path of its own hosts.toml",
}
STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
CALLS = ("print", "input", "os.write", "os.writev", "logging.StreamHandler", "click.echo", "click.secho",
         "click.confirm", "click.prompt", "click.progressbar", "click.echo_via_pager", "pprint.pprint", "rich.print",
         "traceback.print_exc", "traceback.print_exception", "faulthandler.enable")  # fmt: skip


def writes(path: Path) -> bool:
    """Whether a module writes, or hands a stream or a function that writes to others."""
    tree = ast.parse(path.read_text())
    asked = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "isatty"}
    names = {ast.unparse(node) for node in ast.walk(tree)
             if isinstance(node, ast.Attribute | ast.Name) and id(node) not in asked}  # fmt: skip
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return bool(names.intersection(STREAMS + CALLS)) or bool(
        texts.intersection(("/dev/tty", "/dev/stdout", "/dev/stderr"))
    )


def test_text_is_printed_only_by_the_sinks_that_accept_printable_text() -> None:
    assert {str(path.relative_to(CONSOLE)) for path in CONSOLE.rglob("*.py") if writes(path)} == set(WRITERS)


@pytest.mark.parametrize(
    ("module", "function", "argument", "accepted"),
    [
        ("cli/terminal.py", "print_text", "text", "Printable | JsonText"),
        ("cli/linear/lines.py", "write", "lines", "Sequence[Printable]"),
        ("tui/controllers/clipboard.py", "_put", "text", "Printable"),
        ("tui/controllers/clipboard.py", "run_tool", "text", "Printable"),
        ("web/terminal/server.py", "_text", "line", "Printable"),
    ],
)
def test_sinks_accept_no_other_text(module: str, function: str, argument: str, accepted: str) -> None:
    """So that mypy refuses it."""
    [sink] = [node for node in ast.walk(ast.parse((CONSOLE / module).read_text()))
              if isinstance(node, ast.FunctionDef) and node.name == function]  # fmt: skip
    [annotation] = [parameter.annotation for parameter in sink.args.args if parameter.arg == argument]
    assert annotation is not None
    assert ast.unparse(annotation) == accepted


#: Modules that make HTTP answers, by what they contain.
ANSWERS = {
    "web/app.py": "JSON",
    "web/middleware.py": "JSON, and answers without a body",
    "web/openapi.py": "JSON, and a page made of it whose values are escaped",
    "web/resources/events.py": "a stream of JSON",
    "web/resources/metrics.py": "figures, whose labels are cleaned",
    "web/terminal/server.py": "files of its own, a page whose values are escaped, and the sink of text",
}


def test_http_answers_are_json_pages_or_printable_text() -> None:
    makers = set()
    for path in (CONSOLE / "web").rglob("*.py"):
        imported = {name.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
                    and node.module == "starlette.responses" for name in node.names}  # fmt: skip
        calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        if imported & calls:
            makers.add(str(path.relative_to(CONSOLE)))
    assert makers == set(ANSWERS)


class Raw(Widget):
    """Draws a text as it is, as a widget that forgets to clean it."""

    text = ""

    def render_line(self, y: int) -> Strip:
        return Strip([Segment(self.text if y == 0 else "")])


@pytest.mark.parametrize("text", [text[:100] for text in TEXTS], ids=range(len(TEXTS)))
async def test_no_widget_sends_control_characters_to_the_terminal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strip, "render", Strip.render)  # restored afterwards
    monkeypatch.setattr(Raw, "text", f"before{text}after")

    class Screen(BaseApp):
        def compose(self) -> ComposeResult:
            yield Raw()

    app = Screen(remembers_theme=False)
    async with app.run_test(size=(200, 5)) as pilot:
        await pilot.pause()
        update = app.screen._compositor.render_update(full=True)
        drawn = re.sub(r"\x1b\[[\d;]*[mH]", "", update.render_segments(app.console))
    line = drawn.split("\n")[0]
    assert "before" in line
    assert "after" in line
    assert_safe_text(line, "screen")


@pytest.mark.parametrize("text", [text[:100] for text in TEXTS], ids=range(len(TEXTS)))
async def test_copied_text_contains_no_control_characters(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strip, "render", Strip.render)
    app = BaseApp(remembers_theme=False, clipboard="osc52")
    async with app.run_test():
        app.clip.copy(f"before{text}\tafter\n", "text")
        copied = app.clipboard
        app.clip.copy_selection(f"selected{text}")
        selected = app.clipboard
    assert (copied[:6], copied[-7:], selected[:8]) == ("before", "\tafter\n", "selected")
    assert_safe_text(copied.replace("\t", ""), "clipboard")
    assert_safe_text(selected.replace("\t", ""), "clipboard")


def test_log_contains_no_control_characters(tmp_path: Path) -> None:
    code = """if True:
        import logging, sys
        from pathlib import Path
        from gconsole.text import logs
        logs.configure(1, Path(sys.argv[1]))
        for text in sys.argv[2:]:
            logging.getLogger("gconsole.test").error("EVIL %s", text)
    """
    texts = [text.replace("\0", "") for text in TEXTS if text.isprintable() or "\ud800" not in text]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "log"), *texts], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for shown in ((tmp_path / "log").read_text(), done.stderr.decode()):
        assert shown.count("EVIL") >= len(texts)
        assert_safe_text(shown, "log")


def test_only_the_sanitiser_makes_text_printable_and_only_documents_are_documents() -> None:
    makers: dict[str, set[str]] = {"Printable": set(), "JsonText": set()}
    for path in CONSOLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                makers[node.func.id].add(str(path.relative_to(CONSOLE)))
            assert not (isinstance(node, ast.Call) and ast.unparse(node.func) == "cast"
                        and "Printable" in ast.unparse(node)), path  # fmt: skip
    assert makers == {"Printable": {"text/sanitize.py"}, "JsonText": {"text/documents.py"}}


def test_text_of_a_node_cannot_begin_a_line_of_a_summary() -> None:
    assert join_lines(["job x", "node a\nverdict: no hang\x1b[2J"]) == "job x\nnode a·verdict: no hang·[2J"
