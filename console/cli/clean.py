"""`gconsole clean`: leave nothing on the nodes."""

from __future__ import annotations

import asyncio

import click

from .options import load_target, target


@click.command()
@target
@click.option("--force", is_flag=True, help="Also end agents of your own that are still running there.")
def clean(target: str, overrides: tuple[str, ...], force: bool) -> int:
    """Remove what gconsole left on the nodes: the cache folder with its binaries, and agents that linger.

    A cache that an agent of another console uses is kept, and that console is named; --force ends such agents first,
    where they run under your own user.
    """
    from ..fleet.survey import survey
    from ..headless import clean as traces
    from .progress import counted

    config = load_target(target, (*overrides, "agent.ephemeral=true", "agent.linger_s=0", "agent.simulate_gpus=0"))
    answers = asyncio.run(survey(config, "clean", {"force": force}, deadline_s=60.0, progress=counted("cleaned")))
    click.echo(traces.to_text(answers))
    return traces.exit_code(answers)
