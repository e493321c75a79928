"""`gconsole query`: SQL over a session, a file of records, or what a cluster says in the next seconds."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from .main import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE
from .options import DurationType, load_target, sessions_folder

if TYPE_CHECKING:
    from ..core.store import Store
    from ..session.query.engine import Database
    from ..session.query.output import Format
    from ..session.query.sources import RecordedSource

_FORMATS = ("table", "json", "csv", "parquet")


@click.command()
@click.argument("target", metavar="SESSION|FILE|TARGET")
@click.argument("sql", metavar='"SQL"')
@click.option("--format", "how", type=click.Choice(_FORMATS), default="table", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write the answer there; - is stdout.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="10s",
    show_default=True,
    help="Of a cluster: watch it this long, then ask.",
)
@click.option("--limit", type=click.IntRange(0), default=10_000, show_default=True, help="Rows at most; 0: all.")
@click.option(
    "--timeout",
    "deadline_s",
    type=DurationType(),
    default="60s",
    show_default=True,
    help="Give up an answer after this long.",
)
@sessions_folder
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a key of hosts.toml.")
def query(
    target: str,
    sql: str,
    how: Format,
    output: str | None,
    for_s: float,
    limit: int,
    deadline_s: float,
    folder: Path,
    overrides: tuple[str, ...],
) -> int:
    """Ask a session, a file of `batch --records`, or a cluster (a hosts.toml, or a node set) in SQL.

    \b
    gconsole query night "DESCRIBE"                       every table and short view
    gconsole query night "DESCRIBE gpu"                   its columns, their units and meanings
    gconsole query night "SELECT * FROM ranks_now"
    gconsole query night.ndjson "SELECT rank, avg(util_pct) FROM gpu_by_rank GROUP BY rank ORDER BY rank"
    gconsole query hosts.toml --for 10s "SELECT node, max(temp_c) FROM gpu GROUP BY node"
    gconsole query night "FROM gpu" --limit 0 --format parquet -o gpu.parquet

    DuckDB's SQL, read-only: no other file, no extension, nothing is written.
    """
    recorded = recorded_at(target, folder)
    if recorded is not None:
        return _ask(recorded, sql, how, output, limit, deadline_s)
    from ..session.format.layout import NAME_PATTERN
    from .live import collect

    if re.fullmatch(NAME_PATTERN, target) and not Path(target).exists():
        click.echo(f"gconsole: no session in {folder} is called {target}: asking a node of that name", err=True)
    config = load_target(target, overrides)
    with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
        path = Path(scratch) / "records.ndjson"
        store, interrupted = collect(config, path, for_s)
        status = _ask(path, sql, how, output, limit, deadline_s)
        if status != EXIT_OK:
            return status
        return EXIT_INTERRUPTED if interrupted else _coverage(store)


def recorded_at(target: str, folder: Path) -> Path | None:
    """The session or file of records that is meant; None for what is to be watched."""
    from ..session.format.layout import SessionError, find

    path = Path(target)
    if path.is_file():
        return None if path.suffix == ".toml" else path
    with contextlib.suppress(SessionError):
        return find(target, folder).path
    return None


def _coverage(store: Store) -> int:
    """The exit code of a question to a cluster: 3 where nodes are missing in the answer, 4 where all are."""
    seen = [now.cost is not None for now in store.nodes.values()]
    return EXIT_OK if all(seen) and seen else EXIT_PARTIAL if any(seen) else EXIT_NOTHING


def _ask(path: Path, sql: str, how: Format, output: str | None, limit: int, deadline_s: float) -> int:
    from ..session.format.layout import SessionError
    from ..session.ndjson import RecordFileError
    from ..session.query.engine import Database, QueryCancelled, QueryError
    from ..session.query.limits import bounded_memory
    from ..session.query.output import LimitedRows, write
    from ..session.query.sources import RecordedSource

    if how == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet is for a file: -o FILE")
    with (
        bounded_memory(), RecordedSource(path) as source,
        contextlib.closing(Database(source, source.scratch)) as database,
    ):  # fmt: skip
        try:
            with _cancelled_by_signals(source, database):
                columns, batches = database.stream(sql, deadline_s=deadline_s)
                rows = LimitedRows(batches, limit or None)
                with _written(output) as out:
                    write(how, columns, rows, out)
        except QueryCancelled:
            return EXIT_INTERRUPTED
        except (QueryError, SessionError, RecordFileError) as error:
            click.echo(f"gconsole: {error}", err=True)
            return EXIT_USAGE
        except BrokenPipeError:
            raise
        except OSError as error:
            click.echo(f"gconsole: {error.filename or path}: {error.strerror or error}", err=True)
            return EXIT_USAGE
        for damage in source.damage:
            click.echo(f"gconsole: {path.name}: {damage}; the answer is without it", err=True)
        if rows.truncated:
            click.echo(f"gconsole: only the first {limit} rows; --limit 0 gives all", err=True)
    return EXIT_OK


@contextlib.contextmanager
def _cancelled_by_signals(source: RecordedSource, database: Database) -> Iterator[None]:
    """Ctrl-C ends the question, which then says so itself; and so does SIGTERM: nothing unpacked is left behind."""

    def cancel(number: int, frame: object) -> None:
        source.cancel()
        database.cancel()

    before = {number: signal.signal(number, cancel) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _written(output: str | None) -> Iterator[BinaryIO]:
    """Where the answer goes: stdout, or a file that is there only once it is whole."""
    if output in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from ..text.atomic_files import being_written

    try:
        with being_written(Path(str(output))) as file:
            yield file
    except OSError as error:
        raise click.FileError(str(output), error.strerror or str(error)) from error
