"""`gconsole demo`: everything, tried on this machine."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from .main import EXIT_NOTHING
from .options import Duration, capture_order, capturing

if TYPE_CHECKING:
    from ..config import Config
    from ..hub import CaptureOrder


@click.command()
@click.option("--nodes", type=click.IntRange(1, 64), default=4, show_default=True, help="Nodes, each an SSH server.")
@click.option("--ranks", type=click.IntRange(1, 256), default=8, show_default=True, help="Ranks of the job, in total.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="Simulated GPUs per node.")
@click.option("--batch", is_flag=True, help="Without a screen, as `gconsole batch` does.")
@click.option("--for", "for_s", type=Duration(), help="With --batch: watch this long; without it, one full tick.")
@click.option("-o", "--output", metavar="FILE", help="With --batch: write the report as JSON; - is stdout.")
@capturing
def demo(
    nodes: int, ranks: int, gpus: int, batch: bool, for_s: float | None, output: str | None,
    capture: bool, samples: int | None, every: float | None,
) -> int:
    """A cluster on this machine with a job on it, to try everything.

    Nodes are SSH servers on loopback ports, reached with throw-away keys; the job is a real one, a ring of plain Python
    processes. Needs neither root nor a GPU nor torch, and leaves nothing behind.

    \b
    gconsole demo
    gconsole demo --nodes 16 --ranks 32
    gconsole demo --batch --for 5s -o report.json
    """
    if not batch and (for_s is not None or output is not None or capture):
        raise click.UsageError("--for, -o and --capture belong to --batch")
    if not batch and not os.environ.get("TEXTUAL_DRIVER"):  # before anything is started
        from .live import refuse_a_terminal_that_cannot_draw

        refuse_a_terminal_that_cannot_draw("gconsole demo --batch")
    order = capture_order(capture, samples, every)
    from ..demo import DemoError, demo_cluster

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C does, also before anybody else listens to them
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_cluster(nodes, ranks, gpus) as config:
            return _batch(config, for_s or 0.0, output, order) if batch else _tui(config)
    except DemoError as error:
        click.echo(f"gconsole: {error}", err=True)
        return EXIT_NOTHING


def _batch(config: Config, for_s: float, output: str | None, order: CaptureOrder | None) -> int:
    from .live import run_batch

    return run_batch(config, for_s=for_s, output=output, order=order)


def _tui(config: Config) -> int:
    from .live import run_tui

    return run_tui(config)
