"""`gconsole record`: a session without a screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from .options import DurationType, load_target, target

if TYPE_CHECKING:
    from ..core.control import Selection


@click.command()
@target
@click.option("--name", required=True, help="Of the session; one that a crash broke off goes on.")
@click.option("--for", "for_s", type=DurationType(), help="Record this long.  [default: until Ctrl-C or sessions stop]")
@click.option("--metrics", metavar="FAMILY,…", default="", help="Of figures only these: gpu, nic, host, rank.")
@click.option("--kinds", metavar="KIND,…", default="", help="Just these kinds of records (gconsole schema lists them).")
@click.option("--nodes", metavar="NODES", default="", help="Just these nodes of TARGET: node[1-4],gpu-a.")
@click.option("--every", metavar="DURATION", type=DurationType(), default="0s", help="At most one figure in so long.")
@click.option("--locals", "locals_too", is_flag=True, help="Keep the variables that captures read.")
@click.option("--redact", is_flag=True, help="Replace names of hosts and users, so that it can be shared.")
@click.option("--clocks", is_flag=True, help="Probe the nodes' clocks against each other all the while.")
@click.option("-o", "--output", metavar="FILE", help="At the end write the report as JSON; - is stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def record(
    target: str, overrides: tuple[str, ...], name: str, for_s: float | None, metrics: str, kinds: str, nodes: str,
    every: float, locals_too: bool, redact: bool, clocks: bool, output: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Record what the nodes of TARGET say, on the disk within a second, until it is ended.

    \b
    gconsole record hosts.toml --name evening-run --for 2h
    gconsole record hosts.toml --name gpus --metrics gpu --every 10s --nodes node[1-4]
    gconsole record hosts.toml --name to-share --redact
    gconsole record hosts.toml --name who-is-late --clocks --for 10m

    Command lines and environments are written without what looks like a secret. Where the console crashed, the same
    command goes on with the session, and counts what is missing; with [agent] linger_s the nodes bridge that time.
    """
    from ..session.record.selection import keeps
    from .live import run_batch
    from .recording import Tape

    config = load_target(target, overrides)
    selection = selection_of(
        metrics=metrics, kinds=kinds, nodes=nodes, every_s=every, locals_too=locals_too, anonymous=redact
    )
    if clocks and not keeps(selection, "clock_bins"):
        raise click.UsageError("--clocks is of no use to a session that keeps no clock_bins: add that to --kinds")
    unknown = set(selection.nodes) - {node.name for node in config.nodes}
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: not in {target}", param_hint="--nodes")
    return run_batch(
        config, for_s=math.inf if for_s is None else for_s, output=output, quiet=quiet, tape=Tape(name, selection),
        probes=clocks,
    )  # fmt: skip


def selection_of(
    *, metrics: str = "", kinds: str = "", nodes: str = "", every_s: float = 0.0, locals_too: bool = False,
    anonymous: bool = False,
) -> Selection:  # fmt: skip
    """What the options select. Raises UsageError for a word that is none."""
    from ..config.nodeset import expand
    from ..config.nodeset_parser import BadNodeSet
    from ..session.format.layout import SessionError
    from ..session.record.selection import select

    try:
        names = tuple(host.name for host in expand(nodes)) if nodes else ()
        return select(names, _words(metrics), _words(kinds), every_s, locals_too=locals_too, anonymous=anonymous)
    except (SessionError, BadNodeSet) as error:
        raise click.UsageError(str(error)) from error


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
