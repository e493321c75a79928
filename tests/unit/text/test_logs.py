"""Log file: private, redacted, rotated, shared by several consoles, and named in internal errors."""

import logging
import os
import stat
import subprocess
import sys

import pytest

from gconsole.text import logs


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


@pytest.mark.slow
def test_log_file_and_verbose_are_options_of_every_command(tmp_path):
    file = tmp_path / "own.log"
    done = _run(tmp_path, "-m", "gconsole", "config", "keys", "-v", "--log-file", str(file))
    assert done.returncode in (0, 2), done.stderr
    done = _run(tmp_path, "-m", "gconsole", "schema", "--log-file", str(file))
    assert done.returncode == 0 and file.exists()


def test_a_log_file_that_cannot_be_written_is_a_usage_error(tmp_path):
    done = _run(tmp_path, "-m", "gconsole", "schema", "--log-file", "/proc/nowhere/log")
    assert done.returncode == 2 and "/proc/nowhere/log" in done.stderr
