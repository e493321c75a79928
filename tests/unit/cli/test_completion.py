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
    if shell == "fish":  # a set of nodes has commas, as the answer has between type and value
        assert 'string split -m 1 "," $completion' in done.stdout


def completed(words: str, **env: str) -> list[str]:
    count = len(words.split()) - (not words.endswith(" "))
    done = _gconsole(_GCONSOLE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count), **env)
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_targets_sessions_and_nodes_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hosts = '[cluster]\nname = "c"\n[[nodes]]\nhosts = "gpu[01-03],login"\n'
    (tmp_path / "pod.toml").write_text(hosts)
    (tmp_path / "broken.toml").write_text("[")
    clusters = tmp_path / "config/gconsole/clusters"
    clusters.mkdir(parents=True)
    (clusters / "prod.toml").write_text(hosts)
    session = tmp_path / "data/gconsole/sessions/night"
    session.mkdir(parents=True)
    (session / "session.json").write_text("{}")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    assert completed("gconsole batch p", **env) == ["pod.toml"]
    assert completed("gconsole po", **env) == ["pod.toml"]
    assert completed("gconsole tui @", **env) == ["@prod"]
    assert completed("gconsole replay ni", **env) == ["night"]
    assert completed("gconsole query n", **env) == ["night"]
    assert completed("gconsole hosts remove pod.toml gp", **env) == ["gpu01", "gpu02", "gpu03"]
    assert completed("gconsole hosts remove pod.toml gpu01,l", **env) == ["gpu01,login"]
    assert completed("gconsole hosts remove broken.toml g", **env) == []
    assert completed("gconsole record pod.toml --name a --nodes gp", **env) == ["gpu01", "gpu02", "gpu03"]
    assert completed("gconsole record --name a pod.toml --nodes gpu01,l", **env) == ["gpu01,login"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [("gconsole se", "serve"), ("gconsole batch --di", "--diagnose"), ("gconsole run sta", "start")],
)
def test_commands_and_options_are_completed(words, expected):
    done = _gconsole(_GCONSOLE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert f"plain,{expected}" in done.stdout.split(), done.stderr
