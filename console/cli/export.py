"""Commands that leave data for other tools: export, schema."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..text.documents import pretty
from ..text.format import comma_words
from ..text.sanitize import printable
from ..text.timespec import INSTANT_FORMS
from .completion import complete_sessions
from .options import json_option, node_names, session_or_file, sessions_folder, usage_errors
from .terminal import elapsed_shown, print_text

if TYPE_CHECKING:
    from ..session.export.formats import SessionFormat
    from ..session.export.slice import SessionSlice

#: Same as `session.export.formats.FORMS`, which --help must not import.
_FORMATS = ("json", "parquet", "csv", "perfetto", "speedscope", "gswarm", "html")


@click.command()
@click.argument("session", metavar="SESSION|FILE", shell_complete=complete_sessions)
@click.option("--format", "how", type=click.Choice(_FORMATS), default="json", show_default=True)
@click.option("-o", "--output", metavar="PATH", help="Output file or folder; - = stdout.")
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    default="",
    help=f"Start of the range: {INSTANT_FORMS}.",
)
@click.option("--to", "end", metavar="TIME", default="", help="End of the range (exclusive), same syntax as --from.")
@click.option("--nodes", metavar="NODES", help="Only these nodes: node[1-4],gpu-a.")
@click.option("--kinds", metavar="KIND,…", help="Only these record kinds.")
@click.option("--gpus", metavar="GPU,…", default="", help="Of GPUs, only these: 0-3 (of every node), node2:7.")
@sessions_folder
def export(
    session: str, how: str, output: str | None, begin: str, end: str, nodes: str | None, kinds: str | None, gpus: str,
    folder: Path,
) -> int:  # fmt: skip
    """Convert a session or an NDJSON recording to another format.

    \b
    gconsole export night --format html -o night.html
    gconsole export night --format perfetto --from -5m          last 5 minutes, for ui.perfetto.dev
    gconsole export night --format parquet --kinds gpu,rank_stat -o figures/
    gconsole export night -o night.json && gconsole sessions import night.json --name again
    """
    from ..session.export.formats import SESSION_FORMATS
    from ..session.export.slice import slice_session

    path = session_or_file(session, folder)
    form = SESSION_FORMATS[how]
    wanted = None if nodes is None else frozenset(node_names(nodes, "--nodes"))
    with usage_errors(output or session):
        what = slice_session(path, begin=begin, end=end, nodes=wanted, kinds=_kinds(kinds), gpus=comma_words(gpus))
        _check_nodes(what)
        _check_range(what, begin, end)
        with elapsed_shown(f"exporting {session}") if output != "-" else nullcontext():
            _write(form, what, output or f"{what.meta.name or path.stem}{form.suffix}")
    return 0


def _write(form: SessionFormat, what: SessionSlice, output: str) -> None:
    from ..text.atomic_files import make_folder, open_replacement
    from ..text.format import plural, size

    if form.is_folder:
        folder = Path(output)
        if output == "-":
            raise click.UsageError(f"{form.name} writes several files; specify a folder: -o FOLDER")
        if folder.exists() and any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty; specify a new or empty folder")
        make_folder(folder)
        files = form.write_folder(what, folder)
        print_text(printable(f"{folder}: {plural(len(files), 'file')}"), err=True)
    elif output == "-":
        form.write(what, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        with open_replacement(Path(output)) as file:
            form.write(what, file)
        print_text(printable(f"{output}: {size(Path(output).stat().st_size)}"), err=True)


def _check_range(what: SessionSlice, begin: str, end: str) -> None:
    """Raises UsageError for a range without records, instead of writing an empty file."""
    from ..session.format.reader import RecordFilter, records
    from ..text.format import date_time

    first, last = what.choice.from_rx, what.choice.to_rx
    if (begin or end) and next(records(what.path, RecordFilter(None, first, last)), None) is None:
        bounds = " ".join(
            f"{word} {date_time(instant)}" for word, instant in (("from", first), ("to", last)) if instant is not None
        )
        raise click.UsageError(f"nothing was recorded {bounds} (local time)")


def _check_nodes(what: SessionSlice) -> None:
    """Raises UsageError for nodes without records in a closed session or a file, instead of writing an empty file."""
    if what.nodes is None or (what.path.is_dir() and what.meta.state == "recording"):
        return
    recorded = {agent.node for agent in what.meta.agents.values() if agent.node} or what.recorded_nodes()
    if not recorded:
        return
    if unknown := what.nodes - recorded:
        from ..text.nodeset_fold import fold

        raise click.UsageError(
            f"--nodes: no records of {fold(sorted(unknown))}; recorded nodes: {fold(sorted(recorded))}"
        )


def _kinds(text: str | None) -> frozenset[str] | None:
    """Record kinds from a comma-separated list. Raises UsageError for unknown kinds."""
    if text is None:
        return None
    from ..session.format.table_schema import TABLES

    wanted = frozenset(comma_words(text))
    if unknown := wanted - set(TABLES):
        raise click.UsageError(f"--kinds: unknown kind: {', '.join(sorted(unknown))}; use {', '.join(TABLES)}")
    return wanted


@click.command()
@click.option("--kind", metavar="KIND", help="Only this record kind.")
@json_option
def schema(kind: str | None, as_json: bool) -> int:
    """Print the JSON schema of all record types, the report, exported sessions, and what commands print with --json.

    The output is JSON with and without --json.
    """
    import msgspec

    from ..records import KINDS
    from ..report import Report
    from ..session.export.document import SessionDocument
    from ..topology.json_document import TopologyDocument
    from .json_documents import DOCUMENTS

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"unknown record kind: {kind}; use {', '.join(sorted(KINDS))}")
    types = [KINDS[kind]] if kind else [*KINDS.values(), Report, TopologyDocument, SessionDocument, *DOCUMENTS]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:gconsole:schema:1",
        "anyOf": list(schemas), "$defs": components,
    }  # fmt: skip
    print_text(pretty(document), is_document=True)
    return 0
