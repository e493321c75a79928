"""`gconsole record`: headless recording."""

from __future__ import annotations

import math

import click

from ..text.format import comma_words
from .options import duration_option, load_target, node_names, target, usage_errors


@click.command()
@target
@click.option("--name", required=True, help="Session name; resumes a crashed recording of that name.")
@duration_option("--for", "for_s", help="Duration.  [default: until Ctrl-C or `gconsole sessions stop`]")
@click.option("--metrics", metavar="FAMILY,…", default="", help="Only these metric families: gpu, nic, host, rank.")
@click.option("--kinds", metavar="KIND,…", default="", help="Only these record kinds (listed by gconsole schema).")
@click.option("--nodes", metavar="NODES", default="", help="Only these nodes of TARGET: node[1-4],gpu-a.")
@duration_option("--every", help="Downsample to one sample per interval.")
@click.option("--locals", "locals_too", is_flag=True, help="Keep captured local variables.")
@click.option("--redact", is_flag=True, help="Pseudonymise host and user names for sharing.")
@click.option("--clocks", is_flag=True, help="Measure clock offset between nodes throughout.")
@click.option("-o", "--output", metavar="FILE", help="At the end, write the report as JSON; - = stdout.")
@click.option("--quiet", is_flag=True, help="Suppress progress and summary.")
def record(
    target: str, overrides: tuple[str, ...], name: str, for_s: float | None, metrics: str, kinds: str, nodes: str,
    every: float | None, locals_too: bool, redact: bool, clocks: bool, output: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Record TARGET to a session; data reach the disk within one second.

    \b
    gconsole record hosts.toml --name evening-run --for 2h
    gconsole record hosts.toml --name gpus --metrics gpu --every 10s --nodes node[1-4]
    gconsole record hosts.toml --name to-share --redact
    gconsole record hosts.toml --name who-is-late --clocks --for 10m

    Secrets in command lines and environments are redacted. After a crash, the same command resumes the session and
    counts lost records; [agent] linger_s makes the nodes buffer data in the meantime.
    """
    from ..session.record.selection import select, selects
    from .live import HeadlessRecording, run_batch

    config = load_target(target, overrides)
    names = node_names(nodes, "--nodes") if nodes else ()
    with usage_errors():
        selection = select(
            names, comma_words(metrics), comma_words(kinds), every or 0.0, locals_too=locals_too, anonymous=redact
        )
    if clocks and not selects(selection, "clock_bins"):
        raise click.UsageError("--clocks requires the record kind clock_bins: add it to --kinds")
    unknown = set(selection.nodes) - {node.name for node in config.nodes}
    if unknown:
        raise click.BadParameter(f"not in {target}: {', '.join(sorted(unknown))}", param_hint="--nodes")
    return run_batch(
        config, for_s=math.inf if for_s is None else for_s, output=output, quiet=quiet,
        recording=HeadlessRecording(name, selection), probes=clocks,
    )  # fmt: skip
