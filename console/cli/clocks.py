"""`gconsole clocks`: how far the nodes' clocks are apart, with bounds."""

from __future__ import annotations

import click

from .options import DurationType, load_target


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a key of hosts.toml.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="12s",
    show_default=True,
    help="Probe this long, and for one whole window ([clock] probe_window_s) at least.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each window of an edge and of a node.")
@click.option("--quiet", is_flag=True, help="No progress.")
def clocks(target: str, overrides: tuple[str, ...], for_s: float, as_json: bool, quiet: bool) -> int:
    """Probe the clocks of all nodes, and print every node's offset, drift and bound, and every edge's.

    Nodes open a UDP socket for so long, and answer none but each other. Exit codes: 0 every node has a line, 3 some
    have none, 4 none has.

    \b
    gconsole clocks hosts.toml
    gconsole clocks hosts.toml --for 60s --json > clocks.jsonl
    gconsole clocks hosts.toml --set clock.preset=high --set clock.interface=ib0
    """
    from .live import run_clocks

    return run_clocks(load_target(target, overrides), for_s=for_s, as_json=as_json, quiet=quiet)
