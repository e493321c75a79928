"""Options and configuration keys of release 0.1.0 are accepted; a renamed one keeps its old spelling for a release."""

from __future__ import annotations

from pathlib import Path

import click

from gconsole.cli.main import gconsole
from gconsole.config import schema

HERE = Path(__file__).parent


def options_of(command: click.Command, path: str = "") -> set[str]:
    """Every `COMMAND OPTION` below a command, hidden ones included."""
    spellings = [spelling for param in command.params for spelling in [*param.opts, *param.secondary_opts]]
    options = {f"{path} {spelling}".strip() for spelling in spellings}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            options |= options_of(child, f"{path} {name}".strip())
    return options


def test_every_option_of_the_previous_release_is_accepted() -> None:
    previous = set((HERE / "options.txt").read_text().splitlines())
    assert len(previous) > 200
    assert previous - options_of(gconsole) == set()


def test_every_configuration_key_of_the_previous_release_is_accepted() -> None:
    previous = set((HERE / "config_keys.txt").read_text().splitlines())
    assert len(previous) > 60
    assert previous - set(schema.all_keys()) == set()
