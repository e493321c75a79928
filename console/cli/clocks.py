"""`gconsole clocks`: measure the offsets between nodes, and put traces of other tools on the common clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import (
    InputPath,
    duration_option,
    json_option,
    load_target,
    session_or_file,
    sessions_folder,
    target,
    usage_errors,
)
from .terminal import print_result

if TYPE_CHECKING:
    from ..session.export.foreign_traces import AppliedTrace

_HAS_SUBCOMMAND = "gconsole.clocks.has_subcommand"


class ClocksGroup(click.Group):
    """`clocks TARGET` with its options measures; `clocks apply` converts traces."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all arguments to the subcommand, if the first word is one."""
        if args and args[0] in self.commands:
            ctx.meta[_HAS_SUBCOMMAND] = True
            ctx.allow_interspersed_args = False
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """TARGET and its options; none for a subcommand, whose usage shall not name them either."""
        return [] if _HAS_SUBCOMMAND in ctx.meta or ctx.command is not self else super().get_params(ctx)


@click.group(cls=ClocksGroup, invoke_without_command=True)
@target
@duration_option("--for", "for_s", default="12s", help="Duration; at least one full window ([clock] probe_window_s).")
@click.option("--json", "as_json", is_flag=True, help="Print NDJSON: one line per window of each edge and node.")
@click.option("-q", "--quiet", is_flag=True, help="Suppress progress.")
@click.pass_context
def clocks(
    ctx: click.Context, target: str = "", overrides: tuple[str, ...] = (), for_s: float = 0.0, as_json: bool = False,
    quiet: bool = False,
) -> int:  # fmt: skip
    """Measure clock offset between nodes and print offset, drift and error bound per node and edge.

    Nodes open a UDP socket for the duration and answer only each other. Exit codes: 0 all nodes measured, 3 some
    nodes not measured, 4 no node measured.

    \b
    gconsole clocks hosts.toml
    gconsole clocks hosts.toml --for 60s --json > clocks.jsonl
    gconsole clocks hosts.toml --set clock.preset=high --set clock.interface=ib0
    gconsole clocks apply rank0.json rank1.json --from night -o merged.json
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from ..config import ConfigError
    from .live import run_clocks

    config = load_target(target, overrides)
    if not config.clock.enabled:
        raise ConfigError("", "clock.enabled", "clocks are not compared; set it to true to measure them")
    return run_clocks(config, for_s=for_s, as_json=as_json, quiet=quiet)


@clocks.command("apply")
@click.argument(
    "paths", metavar="TRACE…", nargs=-1, required=True, type=InputPath(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--from", "session", metavar="SESSION|FILE", required=True, help="Recording with clocks (--clocks).")
@click.option(
    "--node", "nodes", metavar="NODE", multiple=True,
    help="Node of each trace, in their order; once for all. Default: the node of the rank that the trace names.",
)  # fmt: skip
@click.option(
    "--clock", type=click.Choice(["real", "monotonic", "boot", "raw"]),
    help="Clock of the times. Default: CLOCK_REALTIME, as torch.profiler (Kineto) writes.",
)  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="Merged trace; - = stdout.  [default: merged.json]")
@sessions_folder
@json_option
def apply_clocks(
    paths: tuple[Path, ...], session: str, nodes: tuple[str, ...], clock: Any, output: str | None, folder: Path,
    as_json: bool,
) -> int:  # fmt: skip
    """Put Chrome, Kineto or Perfetto traces (JSON) of several nodes on the common clock, as one trace.

    Each trace keeps its processes, labelled with rank, node and error bound; a counter shows the bound over time.
    Traces may be compressed with gzip; - is standard input. Two events of different nodes are ordered only if they
    are further apart than the sum of both bounds.

    \b
    gconsole record hosts.toml --name night --clocks
    gconsole clocks apply rank0.pt.trace.json rank1.pt.trace.json.gz --from night -o merged.json
    gconsole clocks apply trace.json --node node2 --from night
    """
    from ..session.export import foreign_traces
    from ..text.atomic_files import open_replacement

    if as_json and output == "-":
        raise click.UsageError("--json writes to stdout; write the trace to a file: -o FILE")
    output = output or "merged.json"
    if len(nodes) not in (0, 1, len(paths)):
        raise click.BadParameter(f"{len(nodes)} nodes for {len(paths)} traces", param_hint="--node")
    named = [nodes[0] if len(nodes) == 1 else nodes[index] if nodes else None for index in range(len(paths))]
    source = session_or_file(session, folder)
    with usage_errors(session):
        common, ranks = foreign_traces.clock_and_ranks(source)
        traces = [foreign_traces.read_trace(path, node, ranks, clock) for path, node in zip(paths, named, strict=True)]
        if output == "-":
            applied = foreign_traces.write_merged(traces, common, sys.stdout.buffer)
        else:
            with open_replacement(Path(output)) as file:
                applied = foreign_traces.write_merged(traces, common, file)
    from .json_documents import AppliedClocks, TraceOnClock

    traces_on_clock = tuple(
        TraceOnClock(str(done.path), done.node, done.rank, done.events, done.begin_ns, done.end_ns, done.bound_ns)
        for done in applied
    )
    text = "\n".join(map(_line, applied))
    print_result(AppliedClocks(output=output, traces=traces_on_clock), text, as_json=as_json, err=True)
    return 0


def _line(done: AppliedTrace) -> str:
    from ..text.format import micro
    from ..text.sanitize import printable

    rank = "" if done.rank is None else f", rank {done.rank}"
    took_s = (done.end_ns - done.begin_ns) / 1e9
    return printable(
        f"{done.path}: {done.events} events of {took_s:.3f} s on {done.node}{rank}, ± {micro(done.bound_ns)} µs"
    )
