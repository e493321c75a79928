"""`gconsole demo`: a simulated cluster on this machine."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import click

from ..demo.ring import HANGS
from ..text.sanitize import printable
from .main import EXIT_NOTHING
from .options import capture_order, capturing, duration_option, linear_option, report_output
from .terminal import print_text

#: Seconds. While the job is watched it makes visible progress before it hangs.
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
    "--hang",
    type=click.Choice(HANGS),
    help="Make the job hang after 10 s, or at the end of a batch that is not longer; a batch then diagnoses it.",
)
@capturing
@linear_option
@click.option("--json", "as_json", is_flag=True, help="With --batch: print the report as JSON, same as -o -.")
def demo(
    nodes: int, ranks: int, gpus: int, batch: bool, hang: str | None, for_s: float | None, output: str | None,
    capture: bool, diagnose: bool, samples: int | None, every: float | None, native: bool | None, names: str | None,
    linear: bool, as_json: bool,
) -> int:  # fmt: skip
    """Try gconsole on a local demo cluster with a running job.

    Nodes are SSH servers on loopback ports with temporary keys; the job is a real ring all-reduce in plain Python.
    Requires neither root, GPU nor torch, and cleans up completely.

    \b
    gconsole demo
    gconsole demo --nodes 16 --ranks 32
    gconsole demo --batch --for 5s -o report.json
    gconsole demo --batch --hang dataloader
    """
    output = report_output(output, as_json)
    if not batch and (for_s is not None or output is not None or capture or diagnose):
        raise click.UsageError("--for, -o, --json, --capture and --diagnose require --batch")
    if hang and ranks < 3:
        raise click.UsageError("--hang requires at least 3 ranks: with 2, the culprit is ambiguous")
    if not (batch or linear):  # before anything is started
        from .terminal import is_line_terminal, require_terminal

        if not is_line_terminal():
            require_terminal("gconsole demo --batch")
    is_diagnosed = diagnose or (batch and hang is not None and not capture)
    order = capture_order(capture, is_diagnosed, samples, every, native, names)
    from ..config import load
    from ..demo import DemoError, demo_cluster

    for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C, also during start-up
        signal.signal(number, signal.default_int_handler)
    try:
        with demo_cluster(nodes, ranks, gpus, hang or "") as cluster:
            config = load(str(cluster.hosts), environ={})
            from .live import run_batch, run_tui

            is_watched = not batch or (for_s or 0.0) > HANG_AFTER_S

            async def before() -> None:
                if hang and not is_watched:
                    cluster.trigger_hang()

            with _hanging_later(cluster.trigger_hang if hang and is_watched else None):
                if not batch:
                    return run_tui(config, remember=False, linear=linear)
                return run_batch(config, for_s=for_s or 0.0, output=output, order=order, before=before)
    except DemoError as error:
        print_text(printable(f"gconsole: {error}"), err=True)
        return EXIT_NOTHING


@contextlib.contextmanager
def _hanging_later(trigger_hang: Callable[[], None] | None) -> Iterator[None]:
    """Make the job hang after `HANG_AFTER_S`, unless it is None or the context ends before."""
    if trigger_hang is None:
        yield
        return
    timer = threading.Timer(HANG_AFTER_S, trigger_hang)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
