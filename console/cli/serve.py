"""`gconsole serve TARGET`: the console in a browser of this machine."""

from __future__ import annotations

import sys

import click

from .main import EXIT_NOTHING
from .options import load_target, target


@click.command()
@target
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="any free one", help="TCP port.")
def serve(target: str, overrides: tuple[str, ...], port: int) -> int:
    """Watch a cluster in a browser of this machine; TARGET may also be the word demo.

    Listens on 127.0.0.1 only and prints an address with a token that changes every time. One visitor at a time: each is
    a console of its own, with SSH connections of its own. Ctrl-C ends everything.

    \b
    gconsole serve hosts.toml
    gconsole serve demo --port 8000
    """
    title = f"gconsole {_cluster(target, overrides)}"
    import asyncio

    from ..web.terminal.server import HOST
    from ..web.terminal.server import serve as serve_

    def say(address: str) -> None:
        click.echo(f"{title}, in a browser of this machine:\n\n  {address}\n\nCtrl-C ends it.")
        sys.stdout.flush()

    try:
        return asyncio.run(serve_(visitor_argv(target, overrides), title, port, say))
    except OSError as error:
        click.echo(f"gconsole: cannot listen on {HOST}:{port}: {error.strerror}; try another --port", err=True)
        return EXIT_NOTHING


def visitor_argv(target: str, overrides: tuple[str, ...]) -> list[str]:
    """What a visitor runs: this very program. `-P`: a json.py in the working folder is nobody's module."""
    python = [sys.executable, "-P", "-m", "gconsole"]
    if target == "demo":
        return [*python, "demo"]
    return [*python, "tui", *(f"--set={text}" for text in overrides), "--", target]


def _cluster(target: str, overrides: tuple[str, ...]) -> str:
    """Its name. Raises ConfigError here and now, and not for every visitor."""
    if target != "demo":
        return load_target(target, overrides).cluster
    if overrides:
        raise click.UsageError("the demo has no hosts.toml, so there is nothing to --set")
    return "demo"
