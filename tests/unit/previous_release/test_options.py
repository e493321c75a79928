"""Options, configuration keys and actions of release 0.1.0 are accepted; renamed ones until the next release."""

from __future__ import annotations

from pathlib import Path

import click

from gconsole.cli.main import gconsole
from gconsole.config import schema
from gconsole.tui.keymap.file import read_keys
from gconsole.tui.keymap.hints import every_action

HERE = Path(__file__).parent


def options_of(command: click.Command, path: str = "") -> set[str]:
    """Every `COMMAND OPTION` below a command, hidden ones included."""
    spellings = [spelling for param in command.params for spelling in [*param.opts, *param.secondary_opts]]
    options = {f"{path} {spelling}".strip() for spelling in spellings}
    if isinstance(command, click.Group):
        context = click.Context(command, **command.context_settings)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            options |= options_of(child, f"{path} {name}".strip())
    return options


def test_every_option_of_the_previous_release_is_accepted() -> None:
    lines = (HERE / "options.txt").read_text().splitlines()
    previous = {line for line in lines if line.split()[-1].startswith("-")}  # the name of an argument is never typed
    assert len(previous) > 150
    assert previous - options_of(gconsole) == set()


def test_every_configuration_key_of_the_previous_release_is_accepted() -> None:
    previous = set((HERE / "config_keys.txt").read_text().splitlines())
    assert len(previous) > 60
    assert previous - set(schema.all_keys()) == set()


def test_every_action_of_the_previous_keys_toml_is_accepted(tmp_path: Path) -> None:
    previous = (HERE / "action_ids.txt").read_text().splitlines()
    assert len(previous) > 100
    file = tmp_path / "keys.toml"
    file.write_text("".join(f"{id} = []\n" for id in previous))

    own = read_keys(file, every_action())

    assert len(own.keymap) == len(previous)
    assert all("was renamed to" in complaint for complaint in own.complaints), own.complaints
