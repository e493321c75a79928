"""`gconsole config`: the effective configuration and a starter file."""

from __future__ import annotations

import click

from ..text.sanitize import pretty
from . import options


@click.group()
def config() -> None:
    """Show the effective configuration, or write a starter hosts.toml."""


@config.command()
@options.target
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(target: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print every effective config value of TARGET (file or node set) and its source."""
    from ..config.show import config_data, config_text

    loaded = options.load_target(target, overrides)
    click.echo(pretty(config_data(loaded)) if as_json else config_text(loaded))


@config.command()
def keys() -> None:
    """Print all actions and key bindings as a commented keys.toml.

    \b
    gconsole config keys > ~/.config/gconsole/keys.toml
    """
    from ..tui.keymap.file import keys_path, keys_text
    from ..tui.keymap.hints import every_action

    click.echo(f"# Save as {keys_path()}")
    click.echo(keys_text(every_action()), nl=False)


@config.command()
@click.argument("path", default="hosts.toml")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: str, force: bool) -> None:
    """Write a commented hosts.toml to PATH."""
    from ..config import schema

    schema.init(path, overwrite=force)
    click.echo(f"Wrote {path}. Edit hosts, then run: gconsole {path}")
