"""`gconsole config`: what is in effect and why, and a file to start from."""

from __future__ import annotations

import click

from ..text.json import pretty
from . import options


@click.group()
def config() -> None:
    """Show the configuration, or write a hosts.toml to start from."""


@config.command()
@options.target
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(target: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print every effective value of TARGET (a file or a node set) and where it came from."""
    from ..config.show import config_data, config_text

    loaded = options.load_target(target, overrides)
    click.echo(pretty(config_data(loaded)) if as_json else config_text(loaded))


@config.command()
def keys() -> None:
    """Print every action and its keys, as a commented keys.toml.

    \b
    gconsole config keys > ~/.config/gconsole/keys.toml
    """
    from ..tui.keymap.file import keys_path, keys_text
    from ..tui.keymap.hints import every_action

    click.echo(f"# This file belongs to {keys_path()}", nl=True)
    click.echo(keys_text(every_action()), nl=False)


@config.command()
@click.argument("path", default="hosts.toml")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init(path: str, force: bool) -> None:
    """Write a commented hosts.toml to PATH."""
    from ..config import starter_file

    starter_file.init(path, overwrite=force)
    click.echo(f"{path} is written; change its hosts, then: gconsole {path}")
