"""`gconsole ps`: processes of the jobs, folded over the fleet."""

from __future__ import annotations

import click

from .options import load_target, target


@click.command()
@target
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
def ps(target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Python processes, launchers and everything below a rank, equal command lines folded over nodes."""
    from ..headless import ps as processlist
    from .live import observe

    store = observe(load_target(target, overrides))
    click.echo(processlist.to_json(store) if as_json else processlist.to_text(store))
    return processlist.exit_code(store)
