"""`gconsole demo`: a simulated cluster on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..demo.ring import HANGS
from .main import EXIT_NOTHING
from .options import capture_order, capturing, duration_option

if TYPE_CHECKING:
    from ..config import Config

#: Seconds. In the TUI the job makes visible progress before it hangs.
HANG_AFTER_S = 10.0


@click.command()
@click.option(
    "--nodes", type=click.IntRange(1, 64), default=4, show_default=True, help="Number of nodes; each is an SSH server."
)
@click.option("--ranks", type=click.IntRange(1, 256), default=8, show_default=True, help="Total number of ranks.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="Simulated GPUs per node.")
@click.option("--batch", is_flag=True, help="Run headless, like `gconsole batch`.")
@duration_option("--for", "for_s", help="With --batch: duration.  [default: one full sample]")
@click.option("-o", "--output", metavar="FILE", help="With --batch: write the report as JSON; - = stdout.")
@click.option(
    "--hang", type=click.Choice(HANGS), help="Make the job hang: immediately with --batch, otherwise after 10 s."
)
@capturing
def demo(
    nodes: int, ranks: int, gpus: int, batch: bool, hang: str | None, for_s: float | None, output: str | None,
    capture: bool, diagnose: bool, samples: int | None, every: float | None, native: bool | None, names: str | None,
) -> int:  # fmt: skip
    """Try gconsole on a local demo cluster with a running job.

    Nodes are SSH servers on loopback ports with temporary keys; the job is a real ring all-reduce in plain Python.
    Requires neither root, GPU nor torch, and cleans up completely.

    \b
    gconsole demo
    gconsole demo --nodes 16 --ranks 32
    gconsole demo --batch --for 5s -o report.json
    gconsole demo --batch --hang dataloader --diagnose
    """
    if not batch and (for_s is not None or output is not None or capture or diagnose):
        raise click.UsageError("--for, -o, --capture and --diagnose require --batch")
    if hang and ranks < 3:
        raise click.UsageError("--hang requires at least 3 ranks: with 2, the culprit is ambiguous")
    if not batch and not os.environ.get("TEXTUAL_DRIVER"):  # before anything is started
        from .terminal import require_terminal

        require_terminal("gconsole demo --batch")
    order = capture_order(capture, diagnose, samples, every, native, names)
    from ..config import load
    from ..demo import DemoError, demo_cluster

    for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C, also during start-up
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_cluster(nodes, ranks, gpus, hang or "") as cluster:
            config = load(str(cluster.hosts), environ={})
            if not batch:
                return _tui(config, cluster.trigger_hang if hang else None)
            from .live import run_batch

            async def before() -> None:
                if hang:
                    cluster.trigger_hang()

            return run_batch(config, for_s=for_s or 0.0, output=output, order=order, before=before)
    except DemoError as error:
        click.echo(f"gconsole: {error}", err=True)
        return EXIT_NOTHING


def _tui(config: Config, trigger_hang: Callable[[], None] | None) -> int:
    from .live import run_tui

    if trigger_hang is None:
        return run_tui(config, remember=False)
    timer = threading.Timer(HANG_AFTER_S, trigger_hang)
    timer.start()
    try:
        return run_tui(config, remember=False)
    finally:
        timer.cancel()
