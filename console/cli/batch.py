"""Commands that print a summary, write a report and set an exit code: batch (live), diagnose (recorded)."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ..text.format import comma_words
from ..text.sanitize import printable
from .completion import complete_sessions
from .options import (
    InputPath,
    capture_order,
    capturing,
    duration_option,
    fail_on_option,
    report_output,
    selecting,
    selection_of,
    stack_format,
    target_or_recording,
    wanted_stacks,
)

_report_option = click.option("-o", "--output", metavar="FILE", help="Write the report as JSON; - = stdout.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON: same as -o -.")


@click.command()
@target_or_recording
@duration_option("--for", "for_s", default="0s", help="Duration; 0s = stop after the first full sample.")
@_report_option
@click.option("-q", "--quiet", is_flag=True, help="Suppress progress and summary.")
@click.option("--records", type=click.Path(dir_okay=False, path_type=Path), help="Also write all records as NDJSON.")
@click.option("--record", "session", metavar="NAME", help="Also record a session with this name.")
@fail_on_option
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
@selecting
@capturing
@_json_option
def batch(
    target: str | None, overrides: tuple[str, ...], for_s: float, output: str | None, quiet: bool,
    records: Path | None, session: str | None, source: Path | None, fail_on: tuple[str, ...], clocks: bool, skew: bool,
    metrics: str, capture: bool, diagnose: bool, samples: int | None, every: float | None, native: bool | None,
    names: str | None, jobs: tuple[str, ...], ranks: str | None, processes: tuple[str, ...], flight_pipe: bool,
    form: str | None, threads: str, granularity: str, as_json: bool,
) -> int:  # fmt: skip
    """Run headless: progress on stderr, summary on stdout, report with -o, exit code.

    \b
    gconsole batch hosts.toml --for 10s -o report.json
    gconsole batch hosts.toml --diagnose
    gconsole batch hosts.toml --clocks --for 30s
    gconsole batch hosts.toml --skew --fail-on straggler,desync
    gconsole batch hosts.toml --capture --samples 3 --every 300ms
    gconsole batch hosts.toml --capture --pid node01:4242
    gconsole batch hosts.toml --for 1h --fail-on gpu_xid,nvlink_down
    gconsole batch hosts.toml --for 1h --metrics gpu,nic | jq -c '[.node, .index, .power_w]'
    gconsole batch hosts.toml --for 10m --diagnose --record hang-17
    gconsole batch hosts.toml --records night.ndjson && gconsole batch --from night.ndjson
    """
    output = report_output(output, as_json)
    if skew and source is not None:
        raise click.UsageError("--skew requires live nodes; --from reports recorded skew by default")
    capture, clocks = capture or (skew and not diagnose), clocks or skew
    order = capture_order(capture, diagnose, samples, every, native, names, flight_pipe)
    selection = selection_of(order, jobs, ranks, processes)
    if source is not None and (jobs or ranks or processes):
        raise click.UsageError("--job, --rank and --pid require live nodes")
    if source is not None and (capture or samples is not None or native is not None or names is not None):
        raise click.UsageError("--capture requires live nodes; --from shows recorded captures by default")
    if source is not None and session is not None:
        raise click.UsageError("--record requires live nodes; --from reads what is recorded already")
    families = _families(metrics)
    if clocks and source is not None:
        raise click.UsageError("--clocks requires live nodes; --from shows recorded clock data by default")
    if source is not None:
        for option, value in (("--for", for_s), ("--records", records), ("--set", overrides)):
            if value:
                raise click.UsageError(f"{option} requires live nodes and has no effect on --from; leave it out")
    stacks = wanted_stacks(form, threads, granularity, output)
    if form is not None and (families or (source is None and order is None)):
        raise click.UsageError("--format requires --capture, --diagnose or --from, and conflicts with --metrics")
    if families and output == "-":
        raise click.UsageError("--metrics writes to stdout; write the report to a file: -o FILE")
    if source is not None:
        from .output import run_from_file

        return run_from_file(
            source, output=output, quiet=quiet, fail_on=fail_on, diagnose=diagnose, metrics=families, stacks=stacks
        )
    from ..config.model import Change, refusal
    from .live import HeadlessRecording, run_batch
    from .options import load_target

    config = load_target(target or "", overrides)
    refused = refusal(config.console, Change.FLIGHT_PIPE) if flight_pipe else None
    if refused is not None:
        raise refused
    return run_batch(
        config, for_s=for_s, output=output, quiet=quiet, records=records, fail_on=fail_on, order=order,
        metrics=families, clocks=clocks, stacks=stacks, selection=selection, own_checks=True, rereads=skew,
        recording=HeadlessRecording(session, None) if session is not None else None,
    )  # fmt: skip


@click.command()
@click.argument(
    "source", metavar="SESSION|RECORDS|FOLDER", type=InputPath(path_type=Path), shell_complete=complete_sessions
)
@_report_option
@click.option("-q", "--quiet", is_flag=True, help="Suppress the summary.")
@click.option(
    "--model",
    "models",
    metavar="'CLASS FUNCTION [FILE]'",
    multiple=True,
    help="Frame model for your framework's calls, in the format of [hang] models; folders only. Repeatable.",
)
@stack_format
@fail_on_option
@_json_option
def diagnose(
    source: Path, output: str | None, quiet: bool, models: tuple[str, ...], fail_on: tuple[str, ...], form: str | None,
    threads: str, granularity: str, as_json: bool,
) -> int:  # fmt: skip
    """Find why a job hung or died, from a session, an NDJSON recording, or a folder of logs and dumps.

    Logs are outputs of ranks and launchers: one file per rank or pod, torchrun's --log-dir, or one file of all ranks
    (slurm-123.out), also as .gz. The verdict names the first failure with file and line; what follows from it is the
    cascade. Ranks are taken from prefixes of lines ([rank3]:), then from the names of files and folders.

    Dumps are `py-spy dump` output of each rank (text or JSON), one file per process; the rank is taken from the
    name of the file (rank3.txt, node2.rank-3.1.json) or of its folder. Several dumps of one rank, a few seconds apart,
    are required to prove a hang. PyTorch Flight Recorder dumps (nccl_trace_rank_3), NCCL RAS output, and logs of NCCL
    or NCCL Inspector in the folder are shown and included in the verdict.

    \b
    gconsole diagnose evening-run
    gconsole diagnose night.ndjson
    gconsole diagnose logs/
    gconsole diagnose dumps/
    gconsole diagnose dumps/ --format speedscope > stacks.speedscope.json
    gconsole diagnose dumps/ --format dot | dot -Tsvg > stacks.svg
    """
    from .output import run_from_file, run_from_folder, session_of

    _refuse_target(str(source))
    output = report_output(output, as_json)
    stacks = wanted_stacks(form, threads, granularity, output)
    if session_of(source) is None and source.is_dir():
        return run_from_folder(source, models, output=output, quiet=quiet, fail_on=fail_on, stacks=stacks)
    if models:
        raise click.UsageError("--model applies to folders only; recordings contain their models")
    return run_from_file(source, output=output, quiet=quiet, fail_on=fail_on, diagnose=True, stacks=stacks)


def _refuse_target(word: str) -> None:
    """Raises UsageError for hosts instead of a recording: `batch` diagnoses these. A session may be named `local`."""
    from .target_names import is_plainly_a_target

    is_input = word == "local" or (Path(word).exists() and Path(word).suffix != ".toml")
    if is_plainly_a_target(word) and not is_input:
        shown = printable(word)
        how = f"gconsole batch {shlex.quote(shown)} --diagnose"
        raise click.UsageError(f"diagnose reads a recording or a folder, not live nodes; to diagnose {shown}: {how}")


def _families(text: str) -> tuple[str, ...]:
    """Metric families from a comma-separated list. Raises UsageError for unknown families."""
    from ..session.ndjson import METRIC_FAMILIES

    words = comma_words(text)
    unknown = [word for word in words if word not in METRIC_FAMILIES]
    if unknown:
        raise click.UsageError(f"--metrics: {', '.join(unknown)}: unknown family; use {', '.join(METRIC_FAMILIES)}")
    return words
