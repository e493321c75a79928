"""`gconsole clean`: remove caches and leftover agents from the nodes."""

from __future__ import annotations

import asyncio

import click

from .options import load_target, target


@click.command()
@target
@click.option("--force", is_flag=True, help="Also stop agents of your user that are still running.")
def clean(target: str, overrides: tuple[str, ...], force: bool) -> int:
    """Remove gconsole's files from the nodes: the cache folder with its binaries, and leftover agents.

    A cache in use by another console's agent is kept, and that console is listed; --force first stops such agents if
    they run as your user.
    """
    from ..fleet.survey import survey
    from ..headless import clean as traces
    from .terminal import counted

    config = load_target(target, (*overrides, "agent.ephemeral=true", "agent.linger_s=0", "agent.simulate_gpus=0"))
    answers = asyncio.run(survey(config, "clean", {"force": force}, deadline_s=60.0, progress=counted("cleaned")))
    click.echo(traces.to_text(answers))
    return traces.exit_code(answers)
