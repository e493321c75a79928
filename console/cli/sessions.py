"""`gconsole sessions`: what is recorded, and what can be done with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..text import format
from ..text.json import pretty
from ..text.sanitize import printable
from . import session_table
from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.record.repair import Findings


class _Sessions(click.Group):
    """Its errors are one line each, and exit code 2: what was asked for cannot be."""

    def invoke(self, ctx: click.Context) -> Any:
        from ..session.format.layout import SessionError

        try:
            return super().invoke(ctx)
        except SessionError as error:
            raise click.UsageError(printable(str(error))) from error
        except OSError as error:
            raise click.FileError(str(error.filename or "sessions"), error.strerror or str(error)) from error


@click.group(cls=_Sessions)
def sessions() -> None:
    """What was recorded: list it, check it, mend what a crash left, put it together, throw it away.

    SESSION is a name, or the path of a session's folder.
    """


@sessions.command("list")
@sessions_folder
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
def list_sessions(folder: Path, as_json: bool) -> None:
    """All sessions, the newest last."""
    from ..session.manage.catalog import everything

    found = everything(folder)
    if as_json:
        click.echo(_json([session_table.row(one) for one in found]))
    elif not found:
        click.echo(f"no sessions in {folder}; record one: gconsole record hosts.toml --name NAME")
    else:
        click.echo(session_table.sessions_text(found))


@sessions.command()
@click.argument("session")
@sessions_folder
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")
def show(session: str, folder: Path, as_json: bool) -> None:
    """What one session holds."""
    from ..session.format.layout import find
    from ..session.manage.catalog import listed

    one = listed(find(session, folder))
    click.echo(_json(session_table.row(one)) if as_json else "\n".join(map(printable, session_table.story(one))))


@sessions.command()
@click.argument("session", required=False)
@sessions_folder
def recover(session: str | None, folder: Path) -> int:
    """Mend what a crashed console left: cut the torn end, count, close. Without SESSION every one that needs it."""
    from ..session.format.layout import SessionError, find
    from ..session.manage.catalog import everything
    from ..session.record.repair import recover as mend

    if session is not None:
        one = find(session, folder)
        click.echo(f"{one.name}: {_told(mend(one, _progress()))}")
        return 0
    wanted = [one.session for one in everything(folder) if one.standing in ("crashed", "unreadable")]
    status = 0
    for one in wanted:
        try:
            click.echo(f"{one.name}: {_told(mend(one, _progress()))}")
        except (SessionError, OSError) as error:  # the others can be mended all the same
            click.echo(printable(f"{one.name}: {error}"), err=True)
            status = 2
    if not wanted:
        click.echo("no session needs it")
    return status


@sessions.command()
@click.argument("session")
@sessions_folder
def verify(session: str, folder: Path) -> int:
    """Read all of a session and check every checksum; exit code 1 where something is damaged. Nothing is changed."""
    from ..session.format.layout import find
    from ..session.record.repair import verify as check

    one = find(session, folder)
    one.read()
    found = check(one, _progress())
    click.echo(f"{one.name}: {_told(found)}")
    for line in [str(damage) for damage in found.damages] + found.unknown[:20]:
        click.echo(f"  ✖ {printable(line)}")
    return 0 if found.is_sound and not found.cut_bytes and not found.missing else 1


@sessions.command()
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@sessions_folder
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(names: tuple[str, ...], folder: Path, yes: bool) -> None:
    """Remove sessions for ever."""
    from ..session.format.layout import find
    from ..session.manage.retention import delete as remove

    wanted = [find(name, folder) for name in names]
    if not yes:
        what = ", ".join(f"{one.name} ({format.size(one.size())})" for one in wanted)
        if not sys.stdin.isatty():
            raise click.UsageError(f"nobody is there to be asked whether {what} may go for ever: --yes")
        click.confirm(f"Delete {what} for ever?", abort=True, err=True)
    for one in wanted:
        remove(one)
        click.echo(f"{one.name}: deleted")


@sessions.command()
@click.argument("session")
@click.argument("name")
@sessions_folder
def rename(session: str, name: str, folder: Path) -> None:
    """Give SESSION another NAME."""
    from ..session.format.layout import find
    from ..session.manage.catalog import rename as give

    one = find(session, folder)
    click.echo(f"{one.name}: is {give(one, name).name} now")


@sessions.command()
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@click.option("--into", required=True, metavar="NAME", help="Of the new session.")
@sessions_folder
def merge(names: tuple[str, ...], into: str, folder: Path) -> None:
    """Put the records of several sessions into one new session, each record once; they themselves stay."""
    from ..session.format.layout import find, named
    from ..session.manage.catalog import merge as put_together

    meta = put_together([find(name, folder) for name in names], named(into, folder))
    click.echo(f"{into}: {meta.records} records")


@sessions.command("compact")
@click.argument("session")
@click.option("--drop-segments", is_flag=True, help="Then remove what Parquet stands for, where every record is in it.")
@sessions_folder
def compact_session(session: str, drop_segments: bool, folder: Path) -> int:
    """Make Parquet of SESSION, for DuckDB, pandas, Spark, Ray Data and Dask: one table a kind, an hour a folder.

    Its segments stay as they are, unless they are to be dropped; every command reads the Parquet then. It can be
    interrupted, and goes on where it was; of a session that is being recorded it takes what is sealed. Exit code 1
    where a segment is damaged: its other records are there.
    """
    from ..session.format.layout import find
    from ..session.manage.compact import compact
    from ..session.manage.drop_segments import drop_segments as drop

    one = find(session, folder)
    done = compact(one, _progress())
    rows, size = (
        sum(part.rows for part in done.parts),
        sum((one.parquet_folder / part.path).stat().st_size for part in done.parts),
    )
    click.echo(f"{one.name}: {rows} records in {len(done.parts)} files, {format.size(size)}: {one.parquet_folder}")
    if one.is_being_written():
        click.echo("  it is being recorded: what it holds beyond that is not sealed yet")
    if drop_segments:
        click.echo(f"  {format.size(drop(one))} of segments dropped")
    if done.damaged_bytes:
        click.echo(f"  ✖ {format.size(done.damaged_bytes)} of its segments are damaged, and not in them", err=True)
    return 1 if done.damaged_bytes else 0


@sessions.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", metavar="NAME", help="Of the new session; else the one that the file says, or is called.")
@sessions_folder
def import_session(file: Path, name: str | None, folder: Path) -> None:
    """Make a session of FILE: what `gconsole export --format json` wrote, or the records of `batch --records`."""
    from ..session.format.layout import SessionError
    from ..session.manage.import_ import import_file
    from ..session.ndjson import RecordFileError

    try:
        session, meta = import_file(file, name, folder)
    except RecordFileError as error:
        raise SessionError(str(error)) from error
    click.echo(f"{session.name}: {meta.records} records")


@sessions.command()
@click.argument("session")
@click.argument("text")
@sessions_folder
def mark(session: str, text: str, folder: Path) -> None:
    """Keep a note with SESSION: now while it is recorded, else at its end."""
    from ..session.format.layout import find
    from ..session.manage.catalog import mark as annotate

    one = find(session, folder)
    annotate(one, text)
    click.echo(f"{one.name}: marked")


@sessions.command()
@click.argument("session")
@sessions_folder
def stop(session: str, folder: Path) -> None:
    """End a recording that runs in another terminal."""
    from ..session.format.layout import SessionError, find
    from ..session.record.control_files import ask_to_stop

    one = find(session, folder)
    if not one.is_being_written():
        raise SessionError(f"{one.name}: nobody records it")
    ask_to_stop(one)
    deadline = time.monotonic() + 10.0
    while one.is_being_written():
        if time.monotonic() > deadline:
            raise SessionError(f"{one.name}: asked, but it still runs; its disk may hang")
        time.sleep(0.1)
    click.echo(f"{one.name}: ended")


def _progress() -> Callable[[int, int], None]:
    """On a terminal, how far it is; elsewhere nothing."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty() and total:
            click.echo(f"\r\x1b[K{100 * done // total} %", err=True, nl=done >= total)

    return show


def _told(found: Findings) -> str:
    parts = [f"{found.records} records in {found.frames} frames"]
    if found.cut_bytes:
        parts.append(f"a torn end of {format.size(found.cut_bytes)}")
    if found.damages:
        parts.append(f"{len(found.damages)} damaged places")
    if found.unknown:
        parts.append(f"{len(found.unknown)} lines that are no records of this version")
    if found.missing:
        parts.append(f"{found.missing} records that it had counted are gone")
    return ", ".join([*parts, "sound"] if len(parts) == 1 else parts)


def _json(document: Any) -> str:

    return pretty(document)
