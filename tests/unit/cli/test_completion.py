"""Shell completion: the script of each shell, and what it completes."""

import os
import subprocess
import sys

import pytest


def _gconsole(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.argv[0] = 'gconsole'; from gconsole.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(shell):
    done = _gconsole("completion", shell)
    assert done.returncode == 0 and "_GCONSOLE_COMPLETE" in done.stdout
    if shell == "zsh":  # compinit reads only the first line
        assert done.stdout.splitlines()[0] == "#compdef gconsole"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [("gconsole se", "serve"), ("gconsole batch --di", "--diagnose"), ("gconsole run sta", "start")],
)
def test_commands_and_options_are_completed(words, expected):
    done = _gconsole(_GCONSOLE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert f"plain,{expected}" in done.stdout.split(), done.stderr
