"""`gconsole query`: SQL over a session, an NDJSON recording or a live cluster."""

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
@click.option("-o", "--output", metavar="FILE", help="Output file; - = stdout.")
@click.option(
    "--for",
    "for_s",
    type=DurationType(),
    default="10s",
    show_default=True,
    help="Live cluster: collect this long before running the query.",
)
@click.option("--limit", type=click.IntRange(0), default=10_000, show_default=True, help="Max rows (0 = unlimited).")
@click.option(
    "--timeout",
    "deadline_s",
    type=DurationType(),
    default="60s",
    show_default=True,
    help="Query timeout.",
)
@sessions_folder
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a config value.")
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
    from ..session.format.layout import NAME_PATTERN
    from .live import collect

    if re.fullmatch(NAME_PATTERN, target) and not Path(target).exists():
        click.echo(f'gconsole: no session "{target}" in {folder}; treating it as a node name', err=True)
    config = load_target(target, overrides)
    with tempfile.TemporaryDirectory(prefix="gconsole-query-") as scratch:
        path = Path(scratch) / "records.ndjson"
        store, interrupted = collect(config, path, for_s)
        status = _run_query(path, sql, how, output, limit, deadline_s)
        if status != EXIT_OK:
            return status
        return EXIT_INTERRUPTED if interrupted else _coverage(store)


def recorded_at(target: str, folder: Path) -> Path | None:
    """Path of the session or recording; None for a live target."""
    from ..session.format.layout import SessionError, find

    path = Path(target)
    if path.is_file():
        return None if path.suffix == ".toml" else path
    with contextlib.suppress(SessionError):
        return find(target, folder).path
    return None


def _coverage(store: Store) -> int:
    """Exit code of a live query: 3 if some nodes were not reached, 4 if none was."""
    sampled = [now.cost is not None for now in store.nodes.values()]
    return EXIT_OK if all(sampled) and sampled else EXIT_PARTIAL if any(sampled) else EXIT_NOTHING


def _run_query(path: Path, sql: str, how: Format, output: str | None, limit: int, deadline_s: float) -> int:
    from ..session.format.duckdb_connection import bounded_memory
    from ..session.format.layout import SessionError
    from ..session.ndjson import RecordFileError
    from ..session.query.engine import Database
    from ..session.query.limits import QueryCancelled, QueryError
    from ..session.query.output import LimitedRows, write
    from ..session.query.sources import RecordedSource

    if how == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("Parquet output requires a file: -o FILE")
    with (
        bounded_memory(), RecordedSource(path) as source,
        contextlib.closing(Database(source, source.scratch)) as database,
    ):  # fmt: skip
        try:
            with _cancelled_by_signals(source, database):
                columns, batches = database.stream(sql, deadline_s=deadline_s)
                rows = LimitedRows(batches, limit or None)
                with _open_output(output) as out:
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
            click.echo(f"gconsole: {path.name}: {damage}; skipped", err=True)
        if rows.truncated:
            click.echo(f"gconsole: showing the first {limit} rows; use --limit 0 for all", err=True)
    return EXIT_OK


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


@contextlib.contextmanager
def _open_output(output: str | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that is replaced atomically on success."""
    if output in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from ..text.atomic_files import open_replacement

    try:
        with open_replacement(Path(str(output))) as file:
            yield file
    except OSError as error:
        raise click.FileError(str(output), error.strerror or str(error)) from error
