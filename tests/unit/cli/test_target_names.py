"""Mistyped commands and targets are refused before anything connects, with what was meant."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from gconsole.cli import target_names
from gconsole.cli.main import gconsole
from gconsole.config import load

HOSTS = '[[nodes]]\nhosts = "node[1-2]"\n'


@pytest.fixture(autouse=True)
def _folder_with_hosts_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts.toml").write_text(HOSTS)
    monkeypatch.setattr(target_names, "_resolve_error", lambda host: None if host == "real" else socket.EAI_NONAME)
    monkeypatch.setattr(target_names, "_is_known_to_ssh", lambda host: host == "alias")


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["bacth"], "did you mean gconsole batch?"),
        (["bacth", "hosts.toml"], "did you mean gconsole batch?"),
        (["doctr", "hosts.toml"], "did you mean gconsole doctor?"),
        (["hosts.tml"], "did you mean hosts.toml?"),
        (["batch", "hosts.tml"], "did you mean hosts.toml?"),
        (["help"], "did you mean gconsole --help?"),
        (["ps", "q7x.invalid"], "q7x.invalid is neither a file nor a host name that can be resolved"),
    ],
)
def test_typing_error_exits_with_2_and_names_what_was_meant(argv: list[str], meant: str):
    result = CliRunner().invoke(gconsole, argv)
    assert result.exit_code == 2
    assert meant in result.stderr


def test_name_with_an_extension_is_no_mistyped_command():
    Path("hosts.toml").unlink()
    result = CliRunner().invoke(gconsole, ["hosts.tml"])
    assert result.exit_code == 2
    assert "neither a file nor a host name" in result.stderr and "did you mean" not in result.stderr


@pytest.mark.parametrize("target", ["real", "alias", "q[1-2]", "a,b", "local"])
def test_names_that_may_be_nodes_are_accepted(target: str):
    target_names.require_known_name(load(target, environ={}), target)


def test_unavailable_resolver_refutes_no_name_unless_it_is_similar_to_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target_names, "_resolve_error", lambda host: socket.EAI_AGAIN)
    target_names.require_known_name(load("gpu-a17", environ={}), "gpu-a17")
    assert CliRunner().invoke(gconsole, ["batch", "hosts.tml"]).exit_code == 2


def test_local_is_this_machine_without_ssh():
    config = load("local", environ={})
    assert [(node.name, node.ssh.transport) for node in config.nodes] == [("local", "local")]


@pytest.mark.parametrize("argv", [["run", "stop", "hosts.toml", "a-job"], ["run", "start", "hosts.toml", "train.py"]])
def test_confirmation_without_a_terminal_names_yes(argv: list[str]):
    result = CliRunner().invoke(gconsole, argv)
    assert result.exit_code == 2
    assert "add --yes" in result.stderr


def test_version_has_a_short_option():
    assert CliRunner().invoke(gconsole, ["-V"]).output == CliRunner().invoke(gconsole, ["--version"]).output


def test_all_configuration_errors_are_reported_at_once():
    Path("hosts.toml").write_text('[ssh]\nport = "abc"\nusr = "x"\n[[nodes]]\nhosts = "node[1-"\n')
    result = CliRunner().invoke(gconsole, ["config", "show", "hosts.toml"])
    assert [line.split(":")[1] for line in str(result.exception).splitlines()] == ["2", "3", "5"]


def test_watch_retries_a_name_but_not_a_typing_error(monkeypatch: pytest.MonkeyPatch):
    from gconsole.cli import watch_live

    watched: list[str] = []
    monkeypatch.setattr(watch_live, "run_watch", lambda config, read, *, target, **_: watched.append(target) or 0)
    refused = CliRunner().invoke(gconsole, ["watch", "hosts.tml"])
    assert refused.exit_code == 2 and "did you mean hosts.toml?" in refused.output
    assert CliRunner().invoke(gconsole, ["watch", "gpu-node-0999"]).exit_code == 0
    assert watched == ["gpu-node-0999"]


@pytest.mark.parametrize("target", ["hosts.toml", "slurm:4711", "node[1-4]"])
def test_diagnose_of_live_nodes_names_the_command_that_does_it(target: str):
    result = CliRunner().invoke(gconsole, ["diagnose", target])
    assert result.exit_code == 2
    assert f"to diagnose {target}: gconsole batch {shlex.quote(target)} --diagnose" in " ".join(result.output.split())
