"""Options that every command has: -h, -q, -v, --log-file; one spelling of JSON; no question without a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gconsole.cli.main import COMMANDS, gconsole

SESSION = Path(__file__).parents[1] / "previous_release" / "session"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that runs something, with the words that call it."""

    def within(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if isinstance(command, click.Group):
            for child, inner in command.commands.items():
                yield from within(f"{name} {child}", inner)
        else:
            yield name, command

    for name in COMMANDS:
        command = gconsole.get_command(click.Context(gconsole), name)
        assert command is not None
        yield from within(name, command)


EVERY = dict(commands())


@pytest.mark.parametrize("name", EVERY)
def test_every_command_takes_the_common_options(name: str) -> None:
    options = {option for parameter in EVERY[name].params for option in parameter.opts}
    assert {"-q", "--quiet", "-v", "--verbose", "--log-file"} <= options
    assert len([option for parameter in EVERY[name].params for option in parameter.opts]) == len(options)


@pytest.mark.parametrize("name", EVERY)
def test_what_prints_json_takes_json_in_the_same_spelling(name: str) -> None:
    options = {option: parameter for parameter in EVERY[name].params for option in parameter.opts}
    shape = options.get("--format")
    if shape is not None and "json" in getattr(shape.type, "choices", ()) and name != "export":
        assert "--json" in options
    assert not {"--as-json", "--to-json", "-j"} & set(options)


def test_json_is_format_json_and_excludes_another_format() -> None:
    query = ["query", str(SESSION), "SELECT 1 AS one"]
    rows = [CliRunner().invoke(gconsole, [*query, *how]).stdout for how in (["--json"], ["--format", "json"])]
    assert rows[0] == rows[1] and json.loads(rows[0])
    refused = CliRunner().invoke(gconsole, [*query, "--json", "--format", "csv"])
    assert refused.exit_code == 2 and "exclude each other" in refused.output
    assert CliRunner().invoke(gconsole, [*query, "--format", "csv"]).stdout.startswith("one")


def test_listed_hosts_are_printed_as_json(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('[[nodes]]\nhosts = "node[1-2]"\n')
    listed = CliRunner().invoke(gconsole, ["hosts", "list", str(file), "--json"])
    assert listed.exit_code == 0
    document = json.loads(listed.stdout)
    assert document["schema"] == "gconsole.hosts/1" and len(document["entries"]) == 1


@pytest.mark.parametrize(
    "args",
    [["run", "stop", "job-1", "a"], ["run", "start", "a", "--", "true"], ["sessions", "delete", str(SESSION)]],
    ids=lambda args: " ".join(args[:2]),
)
def test_question_without_a_terminal_is_a_usage_error_that_names_yes(args: list[str]) -> None:
    refused = CliRunner().invoke(gconsole, args)
    assert refused.exit_code == 2, refused.output
    assert "--yes" in refused.output


def test_quiet_verbose_and_version_also_stand_before_the_command(tmp_path: Path) -> None:
    assert CliRunner().invoke(gconsole, ["-q", "-v", "-V"]).stdout.startswith("gconsole, version ")
    loud = CliRunner().invoke(gconsole, ["diagnose", str(SESSION)])
    assert loud.stdout
    for words in (["-q", "diagnose"], ["diagnose", "-q"], ["--quiet", "diagnose"]):
        quiet = CliRunner().invoke(gconsole, [*words, str(SESSION)])
        assert (quiet.exit_code, quiet.output) == (loud.exit_code, "")


def test_flags_alone_keep_the_default_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for flags in (["-q"], ["-v"], ["--verbose", "-q"], []):
        started = CliRunner().invoke(gconsole, flags)
        assert started.exit_code == 2 and "No TARGET given, and hosts.toml not found" in started.output
    (tmp_path / "hosts.toml").write_text('[ssh]\nport = "x"\n[[nodes]]\nhosts = "a"\n')
    refused = CliRunner().invoke(gconsole, ["-q", "--trust"])
    assert "hosts.toml:2: ssh.port" in str(refused.exception)
