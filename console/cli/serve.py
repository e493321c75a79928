"""`gconsole serve TARGET`: the TUI in a local browser."""

from __future__ import annotations

import sys

import click

from .main import EXIT_NOTHING
from .options import load_target, target


@click.command()
@target
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free port", help="TCP port.")
def serve(target: str, overrides: tuple[str, ...], port: int) -> int:
    """Open the TUI in a local browser; TARGET may also be `demo`.

    Listens on 127.0.0.1 only and prints an address with a one-time token. One browser at a time: each runs its own
    console with its own SSH connections. Press Ctrl-C to stop.

    \b
    gconsole serve hosts.toml
    gconsole serve demo --port 8000
    """
    title = f"gconsole {_cluster(target, overrides)}"
    import asyncio

    from ..web.terminal.server import HOST
    from ..web.terminal.server import serve as serve_

    def print_address(address: str) -> None:
        click.echo(f"{title}: open in a browser on this machine:\n\n  {address}\n\nPress Ctrl-C to stop.")
        sys.stdout.flush()

    try:
        return asyncio.run(serve_(browser_argv(target, overrides), title, port, print_address))
    except OSError as error:
        click.echo(f"gconsole: cannot listen on {HOST}:{port}: {error.strerror}; try another --port", err=True)
        return EXIT_NOTHING


def browser_argv(target: str, overrides: tuple[str, ...]) -> list[str]:
    """Command of a browser session. `-P` keeps modules of the working folder off the import path."""
    python = [sys.executable, "-P", "-m", "gconsole"]
    if target == "demo":
        return [*python, "demo"]
    return [*python, "tui", *(f"--set={text}" for text in overrides), "--", target]


def _cluster(target: str, overrides: tuple[str, ...]) -> str:
    """Cluster name. Raises ConfigError at start rather than in every browser session."""
    if target != "demo":
        return load_target(target, overrides).cluster
    if overrides:
        raise click.UsageError("--set does not apply to the demo")
    return "demo"
