"""Commands that leave data for other tools: export, schema."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from ..text.documents import pretty
from ..text.format import comma_words
from ..text.sanitize import printable
from ..text.timespec import INSTANT_FORMS
from .completion import complete_sessions
from .options import json_option, node_names, session_or_file, sessions_folder, usage_errors
from .terminal import elapsed_shown, print_text

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
    from ..runtime.recorded import RecordedSession
    from ..session.export.formats import SESSION_FORMATS
    from ..text.format import plural, size

    path = session_or_file(session, folder)
    form = SESSION_FORMATS[how]
    if output == "-" and form.is_folder:
        raise click.UsageError(f"{how} writes several files; specify a folder: -o FOLDER")
    names = None if nodes is None else node_names(nodes, "--nodes")
    wanted = None if kinds is None else comma_words(kinds)
    with usage_errors(output or session):
        recorded = RecordedSession(path)
        place = output or f"{recorded.name}{form.suffix}"
        target = sys.stdout.buffer if output == "-" else place
        with elapsed_shown(f"exporting {session}") if output != "-" else nullcontext():
            written = recorded.export(
                how, target, since=begin or None, until=end or None, nodes=names, kinds=wanted, gpus=comma_words(gpus)
            )
        sys.stdout.buffer.flush()
        if output != "-":
            of = plural(len(written), "file") if form.is_folder else size(written[0].stat().st_size)
            print_text(printable(f"{place}: {of}"), err=True)
    return 0


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
