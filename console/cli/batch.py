"""`gconsole batch`: headless run with summary, report and exit code."""

from __future__ import annotations

from pathlib import Path

import click

from .options import DurationType, capture_order, capturing, stack_format, wanted_stacks


@click.command()
@click.argument("target", metavar="TARGET", required=False)
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a config value.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="0s",
    show_default=True,
    help="Duration; 0s = stop after the first full sample.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report as JSON; - = stdout.")
@click.option("--quiet", is_flag=True, help="Suppress progress and summary.")
@click.option("--records", type=click.Path(dir_okay=False, path_type=Path), help="Also write all records as NDJSON.")
@click.option("--record", "session", metavar="NAME", help="Also record a session with this name.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Read a recording (session or NDJSON file) instead of live nodes.",
)
@click.option(
    "--fail-on",
    default="error",
    show_default=True,
    metavar="SEVERITY|ID,…",
    help="Exit with code 1 on findings at or above this severity, or with these ids.",
)
@click.option("--clocks", is_flag=True, help="Also measure clock offset between nodes.")
@click.option("--skew", is_flag=True, help="Report late ranks; implies --clocks and one capture (or --diagnose).")
@click.option(
    "--metrics",
    metavar="FAMILY,…",
    default="",
    help="Stream samples to stdout as NDJSON: gpu (with gpu_link every 10 s, and gpu_digest every second"
    " for sample intervals below 1000 ms), nic, host, rank (rank_stat).",
)
@click.option(
    "--flight-pipe",
    is_flag=True,
    help="With a capture, trigger a Flight Recorder dump on every rank through its pipe. Adds work to the job;"
    " requires --set console.read_only=false.",
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
    """Run headless: progress on stderr, summary on stdout, report with -o, exit code.

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
        raise click.UsageError("specify either TARGET or --from SESSION|FILE")
    if skew and source is not None:
        raise click.UsageError("--skew requires live nodes; --from reports recorded skew by default")
    capture, clocks = capture or (skew and not diagnose), clocks or skew
    order = capture_order(capture, diagnose, samples, every, native, names, flight_pipe)
    if source is not None and (capture or samples is not None or native is not None or names is not None):
        raise click.UsageError("--capture requires live nodes; --from shows recorded captures by default")
    if source is not None and session is not None:
        raise click.UsageError("--record requires live nodes")
    wanted = _fail_on(fail_on)
    families = _families(metrics)
    if clocks and source is not None:
        raise click.UsageError("--clocks requires live nodes; --from shows recorded clock data by default")
    stacks = wanted_stacks(form, threads, granularity, output)
    if form is not None and (families or (source is None and order is None)):
        raise click.UsageError("--format requires --capture, --diagnose or --from, and conflicts with --metrics")
    if families and output == "-":
        raise click.UsageError("--metrics writes to stdout; write the report to a file: -o FILE")
    if source is not None:
        from .offline import run_from_file

        return run_from_file(
            source, output=output, quiet=quiet, fail_on=wanted, diagnose=diagnose, metrics=families, stacks=stacks
        )
    from ..config.model import Change, refusal
    from .live import run_batch
    from .options import load_target
    from .recording import HeadlessRecording

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
        recording=HeadlessRecording(session, None) if session is not None else None,
        stacks=stacks,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _fail_on(text: str) -> tuple[str, ...]:
    """Severities and finding ids from a comma-separated list. Raises UsageError for unknown words."""
    from ..analysis.finding import IDS
    from ..report import unknown_words

    words = _words(text)
    unknown = unknown_words(words)
    if unknown or not words:
        what = f"unknown severity or finding id: {', '.join(unknown)}" if unknown else "empty list"
        raise click.UsageError(f"--fail-on: {what}; use error, warning, info, or {', '.join(sorted(IDS))}")
    return words


def _families(text: str) -> tuple[str, ...]:
    """Metric families from a comma-separated list. Raises UsageError for unknown families."""
    from ..session.ndjson import METRIC_FAMILIES

    words = _words(text)
    unknown = [word for word in words if word not in METRIC_FAMILIES]
    if unknown:
        raise click.UsageError(f"--metrics: {', '.join(unknown)}: unknown family; use {', '.join(METRIC_FAMILIES)}")
    return words
