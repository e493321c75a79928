"""Commands that compute from records with DuckDB: query (SQL), stat (summaries and plots)."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..text.sanitize import printable, printable_lines
from .completion import complete_sessions, complete_sources
from .main import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE, is_program
from .options import (
    duration_option,
    load_target,
    opened_output,
    overrides_option,
    refuse_black_box,
    session_or_file,
    sessions_folder,
    spooled_input,
)
from .terminal import print_text

if TYPE_CHECKING:
    from ..core.store import Store
    from ..runtime.recorded import RecordedSession
    from ..runtime.results import TableFormat
    from ..session.query.engine import Database
    from ..session.query.sources import RecordedSource
    from ..session.query.stat import By

#: DuckDB memory limit of `stat`; keeps the whole process well below 300 MB.
STAT_MEMORY: Final = "128MB"

_format_option = click.option(
    "--format", "how", type=click.Choice(["table", "json", "csv", "parquet"]), default="table", show_default=True
)


@click.command()
@click.argument("target", metavar="SESSION|FILE|TARGET", shell_complete=complete_sources)
@click.argument("sql", metavar='"SQL"')
@_format_option
@click.option("-o", "--output", metavar="FILE", help="Output file; - = stdout.")
@duration_option("--for", "for_s", default="10s", help="Live cluster: collect this long before running the query.")
@click.option("--limit", type=click.IntRange(0), default=10_000, show_default=True, help="Max rows (0 = unlimited).")
@duration_option("--timeout", "deadline_s", default="60s", help="Query timeout.")
@sessions_folder
@overrides_option
def query(
    target: str, sql: str, how: TableFormat, output: str | None, for_s: float, limit: int, deadline_s: float,
    folder: Path, overrides: tuple[str, ...],
) -> int:  # fmt: skip
    """Run SQL over a session, an NDJSON recording, or a live cluster (hosts.toml or node set).

    \b
    gconsole query night "DESCRIBE"                       list tables and views
    gconsole query night "DESCRIBE gpu"                   list columns with units and descriptions
    gconsole query night "SELECT * FROM ranks_now"
    gconsole query night.ndjson "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank"
    gconsole query hosts.toml --for 10s "SELECT node, max(temp_c) FROM gpu GROUP BY node"
    gconsole query night "FROM gpu" --limit 0 --format parquet -o gpu.parquet

    DuckDB SQL, read-only: no access to other files, no extensions.
    """
    recorded = recorded_at(target, folder)
    if recorded is not None:
        return _run_query(recorded, sql, how, output, limit, deadline_s)
    import asyncio  # takes 50 ms, for a live TARGET alone

    from ..session.format.layout import NAME_PATTERN
    from .live import watch_nodes

    config = load_target(target, overrides, sessions=folder)
    if re.fullmatch(NAME_PATTERN, target) and not Path(target).exists():
        print_text(printable(f'gconsole: no session "{target}" in {folder}; treating it as a node name'), err=True)
    with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
        path = Path(scratch) / "records.ndjson"
        store, interrupted = asyncio.run(watch_nodes(config, for_s, records=path))
        status = _run_query(path, sql, how, output, limit, deadline_s)
        if status != EXIT_OK:
            return status
        return EXIT_INTERRUPTED if interrupted else _coverage(store)


def recorded_at(target: str, folder: Path) -> Path | None:
    """Path of the session or recording; None for a live target."""
    from ..session.format.layout import SessionError, find

    if target == "-":
        return spooled_input()
    path = Path(target)
    if path.is_file():
        return None if path.suffix == ".toml" else path
    refuse_black_box(target)
    with contextlib.suppress(SessionError):
        return find(target, folder).path
    return None


def _coverage(store: Store) -> int:
    """Exit code of a live query: 3 if some nodes were not reached, 4 if none was."""
    sampled = [now.cost is not None for now in store.nodes.values()]
    return EXIT_OK if all(sampled) and sampled else EXIT_PARTIAL if any(sampled) else EXIT_NOTHING


def _run_query(path: Path, sql: str, how: TableFormat, output: str | None, limit: int, deadline_s: float) -> int:
    from ..session.query.limits import MEMORY, QueryCancelled
    from ..session.query.output import LimitedRows, write

    if how == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet output requires a file: -o FILE")
    with _database(path, MEMORY) as (source, database):
        try:
            with _cancelled_by_signals(source, database):
                if how == "parquet":
                    _write_parquet(source, database, sql, output, limit, deadline_s)
                    return EXIT_OK
                columns, batches = database.stream(sql, deadline_s=deadline_s)
                rows = LimitedRows(batches, limit or None)
                with opened_output(output) as out:
                    write(how, columns, rows, out)
        except QueryCancelled:
            return EXIT_INTERRUPTED
        _print_damage(source)
        if rows.truncated:
            print_text(printable(f"gconsole: showing the first {limit} rows; use --limit 0 for all"), err=True)
    return EXIT_OK


@contextlib.contextmanager
def _database(path: Path, memory: str) -> Iterator[tuple[RecordedSource, Database]]:
    """The tables of a session or file, for `query`."""
    from ..session.query.engine import Database
    from ..session.query.sources import RecordedSource

    with (
        _one_line_errors(path),
        RecordedSource(path) as source,
        contextlib.closing(Database(source, source.scratch, memory)) as database,
    ):  # fmt: skip
        yield source, database


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Limit the memory of this process; an error of a query or a file ends the command with one line, exit code 2."""
    from ..session.format.layout import SessionError
    from ..session.query.limits import QueryError
    from ..text.memory_limit import limit_memory

    if is_program():  # a caller's process has other uses of its memory, and other threads
        limit_memory()
    try:
        yield
    except (QueryError, SessionError) as error:
        print_text(
            printable_lines(f"gconsole: {error}".replace("\n", "\n  ")), err=True
        )  # no line of data begins like one of ours
        raise click.exceptions.Exit(EXIT_USAGE) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        print_text(printable(f"gconsole: {error.filename or path}: {error.strerror or error}"), err=True)
        raise click.exceptions.Exit(EXIT_USAGE) from error


def _write_parquet(
    source: RecordedSource, database: Database, sql: str, output: str | None, limit: int, deadline_s: float
) -> None:
    import shutil

    from ..session.query.engine import OUTPUT

    folder = source.scratch / OUTPUT
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / "rows.parquet"
    rows = database.write_parquet(sql, made, limit=limit or None, deadline_s=deadline_s)
    with opened_output(output) as out, made.open("rb") as file:
        shutil.copyfileobj(file, out)
    _print_damage(source)
    if limit and rows == limit:
        print_text(printable(f"gconsole: wrote the first {limit} rows; use --limit 0 for all"), err=True)


def _print_damage(source: RecordedSource) -> None:
    for damage in source.damage:
        print_text(
            printable(f"gconsole: {source.path.name}: {damage}{'; skipped' if damage.is_loss else ''}"), err=True
        )


@contextlib.contextmanager
def _cancelled_by_signals(source: RecordedSource, database: Database) -> Iterator[None]:
    """Cancel the query on SIGINT or SIGTERM, so that temporary files are removed."""

    def cancel(number: int, frame: object) -> None:
        source.cancel()
        database.cancel()

    before = {number: signal.signal(number, cancel) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@click.argument("session", metavar="SESSION|FILE", shell_complete=complete_sessions)
@click.option("--by", type=click.Choice(["gpu", "rank", "node"]), default="gpu", show_default=True)
@_format_option
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Plot to FILE.pdf, .png or .svg instead: GPU util, memory, power, step times, skew.",
)
@sessions_folder
def stat(session: str, by: By, how: TableFormat, picture: Path | None, folder: Path) -> int:
    """Summarise GPU, rank or node metrics: distribution, traffic of GPUs, NICs and disks, steps, idle time, energy.

    \b
    gconsole stat night
    gconsole stat night --by rank --format csv > ranks.csv
    gconsole stat night --plot night.pdf
    """
    path = session_or_file(session, folder)
    if picture is not None and picture.suffix not in (".pdf", ".png", ".svg"):
        raise click.UsageError(f"--plot {picture}: unsupported format; use .pdf, .png or .svg")
    from ..runtime.recorded import RecordedSession

    with _one_line_errors(path), RecordedSession(path, STAT_MEMORY) as recorded, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print_text(printable(f"gconsole: {path.name}: {message}"), err=True)
        if picture is not None:
            _draw(recorded, picture)
            return EXIT_OK
        result = recorded.stat(by)
        with opened_output(None) as out:
            result.write(how, out)
    return EXIT_OK


def _draw(recorded: RecordedSession, picture: Path) -> None:
    from ..session.query.limits import QueryError

    try:
        recorded.plot(picture)
    except ValueError as error:
        raise QueryError(str(error)) from error
    except OSError as error:
        raise click.FileError(str(error.filename or picture), error.strerror or str(error)) from error
    print_text(printable(f"wrote {picture}"), err=True)
