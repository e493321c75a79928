"""`gconsole ps`: job processes on all nodes."""

from __future__ import annotations

import click

from .options import load_target, target


@click.command()
@target
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ps(target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """List launchers, ranks, their child processes and other Python processes, grouped by command line."""
    from ..headless import ps as processlist
    from .live import observe

    store = observe(load_target(target, overrides))
    click.echo(processlist.to_json(store) if as_json else processlist.to_text(store))
    return processlist.exit_code(store)
