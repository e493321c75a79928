"""`gconsole batch`: the console without a screen."""

from __future__ import annotations

from pathlib import Path

import click

from .options import DurationType, capture_order, capturing, stack_format, wanted_stacks


@click.command()
@click.argument("target", metavar="TARGET", required=False)
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a key of hosts.toml.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="0s",
    show_default=True,
    help="Watch this long; 0s ends when every node has sent its first full tick or failed.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report as JSON; - is stdout.")
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
@click.option(
    "--records", type=click.Path(dir_okay=False, path_type=Path), help="Also write every record, a line each."
)
@click.option("--record", "session", metavar="NAME", help="Also record all of it, as a session of that name.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Read such a file, or a session, instead of watching nodes.",
)
@click.option(
    "--fail-on",
    default="error",
    show_default=True,
    metavar="SEVERITY|ID,…",
    help="Findings that make the exit code 1: at or above a severity, or by id.",
)
@click.option("--clocks", is_flag=True, help="Probe the nodes' clocks against each other meanwhile.")
@click.option(
    "--skew", is_flag=True, help="Say who is late: --clocks, and at the end one capture (unless more is asked for)."
)
@click.option(
    "--metrics",
    metavar="FAMILY,…",
    default="",
    help="Stream samples to stdout as they come, a line of JSON each: gpu (with gpu_link each 10 s, and"
    " gpu_digest each second below 1000 ms), nic, host, rank (rank_stat).",
)
@click.option(
    "--flight-pipe",
    is_flag=True,
    help="With a capture, make ranks write their Flight Recorder's dump, by its pipe: work for the job;"
    " needs --set console.read_only=false.",
)
@stack_format
@capturing
def batch(
    target: str | None,
    overrides: tuple[str, ...],
    for_s: float,
    output: str | None,
    quiet: bool,
    records: Path | None,
    session: str | None,
    source: Path | None,
    fail_on: str,
    clocks: bool,
    skew: bool,
    metrics: str,
    capture: bool,
    diagnose: bool,
    samples: int | None,
    every: float | None,
    native: bool | None,
    names: str | None,
    flight_pipe: bool,
    form: str | None,
    threads: str,
    granularity: str,
) -> int:
    """Watch without a screen: progress on stderr, a summary on stdout, a report with -o, an exit code.

    \b
    gconsole batch hosts.toml --for 10s -o report.json
    gconsole batch hosts.toml --diagnose
    gconsole batch hosts.toml --clocks --for 30s
    gconsole batch hosts.toml --skew --fail-on straggler,desync
    gconsole batch hosts.toml --capture --samples 3 --every 300ms
    gconsole batch hosts.toml --for 1h --fail-on gpu_xid,nvlink_down
    gconsole batch hosts.toml --for 1h --metrics gpu,nic | jq -c '[.node, .index, .power_w]'
    gconsole batch hosts.toml --for 10m --diagnose --record hang-17
    gconsole batch hosts.toml --records night.ndjson && gconsole batch --from night.ndjson
    """
    if (target is None) == (source is None):
        raise click.UsageError("give either a TARGET or --from SESSION|FILE")
    if skew and source is not None:
        raise click.UsageError("--skew needs nodes; who is late in a file is told without it")
    capture, clocks = capture or (skew and not diagnose), clocks or skew
    order = capture_order(capture, diagnose, samples, every, native, names, flight_pipe)
    if source is not None and (capture or samples is not None or native is not None or names is not None):
        raise click.UsageError("--capture needs nodes; the captures of a file are shown without it")
    if source is not None and session is not None:
        raise click.UsageError("--record needs nodes; there is nothing to record in a file")
    wanted = _fail_on(fail_on)
    families = _families(metrics)
    if clocks and source is not None:
        raise click.UsageError("--clocks needs nodes; the clocks of a file are shown without it")
    stacks = wanted_stacks(form, threads, granularity, output)
    if form is not None and (families or (source is None and order is None)):
        raise click.UsageError("--format belongs to --capture, --diagnose or --from, without --metrics")
    if families and output == "-":
        raise click.UsageError("--metrics has stdout for itself; write the report to a file: -o FILE")
    if source is not None:
        from .offline import run_from_file

        return run_from_file(
            source, output=output, quiet=quiet, fail_on=wanted, diagnose=diagnose, metrics=families, stacks=stacks
        )
    from ..config.read_only import Change, refusal
    from .live import run_batch
    from .options import load_target
    from .recording import Tape

    config = load_target(target or "", overrides)
    refused = refusal(config.console, Change.FLIGHT_PIPE) if flight_pipe else None
    if refused is not None:
        raise refused
    return run_batch(
        config,
        for_s=for_s,
        output=output,
        quiet=quiet,
        records=records,
        fail_on=wanted,
        order=order,
        metrics=families,
        clocks=clocks,
        tape=Tape(session, None) if session is not None else None,
        stacks=stacks,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _fail_on(text: str) -> tuple[str, ...]:
    """Severities and ids of findings. Raises UsageError for a word that is neither."""
    from ..analysis.finding_catalog import IDS
    from ..report import unknown_words

    words = _words(text)
    unknown = unknown_words(words)
    if unknown or not words:
        what = f"{', '.join(unknown)}: no severity and no id of a finding" if unknown else "nothing is named"
        raise click.UsageError(f"--fail-on: {what}; there are error, warning, info, and {', '.join(sorted(IDS))}")
    return words


def _families(text: str) -> tuple[str, ...]:
    """Families of samples. Raises UsageError for one that is none."""
    from ..session.metrics_stream import METRIC_FAMILIES

    words = _words(text)
    unknown = [word for word in words if word not in METRIC_FAMILIES]
    if unknown:
        raise click.UsageError(f"--metrics: {', '.join(unknown)}: unknown family; use {', '.join(METRIC_FAMILIES)}")
    return words
