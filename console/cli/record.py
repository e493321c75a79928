"""`gconsole record`: headless recording, and keeping what black boxes have recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..text.format import comma_words, date_time, duration, plural, size
from ..text.sanitize import printable
from .completion import complete_nodes, complete_targets
from .options import duration_option, json_option, load_target, node_names, overrides_option, usage_errors
from .terminal import print_result, print_text

if TYPE_CHECKING:
    from ..config import Config
    from ..core.control import KeptRecords
    from ..session.manage.black_boxes import BlackBoxFile
    from .json_documents import KeptSession


@click.command()
@click.argument("target", metavar="TARGET", required=False, shell_complete=complete_targets)
@overrides_option
@click.option("--name", required=True, help="Session name; resumes a crashed recording of that name.")
@duration_option(
    "--last", help="Keep what has just happened: the last 15m of the black box of a console that runs or has crashed."
)
@click.option(
    "--since", metavar="TIME", default="", help="The same from an instant on: 14:02:30, 2026-11-21T08:30:00 or -5m."
)
@duration_option("--for", "for_s", help="Duration.  [default: until Ctrl-C or `gconsole sessions stop`]")
@click.option("--metrics", metavar="FAMILY,…", default="", help="Only these metric families: gpu, nic, host, rank.")
@click.option("--kinds", metavar="KIND,…", default="", help="Only these record kinds (listed by gconsole schema).")
@click.option(
    "--nodes",
    metavar="NODES",
    default="",
    shell_complete=complete_nodes,
    help="Only these nodes of TARGET: node[1-4],gpu-a.",
)
@click.option("--gpus", metavar="GPU,…", default="", help="Of GPUs, only these: 0-3 (of every node), node2:7.")
@duration_option("--every", help="Downsample to one sample per interval.")
@click.option("--locals", "locals_too", is_flag=True, help="Keep captured local variables.")
@click.option("--redact", is_flag=True, help="Pseudonymise host and user names for sharing.")
@click.option("--clocks", is_flag=True, help="Measure clock offset between nodes throughout.")
@click.option("-o", "--output", metavar="FILE", help="At the end, write the report as JSON; - = stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Suppress progress and summary.")
@json_option
def record(
    target: str | None, overrides: tuple[str, ...], name: str, last: float | None, since: str, for_s: float | None,
    metrics: str, kinds: str, nodes: str, gpus: str, every: float | None, locals_too: bool, redact: bool, clocks: bool,
    output: str | None, quiet: bool, as_json: bool,
) -> int:  # fmt: skip
    """Record TARGET to a session; data reach the disk within one second.

    \b
    gconsole record --last 15m --name incident
    gconsole record --since 14:02:30 --name incident
    gconsole record hosts.toml --name evening-run --for 2h
    gconsole record hosts.toml --name gpus --metrics gpu --every 10s --nodes node[1-4]
    gconsole record hosts.toml --name to-share --redact
    gconsole record hosts.toml --name who-is-late --clocks --for 10m

    Secrets in command lines and environments are redacted. After a crash, the same command resumes the session and
    counts lost records; [agent] linger_s makes the nodes buffer data in the meantime.

    --last and --since connect to nothing. They make a session of the last minutes that every console keeps on this
    machine's disk ([console] black_box), up to the newest record, also after kill -9 or a power cut. TARGET is only
    needed if there are black boxes of several targets.
    """
    if last is not None or since:
        if last is not None and since:
            raise click.UsageError("specify either --last or --since")
        others = {
            "--for": for_s, "--metrics": metrics, "--kinds": kinds, "--nodes": nodes, "--gpus": gpus, "--every": every,
            "--locals": locals_too, "--redact": redact, "--clocks": clocks, "--output": output, "--set": overrides,
        }  # fmt: skip
        _refuse_others("--since" if since else "--last", [option for option, value in others.items() if value])
        return _keep(target or "", since if last is None else last, name, quiet=quiet, as_json=as_json)
    if target is None:
        raise click.UsageError("missing argument TARGET; without it only --last and --since are possible")
    from ..session.record.selection import select, selects
    from .live import HeadlessRecording, run_batch

    config = load_target(target, overrides)
    names = node_names(nodes, "--nodes") if nodes else ()
    with usage_errors():
        selection = select(
            names, comma_words(metrics), comma_words(kinds), every or 0.0, gpus=comma_words(gpus),
            locals_too=locals_too, anonymous=redact,
        )  # fmt: skip
    if clocks and not selects(selection, "clock_bins"):
        raise click.UsageError("--clocks requires the record kind clock_bins: add it to --kinds")
    unknown = set(selection.nodes) - {node.name for node in config.nodes}
    if unknown:
        raise click.BadParameter(f"not in {target}: {', '.join(sorted(unknown))}", param_hint="--nodes")
    if as_json and output == "-":
        raise click.UsageError("--json writes to stdout; write the report to a file: -o FILE")
    status = run_batch(
        config, for_s=math.inf if for_s is None else for_s, output=output, quiet=quiet,
        recording=HeadlessRecording(name, selection), probes=clocks, stdout_is_taken=as_json,
    )  # fmt: skip
    if as_json:
        _print_session(config, name)
    return status


def _print_session(config: Config, name: str) -> None:
    """Print the session as JSON, as `sessions show` does."""
    from ..runtime.console import sessions_folder_of
    from ..session.format.layout import named
    from ..session.manage.catalog import entry_of
    from ..text.documents import pretty
    from .sessions import session_summary

    print_text(pretty(session_summary(entry_of(named(name, sessions_folder_of(config))))), is_document=True)


def _refuse_others(keeps: str, options: list[str]) -> None:
    """Raises UsageError for options that only a new recording has."""
    if options:
        raise click.UsageError(
            f"{keeps} keeps what is recorded already; {', '.join(options)} would select what to record from now on"
        )


def _keep(target: str, wanted: float | str, name: str, *, quiet: bool, as_json: bool) -> int:
    """Make a session of the last seconds in the black boxes of TARGET, or of what is there since an instant."""
    from ..config import target_key
    from ..session.format.layout import sessions_folder
    from ..session.manage import black_boxes

    if isinstance(wanted, float) and wanted <= 0:
        raise click.BadParameter("use a duration above 0, such as 15m", param_hint="--last")
    folder = black_boxes.black_boxes_folder()
    with usage_errors(str(folder)):
        boxes = black_boxes.list_black_boxes(folder, flushed=True) if folder.is_dir() else []
        chosen = black_boxes.choose(boxes, target, target_key(target) if target else "")
        last_s = wanted if isinstance(wanted, float) else _seconds_since(wanted, chosen)
        kept = black_boxes.keep_last(chosen, last_s, name, sessions_folder(_configured_folder(chosen)))
    if as_json or not quiet:
        text = "\n".join(map(printable, kept_lines(kept)))
        print_result(_kept_session(kept), text, as_json=as_json)
    return 0


def _kept_session(kept: KeptRecords) -> KeptSession:
    from .json_documents import KeptSession

    return KeptSession(
        session=kept.path.name, path=str(kept.path), began=kept.began, ended=kept.ended, wanted_ns=kept.wanted_ns,
        is_limited=kept.is_limited, records=kept.records, bytes=kept.bytes, lost=kept.lost,
        damaged_bytes=kept.damaged_bytes,
    )  # fmt: skip


def _seconds_since(text: str, boxes: Sequence[BlackBoxFile]) -> float:
    """Seconds from an instant to the newest record of black boxes. Raises BadParameter."""
    from ..text.timespec import Duration, TimeSpecError, instant_ns, parse

    began, ended = min(box.began for box in boxes), max(box.ended for box in boxes)
    try:
        if isinstance(parse(text), Duration):
            raise click.BadParameter(f"use an instant, such as 14:02:30, or --last {text}", param_hint="--since")
        instant = instant_ns(text, began, ended)
    except TimeSpecError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    if instant >= ended:
        raise click.BadParameter(f"the newest record is of {date_time(ended)}", param_hint="--since")
    return (ended - instant) / 1e9


def _configured_folder(boxes: Sequence[BlackBoxFile]) -> str | None:
    """`[sessions] folder` of the target's file; None if it is not set, or the file cannot be read any more."""
    from ..config import ConfigError, is_file_target, load

    target = boxes[-1].meta.target
    try:
        return load(target).sessions.folder if is_file_target(target) else None
    except ConfigError:
        return None


def kept_lines(kept: KeptRecords) -> list[str]:
    """What was kept, and how it is used."""
    name = kept.path.name
    lines = [
        f"{name}: kept {duration(kept.covered_ns)}, {date_time(kept.began)} to {date_time(kept.ended)}: "
        f"{plural(kept.records, 'record')}, {size(kept.bytes)}"
    ]
    if kept.covered_ns < kept.wanted_ns:
        reason = (
            "older records were deleted, see [console] black_box_s and black_box_bytes"
            if kept.is_limited
            else "nothing was recorded before"
        )
        lines.append(f"  {duration(kept.wanted_ns)} were requested: {reason}")
    if kept.lost:
        lines.append(
            f"  ▲ {plural(kept.lost, 'record')} could not be written: a full or slow disk, or too many at once"
        )
    if kept.damaged_bytes:
        lines.append(f"  ✖ {size(kept.damaged_bytes)} were damaged and are left out")
    return [*lines, f"  {kept.path}", f"  next: gconsole replay {name}, or gconsole diagnose {name}"]
