"""`gconsole TARGET`, `gconsole tui TARGET`."""

from __future__ import annotations

import click

from .options import load_target, target


@click.command(epilog="Press ? in the console for its keys.")
@target
def tui(target: str, overrides: tuple[str, ...]) -> int:
    """Watch a cluster in the terminal.

    `gconsole TARGET` does the same, unless TARGET is the name of a subcommand.
    """
    from .live import run_tui

    return run_tui(load_target(target, overrides), lambda: load_target(target, overrides, quiet=True))
