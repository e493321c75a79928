"""`gconsole stat`: metric summaries and plots of a session."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .main import EXIT_OK, EXIT_USAGE
from .options import sessions_folder

if TYPE_CHECKING:
    from ..session.export.plots import Steps
    from ..session.query.engine import Database
    from ..session.query.output import Format
    from ..session.query.stat import By

#: Seconds per query; long sessions have many samples.
DEADLINE_S: Final = 600.0
#: DuckDB memory limit; keeps the whole process well below 300 MB.
MEMORY: Final = "128MB"


@click.command()
@click.argument("session", metavar="SESSION|FILE")
@click.option("--by", type=click.Choice(["gpu", "rank", "node"]), default="gpu", show_default=True)
@click.option(
    "--format", "how", type=click.Choice(["table", "json", "csv", "parquet"]), default="table", show_default=True
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Plot to FILE.pdf, .png or .svg instead: GPU util, memory, power, step times, skew.",
)
@sessions_folder
def stat(session: str, by: By, how: Format, picture: Path | None, folder: Path) -> int:
    """Summarise GPU, rank or node metrics: mean, median, p95, max, idle time, energy.

    \b
    gconsole stat night
    gconsole stat night --by rank --format csv > ranks.csv
    gconsole stat night --plot night.pdf
    """
    from ..session.format.duckdb_connection import bounded_memory
    from ..session.format.layout import SessionError
    from ..session.ndjson import RecordFileError
    from ..session.query.engine import Database
    from ..session.query.limits import QueryError
    from ..session.query.sources import RecordedSource
    from .export import session_path

    path = session_path(session, folder)
    if picture is not None and picture.suffix not in (".pdf", ".png", ".svg"):
        raise click.UsageError(f"--plot {picture}: unsupported format; use .pdf, .png or .svg")
    try:
        with (
            bounded_memory(), RecordedSource(path) as source,
            contextlib.closing(Database(source, source.scratch, MEMORY)) as database,
        ):  # fmt: skip
            if picture is None:
                _print_table(database, by, how)
            else:
                _draw(database, path, picture)
    except (QueryError, SessionError, RecordFileError, ValueError) as error:
        click.echo(f"gconsole: {path.name}: {error}", err=True)
        return EXIT_USAGE
    except BrokenPipeError:
        raise
    except OSError as error:
        click.echo(f"gconsole: {error.filename or path}: {error.strerror or error}", err=True)
        return EXIT_USAGE
    return EXIT_OK


def _print_table(database: Database, by: By, how: Format) -> None:
    from ..session.query.output import write
    from ..session.query.stat import figures

    columns, batches = figures(database, by, DEADLINE_S)
    write(how, columns, batches, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _draw(database: Database, path: Path, picture: Path) -> None:
    from ..session.export.plots import plot, require_matplotlib
    from ..session.export.slice import slice_session
    from ..session.query.stat import STEP_TIMES

    require_matplotlib()
    times = database.query(STEP_TIMES, limit=100_000, deadline_s=DEADLINE_S).to_dicts()
    jobs = dict.fromkeys(row["job"] for row in times)
    steps: list[Steps] = [
        (job, *zip(*((row["step"], row["step_s"]) for row in times if row["job"] == job), strict=True)) for job in jobs
    ]
    del times
    database.close()  # free its memory for plotting
    try:
        plot(slice_session(path), steps, picture)
    except OSError as error:
        raise click.FileError(str(picture), error.strerror or str(error)) from error
    click.echo(f"wrote {picture}", err=True)
