"""`gconsole demo`: everything, tried on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..demo.ring import HANGS
from .main import EXIT_NOTHING
from .options import DurationType, capture_order, capturing

if TYPE_CHECKING:
    from ..config import Config
    from ..core.control import CaptureRequest
    from ..monitor.diagnose import Diagnosis

#: On a screen the job is first seen to move, seconds.
HANG_AFTER_S = 10.0


@click.command()
@click.option("--nodes", type=click.IntRange(1, 64), default=4, show_default=True, help="Nodes, each an SSH server.")
@click.option("--ranks", type=click.IntRange(1, 256), default=8, show_default=True, help="Ranks of the job, in total.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="Simulated GPUs per node.")
@click.option("--batch", is_flag=True, help="Without a screen, as `gconsole batch` does.")
@click.option("--for", "for_s", type=DurationType(), help="With --batch: watch this long; without it, one full tick.")
@click.option("-o", "--output", metavar="FILE", help="With --batch: write the report as JSON; - is stdout.")
@click.option("--hang", type=click.Choice(HANGS), help="Let the job hang: at once with --batch, else after 10 s.")
@capturing
def demo(
    nodes: int,
    ranks: int,
    gpus: int,
    batch: bool,
    hang: str | None,
    for_s: float | None,
    output: str | None,
    capture: bool,
    diagnose: bool,
    samples: int | None,
    every: float | None,
    native: bool | None,
    names: str | None,
) -> int:
    """A cluster on this machine with a job on it, to try everything.

    Nodes are SSH servers on loopback ports, reached with throw-away keys; the job is a real one, a ring of plain Python
    processes. Needs neither root nor a GPU nor torch, and leaves nothing behind.

    \b
    gconsole demo
    gconsole demo --nodes 16 --ranks 32
    gconsole demo --batch --for 5s -o report.json
    gconsole demo --batch --hang dataloader --diagnose
    """
    if not batch and (for_s is not None or output is not None or capture or diagnose):
        raise click.UsageError("--for, -o, --capture and --diagnose belong to --batch")
    if hang and ranks < 3:
        raise click.UsageError("--hang needs at least 3 ranks: of two nobody could tell who is right")
    if not batch and not os.environ.get("TEXTUAL_DRIVER"):  # before anything is started
        from .screen import refuse_a_terminal_that_cannot_draw

        refuse_a_terminal_that_cannot_draw("gconsole demo --batch")
    order = capture_order(capture, diagnose, samples, every, native, names)
    from ..demo import DemoError, demo_cluster

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C does, also before anybody else listens to them
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_cluster(nodes, ranks, gpus, hang or "") as cluster:
            strike = cluster.strike if hang else None
            if batch:
                return _batch(cluster.config, for_s or 0.0, output, order, strike)
            return _tui(cluster.config, strike)
    except DemoError as error:
        click.echo(f"gconsole: {error}", err=True)
        return EXIT_NOTHING


def _batch(
    config: Config,
    for_s: float,
    output: str | None,
    order: CaptureRequest | Diagnosis | None,
    strike: Callable[[], None] | None,
) -> int:
    from .live import run_batch

    async def before() -> None:
        if strike is not None:
            strike()

    return run_batch(config, for_s=for_s, output=output, order=order, before=before)


def _tui(config: Config, strike: Callable[[], None] | None) -> int:
    from .live import run_tui

    if strike is None:
        return run_tui(config, remember=False)
    striking = threading.Timer(HANG_AFTER_S, strike)
    striking.start()
    try:
        return run_tui(config, remember=False)
    finally:
        striking.cancel()
