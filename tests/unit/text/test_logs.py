"""Log file: private, redacted, rotated, shared by several consoles, and named in internal errors."""

import ast
import asyncio
import logging
import os
import re
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import gconsole
from gconsole.cli.main import gconsole as root_command
from gconsole.text import logs, secrets


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "state" / "gconsole.log"
    logs.configure(0, path)
    yield path
    logs.configure(0, tmp_path / "after.log")


def test_log_file_and_folder_are_private_to_the_user(log):
    logging.getLogger("gconsole.test").info("hello")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert "gconsole.test" in log.read_text() and "hello" in log.read_text()


def test_secrets_and_control_characters_do_not_reach_the_file(log):
    logging.getLogger("gconsole.test").warning("node said %s", "\x1b[2J --api-key=hunter2hunter2 end")
    text = log.read_text()
    assert "hunter2" not in text and "\x1b" not in text and "--api-key=***" in text


@pytest.mark.parametrize("limit", [1_000, 4_000])
@pytest.mark.parametrize(
    "secret",
    ["https://u:hunter2secret@host/x", "--password 'hunter2 secret'", 'api_key="hunter2 secret"',
     "Bearer hunter2secret", "token=hunter2secret", "hf_hunter2secrethunter2",
     "eyJhunter2secret.hunter2secret.hunter2"],
)  # fmt: skip
def test_a_secret_that_crosses_a_limit_of_length_is_redacted(monkeypatch, limit, secret):
    monkeypatch.setattr(secrets, "_EXCERPT", 4_000)
    for filler in ("filler " * limit, "token=" + "x" * (limit - 300) + " filler" * limit):  # the second one shrinks
        for offset in range(len(secret) + 1):
            text = f"{filler[: limit - offset - 1]} {secret} {'end ' * limit}"
            shown = secrets.excerpt_without_secrets(text, 1_000)
            assert "hunter2" not in shown and "secret" not in shown and len(shown) <= 1_000


def test_a_huge_message_is_cut_in_bounded_time(log):
    text = "https://u:p@x token=" + "a.b-key " * 2_500_000
    began = time.process_time()
    logging.getLogger("gconsole.test").warning(text)
    assert time.process_time() - began < 1.0
    assert 7_000 < log.stat().st_size < 17_000


def test_debug_messages_need_verbosity(tmp_path, log):
    logging.getLogger("gconsole.test").debug("detail one")
    logs.configure(1, log)
    logs.detach_stderr()
    logging.getLogger("gconsole.test").debug("detail two")
    assert "detail one" not in log.read_text() and "detail two" in log.read_text()


def test_a_file_that_another_console_rotated_is_opened_again(log):
    logging.getLogger("gconsole.test").info("first")
    log.rename(log.with_suffix(".log.1"))
    log.touch(0o600)
    logging.getLogger("gconsole.test").info("second")
    assert "second" in log.read_text() and "second" not in log.with_suffix(".log.1").read_text()


def test_a_link_planted_as_the_log_is_refused(tmp_path):
    target = tmp_path / "precious"
    target.write_text("data")
    (tmp_path / "planted.log").symlink_to(target)
    with pytest.raises(OSError):
        logs.configure(0, tmp_path / "planted.log")
    assert target.read_text() == "data"


def _run(tmp_path, *code):
    env = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    return subprocess.run([sys.executable, *code], env=env, capture_output=True, text=True, timeout=60)


def test_an_internal_error_is_one_line_that_names_the_log_with_the_traceback(tmp_path):
    code = (
        "import sys; sys.argv = ['gconsole', 'schema', '--token=abcdefgh12345678']\n"
        "import gconsole.cli.main as m\n"
        "def boom(*args, **kwargs): raise RuntimeError('broken')\n"
        "m.gconsole.main = boom\n"
        "m.main()\n"
    )
    done = _run(tmp_path, "-c", code)
    path = tmp_path / "state" / "gconsole" / "gconsole.log"
    assert done.returncode == 5
    assert done.stderr == f"gconsole: internal error: RuntimeError: broken; details in {path} (please report)\n"
    text = path.read_text()
    assert "Traceback" in text and "RuntimeError: broken" in text and "abcdefgh" not in text


def test_an_internal_error_on_stderr_has_no_secret_and_no_control_character(tmp_path):
    code = (
        "import sys; sys.argv = ['gconsole', 'schema']\n"
        "import gconsole.cli.main as m\n"
        "def boom(*args, **kwargs): raise RuntimeError('x \\x1b[2J https://u:hunter2@host/ ' + 'y' * 9000)\n"
        "m.gconsole.main = boom\n"
        "m.main()\n"
    )
    done = _run(tmp_path, "-c", code)
    assert done.returncode == 5
    assert "hunter2" not in done.stderr and "\x1b" not in done.stderr and len(done.stderr) < 3_000
    assert "https://u:***@host/" in done.stderr


def test_an_internal_error_without_a_log_prints_its_traceback_without_secrets(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    code = (
        "import sys; sys.argv = ['gconsole', 'schema']\n"
        "import gconsole.cli.main as m\n"
        "def boom(*args, **kwargs): raise RuntimeError('\\x1b https://u:hunter2@host/')\n"
        "m.gconsole.main = boom\n"
        "m.main()\n"
    )
    done = _run(tmp_path, "-c", code)
    assert done.returncode == 5
    assert "Traceback" in done.stderr and "no log file is written (please report)" in done.stderr
    assert "hunter2" not in done.stderr and "\x1b" not in done.stderr


def test_internal_error_names_the_log_which_has_the_traceback(log):
    try:
        raise RuntimeError("broken, token=hunter2hunter2")
    except RuntimeError as error:
        text = logs.internal_error(error, "a test")
    assert text == f"internal error: RuntimeError: broken, token=***; details in {log} (please report)"
    written = log.read_text()
    assert "internal error in a test" in written and "Traceback" in written and "hunter2" not in written


async def _fail_in_a_callback():
    def broken():
        raise RuntimeError("broken, token=hunter2hunter2")

    asyncio.get_running_loop().call_soon(broken)
    await asyncio.sleep(0)


async def test_exception_that_no_code_handles_is_logged_and_named_on_stderr(log, capsys):
    logs.configure(0, log)  # with the stderr of this test
    await _fail_in_a_callback()
    line = f"gconsole: internal error: RuntimeError: broken, token=***; details in {log} (please report)\n"
    assert capsys.readouterr().err == line
    assert "Traceback" in log.read_text() and "hunter2" not in log.read_text()


async def test_exception_that_no_code_handles_is_not_drawn_over_a_screen(log, capsys):
    logs.configure(1, log)
    logs.detach_stderr()
    await _fail_in_a_callback()
    assert capsys.readouterr().err == ""
    assert "RuntimeError: broken" in log.read_text()


def test_every_handler_of_any_exception_reports_it_as_an_internal_error():
    package = Path(gconsole.__file__).parent
    handlers = [
        (path.relative_to(package), ast.unparse(handler))
        for path in sorted(package.rglob("*.py"))
        if re.search(r"except( Exception\b|:)", path.read_text())
        for handler in ast.walk(ast.parse(path.read_text()))
        if isinstance(handler, ast.ExceptHandler) and (handler.type is None or ast.unparse(handler.type) == "Exception")
    ]
    #: Called in these handlers; they pass the error on to `internal_error`.
    forwarders = (
        "failed(", "_publish_failure(error", "_explain(", "results[name] = error", "return error",
        "_handle_exception, error",
    )  # fmt: skip
    assert len(handlers) >= 10
    for path, text in handlers:
        assert "internal_error(" in text or any(name in text for name in forwarders), f"{path}: {text}"


def _all_commands(command, context):
    yield context.command_path, command
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        child = command.get_command(context, name)
        yield from _all_commands(child, click.Context(child, info_name=name, parent=context))


def test_log_file_and_verbose_are_options_of_every_command():
    commands = dict(
        _all_commands(root_command, click.Context(root_command, info_name="gconsole", **root_command.context_settings))
    )
    assert {"gconsole run status", "gconsole sessions list", "gconsole config keys", "gconsole hosts add"} <= set(
        commands
    )
    for path, command in commands.items():
        names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
        for name in ("-v", "--verbose", "--log-file"):
            assert names.count(name) == 1, f"{path} {name}"


@pytest.mark.parametrize(
    "options", [["-v", "--log-file", "LOG"], ["--log-file", "LOG", "-v"]], ids=["verbose-first", "file-first"]
)
def test_subcommand_of_a_group_logs_to_the_file_and_to_stderr(tmp_path, options):
    file = tmp_path / "own.log"
    (tmp_path / "hosts.toml").write_text('[[nodes]]\nhosts = "n1"\n')
    words = [str(file) if word == "LOG" else word for word in options]
    done = _run(tmp_path, "-m", "gconsole", "hosts", "list", str(tmp_path / "hosts.toml"), *words)
    assert done.returncode == 0
    for text in (file.read_text(), done.stderr):
        assert "gconsole hosts list" in text and "exit code 0" in text


def test_offline_command_logs_its_arguments_without_secrets_and_its_usage_error(tmp_path):
    file = tmp_path / "own.log"
    done = _run(tmp_path, "-m", "gconsole", "sessions", "show", "token=hunter2hunter2", "--log-file", str(file))
    text = file.read_text()
    assert done.returncode == 2
    assert "gconsole sessions show token=***" in text and "exit code 2" in text and "hunter2" not in text


@pytest.mark.slow
@pytest.mark.parametrize("command", ["doctor", "clean"])
def test_refused_node_stands_in_the_log_of_doctor_and_clean(tmp_path, command):
    file = tmp_path / "own.log"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    done = _run(tmp_path, "-m", "gconsole", command, f"127.0.0.1:{port}", "-v", "--log-file", str(file))
    text = file.read_text()
    assert done.returncode == 4, done.stderr
    assert "WARNING gconsole.records" in text and f"refused: connection refused by 127.0.0.1:{port}; retry in" in text
    assert f"connecting to 127.0.0.1 port {port}" in text, "-v logs details"


def test_a_log_file_that_cannot_be_written_is_a_usage_error(tmp_path):
    done = _run(tmp_path, "-m", "gconsole", "schema", "--log-file", "/proc/nowhere/log")
    assert done.returncode == 2 and "/proc/nowhere/log" in done.stderr
