"""`gconsole clocks`: clock offsets between nodes, with error bounds."""

from __future__ import annotations

import click

from .options import DurationType, load_target


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a config value.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="12s",
    show_default=True,
    help="Duration; at least one full window ([clock] probe_window_s).",
)
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON: one line per window of each edge and node.")
@click.option("--quiet", is_flag=True, help="Suppress progress.")
def clocks(target: str, overrides: tuple[str, ...], for_s: float, as_json: bool, quiet: bool) -> int:
    """Measure clock offset between nodes and print offset, drift and error bound per node and edge.

    Nodes open a UDP socket for the duration and answer only each other. Exit codes: 0 all nodes measured, 3 some
    nodes not measured, 4 no node measured.

    \b
    gconsole clocks hosts.toml
    gconsole clocks hosts.toml --for 60s --json > clocks.jsonl
    gconsole clocks hosts.toml --set clock.preset=high --set clock.interface=ib0
    """
    from .live import run_clocks

    return run_clocks(load_target(target, overrides), for_s=for_s, as_json=as_json, quiet=quiet)
