"""`gconsole export`: a session, or a part of one, in the forms that other programs read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.export.formats import Form
    from ..session.export.slice import Chosen

#: As `session.forms` has them, which --help need not load.
_FORMATS = ("json", "parquet", "csv", "perfetto", "speedscope", "gswarm", "html")


@click.command()
@click.argument("session", metavar="SESSION|FILE")
@click.option("--format", "how", type=click.Choice(_FORMATS), default="json", show_default=True)
@click.option("-o", "--output", metavar="PATH", help="The file or folder to write; - is stdout.")
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    default="",
    help="First instant: 90s (after the start), -5m (before the end), 50%, 14:02:30 or 2026-11-21T08:30:00.",
)
@click.option("--to", "end", metavar="TIME", default="", help="End of the range (exclusive); as --from.")
@click.option("--nodes", metavar="NODES", help="Only these nodes: node[1-4],gpu-a.")
@click.option("--kinds", metavar="KIND,…", help="Only these kinds of record.")
@sessions_folder
def export(
    session: str, how: str, output: str | None, begin: str, end: str, nodes: str | None, kinds: str | None, folder: Path
) -> int:
    """Write a session, or a file of `batch --records`, in a form that other programs read.

    \b
    gconsole export night --format html -o night.html
    gconsole export night --format perfetto --from -5m          the last five minutes, for ui.perfetto.dev
    gconsole export night --format parquet --kinds gpu,rank_stat -o figures/
    gconsole export night -o night.json && gconsole sessions import night.json --name again
    """
    from ..session.export.formats import FORMS
    from ..session.export.slice import chosen
    from ..session.format.layout import SessionError
    from ..session.ndjson import RecordFileError

    path = session_path(session, folder)
    form = FORMS[how]
    try:
        what = chosen(path, begin=begin, end=end, nodes=_nodes(nodes), kinds=_kinds(kinds))
        _check_nodes(what)
        _write(form, what, output or f"{what.meta.name or path.stem}{form.suffix}")
    except (SessionError, RecordFileError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.FileError(str(error.filename or output or session), error.strerror or str(error)) from error
    return 0


def _write(form: Form, what: Chosen, output: str) -> None:
    from ..text.atomic_files import being_written, make_folder
    from ..text.format import plural, size

    if form.is_folder:
        folder = Path(output)
        if output == "-":
            raise click.UsageError(f"{form.name} is several files; name a folder: -o FOLDER")
        if folder.exists() and any(folder.iterdir()):
            raise click.UsageError(f"{folder}: there is something in it; name a new folder, or empty it first")
        make_folder(folder)
        files = form.write_folder(what, folder)
        click.echo(f"{folder}: {plural(len(files), 'file')}", err=True)
    elif output == "-":
        form.write(what, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        with being_written(Path(output)) as file:
            form.write(what, file)
        click.echo(f"{output}: {size(Path(output).stat().st_size)}", err=True)


def session_path(session: str, folder: Path) -> Path:
    """The file or the session that a word on the command line means. Raises UsageError."""
    from ..session.format.layout import SessionError, find

    if Path(session).is_file():
        return Path(session)
    try:
        return find(session, folder).path
    except SessionError as error:
        raise click.UsageError(str(error)) from error


def _nodes(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    from ..config.nodeset import expand
    from ..config.nodeset_parser import BadNodeSet

    try:
        return frozenset(host.name for host in expand(text))
    except BadNodeSet as error:
        raise click.UsageError(f"--nodes: {error}") from error


def _check_nodes(what: Chosen) -> None:
    """Raises UsageError for nodes of which a closed session has nothing: an empty file would not tell why."""
    known = {heard.node for heard in what.meta.agents.values() if heard.node}
    if what.nodes is None or not known or what.meta.state == "recording":
        return
    if strange := what.nodes - known:
        from ..text.nodeset_fold import fold

        raise click.UsageError(f"--nodes: nothing is known of {fold(sorted(strange))}; there are {fold(sorted(known))}")


def _kinds(text: str | None) -> frozenset[str] | None:
    """Kinds of records. Raises UsageError for one that is none."""
    if text is None:
        return None
    from ..session.format.table_schema import TABLES

    wanted = frozenset(word.strip() for word in text.split(",") if word.strip())
    if unknown := wanted - set(TABLES):
        raise click.UsageError(f"--kinds: no such kind: {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    return wanted
