"""`gconsole sessions`: list and manage recorded sessions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..text import format
from ..text.cells import table
from ..text.documents import pretty
from ..text.sanitize import join_lines, printable, printable_lines
from .completion import complete_sessions
from .options import InputPath, json_option, require_confirmable, session_argument, sessions_folder, usage_errors
from .terminal import elapsed_shown, overwrite_line, print_result, print_text, shows_progress

if TYPE_CHECKING:
    from ..session.format.layout import Meta, Session
    from ..session.format.manifest import Manifest
    from ..session.manage.catalog import SessionEntry
    from ..session.record.recovery import RecoveryReport
    from .json_documents import RecoveredSession


class _Sessions(click.Group):
    """Reports session errors as one line with exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        with usage_errors():
            return super().invoke(ctx)


@click.group(cls=_Sessions)
def sessions() -> None:
    """List, show, recover, verify, compact, merge and delete recorded sessions.

    SESSION: a name, or the path of a session folder.
    """


@sessions.command("list")
@sessions_folder
@json_option
def list_sessions(folder: Path, as_json: bool) -> None:
    """List all sessions, newest last, after the black boxes: `gconsole record --last 15m --name NAME` keeps one."""
    from ..session.manage.black_boxes import black_boxes_folder
    from ..session.manage.catalog import black_box_entries, list_sessions

    entries = [*black_box_entries(black_boxes_folder()), *list_sessions(folder)]
    if as_json:
        print_text(pretty([session_row(entry) for entry in entries]), is_document=True)
    elif not entries:
        print_text(printable(f"no sessions in {folder}. Record one: gconsole record hosts.toml --name NAME"))
    else:
        print_text(printable_lines(sessions_text(entries)))


@sessions.command()
@session_argument("session", black_boxes=True)
@json_option
def show(session: Session, as_json: bool) -> None:
    """Show the contents of one session."""
    from ..session.manage.black_boxes import black_boxes_folder
    from ..session.manage.catalog import black_box_entries, entry_of

    boxes = black_box_entries(session.path.parent) if session.path.parent == black_boxes_folder() else []
    entry = next((box for box in boxes if box.session == session), None) or entry_of(session)
    lines = session_lines(entry)
    print_text(pretty(session_summary(entry)) if as_json else join_lines(lines), is_document=as_json)


@sessions.command()
@click.argument("session", required=False, shell_complete=complete_sessions)
@sessions_folder
@json_option
def recover(session: str | None, folder: Path, as_json: bool) -> int:
    """Repair after a crash: truncate the torn tail, recount, close. Without SESSION, all crashed sessions."""
    from ..session.format.layout import SessionError, find
    from ..session.manage.catalog import list_sessions
    from ..session.record.recovery import recover as repair
    from .json_documents import RecoveredSession, RecoveredSessions

    crashed = [find(session, folder)] if session is not None else [
        entry.session for entry in list_sessions(folder) if entry.status in ("crashed", "unreadable")
    ]  # fmt: skip
    results: list[RecoveredSession] = []
    for recorded in crashed:
        try:
            repaired = repair(recorded, _progress())
        except (SessionError, OSError) as error:
            if session is not None:
                raise
            print_text(printable(f"{recorded.name}: {error}"), err=True)  # continue with the others
            results.append(RecoveredSession(recorded.name, None, None, None, None, None, None, str(error)))
            continue
        results.append(_recovered(recorded, repaired))
        if not as_json:
            print_text(printable(f"{recorded.name}: {_result(repaired)}"))
    if as_json:
        print_text(pretty(RecoveredSessions(sessions=tuple(results))), is_document=True)
    elif not crashed:
        print_text(printable("no sessions to repair"))
    return 2 if any(result.problem is not None for result in results) else 0


def _recovered(session: Session, repaired: RecoveryReport) -> RecoveredSession:
    from .json_documents import RecoveredSession

    return RecoveredSession(
        session.name, repaired.records, repaired.frames, repaired.cut_bytes, tuple(map(str, repaired.damages)),
        tuple(repaired.unknown), repaired.missing, None,
    )  # fmt: skip


@sessions.command()
@session_argument("session")
@json_option
def verify(session: Session, as_json: bool) -> int:
    """Verify all checksums of a session, read-only; exit code 1 if it is damaged."""
    from ..session.record.recovery import verify as check

    session.read()
    findings = check(session, _progress())
    is_complete = findings.is_sound and not findings.cut_bytes and not findings.missing
    damages = [str(damage) for damage in findings.damages]
    if as_json:
        print_text(pretty({
            "schema": "gconsole.verify/1", "session": session.name, "is_complete": is_complete,
            "records": findings.records, "frames": findings.frames, "cut_bytes": findings.cut_bytes,
            "damages": damages, "unknown": findings.unknown, "missing": findings.missing,
        }), is_document=True)  # fmt: skip
    else:
        print_text(printable(f"{session.name}: {_result(findings)}"))
        for line in damages + findings.unknown[:20]:
            print_text(printable(f"  ✖ {line}"))
    return 0 if is_complete else 1


@sessions.command()
@click.argument("names", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_sessions)
@sessions_folder
@click.option("--yes", is_flag=True, help="Skip confirmation.")
@json_option
def delete(names: tuple[str, ...], folder: Path, yes: bool, as_json: bool) -> None:
    """Delete sessions, or black boxes of consoles that ended, permanently."""
    from ..session.format.layout import find
    from ..session.manage.black_boxes import find_black_box
    from ..session.manage.retention import delete as remove
    from .json_documents import DeletedSession, DeletedSessions

    wanted = [find_black_box(name) or find(name, folder) for name in names]
    if not yes:
        what = ", ".join(f"{recorded.name} ({format.size(recorded.size())})" for recorded in wanted)
        require_confirmable(yes, f"delete {what}")
        click.confirm(f"Permanently delete {what}?", abort=True, err=True)
    deleted: list[DeletedSession] = []
    for recorded in wanted:
        entry = DeletedSession(recorded.name, recorded.size())
        remove(recorded)
        deleted.append(entry)
        if not as_json:
            print_text(printable(f"{recorded.name}: deleted"))
    if as_json:
        print_text(pretty(DeletedSessions(deleted=tuple(deleted))), is_document=True)


@sessions.command()
@session_argument("session")
@click.argument("name", shell_complete=complete_sessions)
@json_option
def rename(session: Session, name: str, as_json: bool) -> None:
    """Rename SESSION to NAME."""
    from ..session.manage.catalog import rename as rename_session
    from .json_documents import RenamedSession

    renamed = rename_session(session, name)
    document = RenamedSession(session=renamed.name, previous=session.name, path=str(renamed.path))
    print_result(document, f"{session.name}: renamed to {renamed.name}", as_json=as_json)


@sessions.command()
@click.argument("names", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_sessions)
@click.option("--into", required=True, metavar="NAME", help="Name of the new session.")
@sessions_folder
@json_option
def merge(names: tuple[str, ...], into: str, folder: Path, as_json: bool) -> None:
    """Merge several sessions into a new one, without duplicate records. The originals are kept."""
    from ..session.format.layout import find, named
    from ..session.manage.catalog import merge as merge_sessions
    from .json_documents import MergedSession

    merged = named(into, folder)
    meta = merge_sessions([find(name, folder) for name in names], merged)
    document = MergedSession(session=into, path=str(merged.path), merged=meta.merged, records=meta.records)
    print_result(document, f"{into}: {meta.records} records", as_json=as_json)


@sessions.command("compact")
@session_argument("session")
@click.option("--drop-segments", is_flag=True, help="Afterwards delete segments whose records are all in Parquet.")
@json_option
def compact_session(session: Session, drop_segments: bool, as_json: bool) -> int:
    """Convert SESSION to Parquet for DuckDB, pandas, Spark, Ray Data and Dask: one table per kind, one folder per hour.

    Segments are kept unless --drop-segments is given; all commands can read the Parquet files. An interrupted run
    resumes. Of a running recording, only sealed segments are converted. Exit code 1 if a segment is damaged; its
    intact records are converted.
    """
    from ..session.manage.compact import compact
    from ..session.manage.compact import drop_segments as drop
    from .json_documents import CompactedSession

    done = compact(session, _progress())
    rows, size = (
        sum(part.rows for part in done.parts),
        sum((session.parquet_folder / part.path).stat().st_size for part in done.parts),
    )
    is_recording = session.is_being_written()
    dropped = drop(session) if drop_segments else None
    lines = [
        f"{session.name}: {format.plural(rows, 'record')} in {format.plural(len(done.parts), 'file')}, "
        f"{format.size(size)}: {session.parquet_folder}"
    ]
    lines += [_UNSEALED] if is_recording else []
    lines += [f"  dropped {format.size(dropped)} of segments"] if dropped is not None else []
    document = CompactedSession(
        session=session.name, folder=str(session.parquet_folder), records=rows, files=len(done.parts), bytes=size,
        is_recording=is_recording, dropped_bytes=dropped, damaged_bytes=done.damaged_bytes,
    )  # fmt: skip
    print_result(document, "\n".join(map(printable, lines)), as_json=as_json)
    return _report_skipped(done)


_UNSEALED: Final = "  recording in progress: unsealed records are not included"


def _report_skipped(done: Manifest) -> int:
    """Print how much of the segments is damaged; returns the exit code."""
    if done.damaged_bytes:
        print_text(printable(f"  ✖ {format.size(done.damaged_bytes)} of damaged segments skipped"), err=True)
    return 1 if done.damaged_bytes else 0


@sessions.command()
@session_argument("session")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE",
              help="The DuckDB file; replaced if it exists.")  # fmt: skip
@json_option
def duckdb(session: Session, output: Path, as_json: bool) -> int:
    """Write a DuckDB file with every table and view of SESSION, for other programs.

    The session is compacted first. The file holds views over the session's Parquet files and stays small; the session
    must remain where it is. Exit code 1 if a segment is damaged; its intact records are included.

    \b
    gconsole sessions duckdb night -o night.duckdb
    duckdb night.duckdb "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank"
    """
    from ..runtime.recorded import RecordedSession
    from ..session.query.limits import QueryError
    from .json_documents import DuckdbFile

    try:
        done = RecordedSession(session.path).write_duckdb(output)
    except QueryError as error:
        raise click.ClickException(printable(str(error))) from error
    rows = sum(part.rows for part in done.parts)
    is_recording = session.is_being_written()
    lines = [f"{session.name}: views of {format.plural(rows, 'record')}: {output}"]
    lines += [_UNSEALED] if is_recording else []
    document = DuckdbFile(
        session=session.name, output=str(output), records=rows, is_recording=is_recording,
        damaged_bytes=done.damaged_bytes,
    )  # fmt: skip
    print_result(document, "\n".join(map(printable, lines)), as_json=as_json)
    return _report_skipped(done)


@sessions.command("import")
@click.argument("file", type=InputPath(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the new session.  [default: from the file's content or name]")
@sessions_folder
@json_option
def import_session(file: Path, name: str | None, folder: Path, as_json: bool) -> None:
    """Import FILE as a session: `gconsole export --format json` output, or a `batch --records` file."""
    from ..session.manage.catalog import import_file
    from .json_documents import ImportedSession

    with elapsed_shown(f"importing {file.name}"):
        session, meta = import_file(file, name, folder)
    document = ImportedSession(session=session.name, path=str(session.path), records=meta.records)
    print_result(document, f"{session.name}: {format.plural(meta.records, 'record')}", as_json=as_json)


@sessions.command()
@session_argument("session")
@click.argument("text")
@json_option
def mark(session: Session, text: str, as_json: bool) -> None:
    """Add a marker to SESSION: at the current time while recording, otherwise at its end."""
    from ..session.manage.catalog import mark as add_marker
    from .json_documents import AddedMarker

    add_marker(session, text)
    print_result(AddedMarker(session=session.name, text=text), f"{session.name}: marker added", as_json=as_json)


@sessions.command()
@session_argument("session")
@json_option
def stop(session: Session, as_json: bool) -> None:
    """Stop a recording that runs in another terminal."""
    from ..session.format.layout import SessionError
    from ..session.record.recording import request_stop
    from .json_documents import StoppedRecording

    if not session.is_being_written():
        raise SessionError(f"{session.name} is not being recorded")
    request_stop(session)
    deadline = time.monotonic() + 10.0
    while session.is_being_written():
        if time.monotonic() > deadline:
            raise SessionError(
                f"{session.name}: stop requested, but still recording after 10 s; its disk may be blocked"
            )
        time.sleep(0.1)
    print_result(StoppedRecording(session=session.name), f"{session.name}: stopped", as_json=as_json)


def _progress() -> Callable[[int, int], None]:
    """A callback that prints the percentage on a terminal."""

    def show(done: int, total: int) -> None:
        if shows_progress() and total:
            overwrite_line(f"{100 * done // total} %", end=done >= total)

    return show


def _result(findings: RecoveryReport) -> str:
    parts = [f"{format.plural(findings.records, 'record')} in {format.plural(findings.frames, 'frame')}"]
    if findings.cut_bytes:
        parts.append(f"torn tail of {format.size(findings.cut_bytes)}")
    if findings.damages:
        parts.append(format.plural(len(findings.damages), "damaged section"))
    if findings.unknown:
        parts.append(f"{format.plural(len(findings.unknown), 'line')} of unknown record types")
    if findings.missing:
        parts.append(f"{format.plural(findings.missing, 'record')} missing")
    return ", ".join([*parts, "ok"] if len(parts) == 1 else parts)


def sessions_text(entries: list[SessionEntry]) -> str:
    """A table with one line per session."""
    rows = []
    for entry in entries:
        meta = entry.meta
        cells = (format.date_time(meta.created), _duration(meta), format.count(meta.records)) if meta else ("–",) * 3
        rows.append((entry.session.name, entry.status, *cells, format.size(entry.bytes), meta.cluster if meta else "–"))
    header = ("NAME", "STATE", "STARTED", "DURATION", "RECORDS", "SIZE", "CLUSTER")
    return "\n".join(table(rows, header=header, align="<<<>>>"))


def session_lines(entry: SessionEntry) -> list[str]:
    """Details of one session, as lines."""
    meta = entry.meta
    lines = [f"{entry.session.name}  {entry.status}  {format.size(entry.bytes)}", f"  {entry.session.path}"]
    if meta is None:
        return [*lines, f"  {entry.problem}"]
    lines.append(f"  {format.plural(meta.records, 'record')}, {_duration(meta)}, cluster {meta.cluster or '–'}")
    lines += [
        f"    {kind:14s} {format.count(number)}"
        for kind, number in sorted(meta.counts.items(), key=lambda item: -item[1])
    ]
    for part in meta.parts:
        began = format.date_time(part.began)
        lines.append(f"  recorded from {began}, {part.how}, by gconsole {part.version or '–'}")
    if entry.problem:
        lines.append(f"  ✖ {entry.problem}")
    if entry.status == "crashed":
        lines.append(f"  the console crashed; repair with: gconsole sessions recover {entry.session.name}")
    return lines


def session_row(entry: SessionEntry) -> dict[str, Any]:
    """One session as JSON data."""
    meta = entry.meta
    return {
        "name": entry.session.name, "path": str(entry.session.path), "state": entry.status, "bytes": entry.bytes,
        "problem": entry.problem or None, "session": meta,
    }  # fmt: skip


def session_summary(entry: SessionEntry) -> dict[str, Any]:
    """`gconsole.session_summary/1`: one session as a JSON object."""
    return {"schema": "gconsole.session_summary/1", **session_row(entry)}


def _duration(meta: Meta) -> str:
    span = meta.span
    return format.UNKNOWN if span is None else format.duration_compact(span[1] - span[0])
