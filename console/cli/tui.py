"""`gconsole TARGET` and `gconsole tui TARGET`: the TUI."""

from __future__ import annotations

import click

from .options import load_target, target


@click.command(epilog="Press ? in the TUI to list all keys.")
@target
def tui(target: str, overrides: tuple[str, ...]) -> int:
    """Open the TUI.

    `gconsole TARGET` is equivalent, unless TARGET is the name of a subcommand.
    """
    from .live import run_tui

    return run_tui(load_target(target, overrides), lambda: load_target(target, overrides, quiet=True))
