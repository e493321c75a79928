"""`gconsole.open` and `gconsole.diagnose`: sessions, files of records and folders of logs for Python programs."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from .. import GconsoleError
from ..core.bus import Published
from ..core.store import Store
from ..monitor.crash import crash_findings
from ..monitor.hang import verdict_findings
from ..records import KINDS
from ..session.export import document, gswarm
from ..session.export.formats import SESSION_FORMATS
from ..session.export.slice import slice_session
from ..session.format import reader
from ..session.format.layout import Meta, Session, SessionError, find, sessions_folder
from ..session.format.manifest import Manifest
from ..session.format.reader import RecordFilter
from ..session.format.table_schema import TABLES, literal, quoted
from ..session.format.zstd_frames import Damage
from ..session.manage.black_boxes import find_black_box
from ..text.atomic_files import make_folder, open_replacement
from ..text.format import duration
from ..text.timespec import instant_ns
from .frames import findings_table, gpus_table, nodes_table, ranks_table, report_of
from .results import JobVerdicts, SqlResult, join_results, run_sql

if TYPE_CHECKING:
    import pandas as pd

    from ..session.query.engine import Database
    from ..session.query.sources import RecordedSource
    from ..session.query.stat import By
    from .comparison import SessionDiff

#: An instant: text as for `replay --at` ("+10m", "-5m", "50%", "14:02:30", ISO 8601), a datetime, or ns since 1970.
Instant = str | datetime | int
_QUERY_S: Final = 600.0


class DamageWarning(UserWarning):
    """A part of a session is damaged; the result is without what could not be read."""


def open(source: str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None) -> RecordedSession:
    """Open a session by name or path, also while it is recorded; or a file: NDJSON, exported JSON, gswarm's JSON.

    `folder` is where sessions are; default: GCONSOLE_SESSIONS_FOLDER, else the user's data folder.
    Raises SessionError, whose text says what to try.
    """
    return RecordedSession(_path_of(os.fspath(source), Path(folder) if folder is not None else sessions_folder()))


def diagnose(
    source: str | os.PathLike[str], *, models: Sequence[str] = (), folder: str | os.PathLike[str] | None = None
) -> JobVerdicts:
    """Why a job hung or died, from a folder of logs and dumps, a session, or a file of records.

    `models` are frame models of your framework's calls, for folders. Raises SessionError.
    """
    path = Path(source)
    if not path.is_dir() or (path / "session.json").is_file():
        with open(source, folder=folder) as session:
            return session.diagnose()
    from ..monitor.hang import verdicts
    from ..monitor.imports.folder import NothingToImport, import_evidence

    try:
        evidence = import_evidence(path, models)
    except NothingToImport as error:
        raise SessionError(str(error)) from error
    return JobVerdicts(verdicts(evidence.store), evidence.crashes, evidence.problems)


def _path_of(text: str, folder: Path) -> Path:
    """The folder of a session, or a file of records. Raises SessionError."""
    if Path(text).is_file():
        return Path(text)
    box = find_black_box(text)
    if box is not None:
        how = f"gconsole record {box.name} --last 15m --name NAME"
        raise SessionError(f"{box.name} is a black box; make a session of it first: {how}")
    return find(text, folder).path


class RecordedSession:
    """A session or a file of records. Each call reads what has been recorded by then."""

    def __init__(self, path: Path, memory: str = "") -> None:
        """`open` finds the path; `memory` is DuckDB's limit, "" for its default. Raises SessionError."""
        self.path, self._memory = path, memory
        self._meta = Session(path).read() if path.is_dir() else _file_meta(path)
        self._source: RecordedSource | None = None
        self._database: Database | None = None
        self._unpacked: Path | None = None  # of exported JSON: its records as NDJSON

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the tables and remove what was unpacked. A second call does nothing."""
        if self._database is not None:
            self._database.close()
        if self._source is not None:
            self._source.close()
        self._database = self._source = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    # -- facts ---------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the session, or of the file."""
        return self._meta.name or self.path.stem

    @property
    def is_recording(self) -> bool:
        """Whether a recorder writes to it now."""
        return self.path.is_dir() and Session(self.path).is_being_written()

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Its first and last instant, UTC; None without records."""
        ns = self._span_ns()
        return None if ns is None else (_datetime(ns[0]), _datetime(ns[1]))

    def _span_ns(self) -> tuple[int, int] | None:
        if not self.path.is_dir():
            arrivals = [record.rx for record in _file_records(self.path) if record.rx]
            return (min(arrivals), max(arrivals)) if arrivals else None
        from ..session.format.index import open_index

        session = Session(self.path)
        return open_index(session).span(session.read())

    # -- records -------------------------------------------------------------------------------------------------------

    def records(self, *kinds: str, since: Instant | None = None, until: Instant | None = None) -> Iterator[Published]:
        """Yield the records of these kinds (of all without any) in order of arrival. Raises SessionError."""
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise SessionError(f"{unknown[0]!r} is not a kind of record; kinds: {', '.join(KINDS)}")
        choice = RecordFilter(kinds or None, self._instant(since), self._instant(until))
        if not self.path.is_dir():
            return (record for record in _file_records(self.path) if choice.matches(record))
        return reader.lenient(self.path, self._warn, choice)

    def sql(self, query: str, *, timeout_s: float = _QUERY_S) -> SqlResult:
        """Run SQL, read-only; docs/guide/sql.md has the tables. Raises QueryError, SessionError."""
        result = self._arrays(query, timeout_s)
        for damage in result.damage:
            self._warn(damage)
        return result

    def stat(self, by: By = "gpu") -> SqlResult:
        """Statistics per GPU, rank or node, as `gconsole stat`. Raises QueryError, SessionError."""
        from ..session.query.stat import entities_query, figures_query, slices

        entities = list(self.sql(entities_query(by)).rows())
        parts = [self._arrays(figures_query(by, part)) for part in slices(entities)]
        return join_results(parts)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw GPU metrics, step times and skew into a .pdf, .png or .svg file, as `gconsole stat --plot`.

        Raises ValueError without matplotlib or data, QueryError, SessionError, OSError.
        """
        from ..session.export.plots import Steps, plot, require_matplotlib
        from ..session.query.stat import STEP_TIMES

        require_matplotlib()  # before a query that may take minutes
        times: dict[str, list[tuple[int, float]]] = {}
        for row in self.sql(STEP_TIMES).rows():
            times.setdefault(row["job"], []).append((row["step"], row["step_s"]))
        steps: list[Steps] = [
            (job, [step for step, _ in seconds], [took_s for _, took_s in seconds]) for job, seconds in times.items()
        ]
        del times
        self.close()  # free its memory for plotting
        plot(slice_session(self.path), steps, Path(path))

    def export(
        self, how: str, path: str | os.PathLike[str] | BinaryIO, *, since: Instant | None = None,
        until: Instant | None = None, nodes: str | Sequence[str] | None = None, kinds: Sequence[str] | None = None,
        gpus: Sequence[str] = (),
    ) -> list[Path]:  # fmt: skip
        """Write records in a format of `gconsole export`: json, parquet, csv, perfetto, speedscope, gswarm, html.

        "parquet" and "csv" take a new or empty folder, the others a file; the file is replaced atomically. Returns what
        was written. `since` is included, `until` is not. Raises SessionError if nothing was recorded then or of these
        nodes, OSError.
        """
        form = SESSION_FORMATS.get(how)
        if form is None:
            raise SessionError(f"{how!r} is not a format; use {', '.join(SESSION_FORMATS)}")
        if unknown := set(kinds or ()) - set(TABLES):
            raise SessionError(f"unknown kind: {', '.join(sorted(unknown))}; use {', '.join(TABLES)}")
        names = None if nodes is None else frozenset(_node_names(nodes))
        wanted = None if kinds is None else frozenset(kinds)
        begin, end = (limit if isinstance(limit, str) else self._instant(limit) or "" for limit in (since, until))
        source = slice_session(self.path, begin=begin, end=end, nodes=names, kinds=wanted, gpus=tuple(gpus))
        source.check_present()
        if not isinstance(path, str | os.PathLike):
            form.write(source, path)
            return []
        target = Path(path)
        if not form.is_folder:
            with open_replacement(target) as file:
                form.write(source, file)
            return [target]
        if target.exists() and any(target.iterdir()):
            raise SessionError(f"{target} is not empty; specify a new or empty folder")
        make_folder(target)
        return form.write_folder(source, target)

    def diff(self, other: RecordedSession | str | os.PathLike[str]) -> SessionDiff:
        """Compare with a later session, as `gconsole diff`: facts, findings, metrics. Raises SessionError, OSError."""
        from ..session.query.comparison import compare_sessions
        from ..session.query.worker import QueryWorkerClient
        from .comparison import SessionDiff

        compared = other if isinstance(other, RecordedSession) else open(other)
        for session in (self, compared):
            if not session.path.is_dir():
                raise SessionError(f"{session.path}: a file; import it first: gconsole sessions import {session.path}")
        with closing(QueryWorkerClient()) as queries:
            return SessionDiff(compare_sessions(self.path, compared.path, queries))

    def df(
        self, kind: str, *, nodes: str | Sequence[str] | None = None, since: Instant | None = None,
        until: Instant | None = None, columns: Sequence[str] = (),
    ) -> pd.DataFrame:  # fmt: skip
        """The records of a kind, or the rows of a view such as gpu_by_rank, as a DataFrame in order of arrival.

        `nodes`: a node set ("node[1-4]") or names; `since`, `until`: when they arrived; `columns`: only these.
        """
        name = kind if kind in TABLES else self._view(kind)
        conditions = []
        if nodes is not None:
            listed = ", ".join(literal(node) for node in _node_names(nodes)) or "''"
            conditions.append(f"node IN ({listed})")
        stamp = "rx" if kind in TABLES else "t"
        for sign, limit in ((">=", since), ("<", until)):
            if (ns := self._instant(limit)) is not None:
                conditions.append(f"{stamp} {sign} {ns}")
        wanted = ", ".join(quoted(column) for column in columns) or "*"
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        order = " ORDER BY rx, seq" if kind in TABLES else ""
        frame = self.sql(f"SELECT {wanted} FROM {name}{where}{order}").df()
        if kind in KINDS:
            from ..session.format.table_schema import words_of

            meanings = {word.field: word.meaning for word in words_of(kind) if word.meaning}
            frame.attrs["descriptions"] = {name: meanings[name] for name in frame.columns if name in meanings}
        return frame

    def write_duckdb(self, path: str | os.PathLike[str]) -> Manifest:
        """Compact the session, and write a DuckDB file of views over its Parquet; replaces `path` atomically.

        Of a running recording, only sealed segments are included. Raises SessionError, QueryError, OSError.
        """
        from ..session.format.parquet_reader import checked_paths
        from ..session.manage.compact import compact
        from ..session.query.engine import write_database
        from ..session.query.source_tables import SourceTables

        if not self.path.is_dir():
            raise SessionError(f"{self.path}: a file; import it first: gconsole sessions import {self.path}")
        session = Session(self.path.resolve())
        manifest = compact(session)
        if not manifest.parts:
            text = "no records are compacted yet; of a running recording, only sealed segments can be"
            raise SessionError(f"{session.name}: {text}")
        files: dict[str, tuple[Path, ...]] = {}
        for part, file in zip(manifest.parts, checked_paths(session.parquet_folder, manifest.parts), strict=True):
            files[part.table] = (*files.get(part.table, ()), file)
        with tempfile.TemporaryDirectory(prefix=".gconsole-", dir=Path(path).resolve().parent) as scratch:
            made = Path(scratch) / "views.duckdb"
            write_database(made, SourceTables(files))
            made.chmod(0o600)
            made.replace(path)
        return manifest

    # -- state ---------------------------------------------------------------------------------------------------------

    def at(self, instant: Instant) -> RecordedState:
        """The state at an instant, as a replay shows it: "+10m" is after the start, "-5m" before the end.

        Raises SessionError without records, TimeSpecError.
        """
        ns = self._instant(instant)
        assert ns is not None
        if not self.path.is_dir():
            store = Store()
            for record in _file_records(self.path):
                if record.rx <= ns:
                    store.apply([record])
            return RecordedState(store, ns)
        from ..session.replay import Replay

        replay = Replay(Session(self.path))
        replay.jump(ns)
        for damage in replay.damages:
            self._warn(damage)
        return RecordedState(replay.store, replay.position)

    def end(self) -> RecordedState:
        """The state after the last record."""
        store = self._whole()
        return RecordedState(store, store.newest_rx)

    def diagnose(self, *, jobs: Sequence[str] = ()) -> JobVerdicts:
        """The verdicts on all jobs from the recorded stacks and outputs, as `gconsole diagnose`."""
        return self.end().diagnose(jobs=jobs)

    def _whole(self) -> Store:
        store = Store()
        for record in self.records():
            store.apply([record])
        return store

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _arrays(self, query: str, timeout_s: float = _QUERY_S) -> SqlResult:
        from ..session.query.engine import Database
        from ..session.query.sources import RecordedSource

        if self._source is None or self.is_recording:
            self.close()
            self._source = RecordedSource(self.path, is_kept=True)
            if not self.path.is_dir() and (document.is_document(self.path) or gswarm.is_gswarm(self.path)):
                self._source.path = _unpacked(self.path, self._source.scratch)
            limits = {"memory": self._memory} if self._memory else {}
            self._database = Database(self._source, self._source.scratch, **limits)
        return run_sql(query, self._source, timeout_s, self._database)

    def _view(self, name: str) -> str:
        from ..session.query.views import SHORT_VIEWS

        if name not in (views := [view.name for view in SHORT_VIEWS]):
            text = (
                f"{name!r} is neither a kind of record nor a view; views: {', '.join(views)}; kinds: {', '.join(KINDS)}"
            )
            raise SessionError(text)
        return name

    def _instant(self, instant: Instant | None) -> int | None:
        """An instant in ns since 1970. Raises TimeSpecError, SessionError."""
        if instant is None or isinstance(instant, int):
            return instant
        if isinstance(instant, datetime):
            return int(instant.timestamp()) * 10**9 + instant.microsecond * 1000 + getattr(instant, "nanosecond", 0)
        span = self._span_ns()
        if span is None:
            raise SessionError(f"{self.path}: the session has no records yet")
        return instant_ns(instant, *span)

    def _warn(self, damage: Damage | str) -> None:
        warnings.warn(f"{damage}; try: gconsole sessions verify {self.name}", DamageWarning, stacklevel=3)

    def __repr__(self) -> str:
        span = self._meta.span
        length = f", {duration(span[1] - span[0])}" if span else ""
        return f"<RecordedSession {self.name}{length}{', being recorded' if self.is_recording else ''}>"


class RecordedState:
    """The state of a session at one instant: the tables of a live fleet, and the verdicts."""

    def __init__(self, store: Store, ns: int) -> None:
        """`ns` is the instant, since 1970."""
        self.store, self.instant = store, _datetime(ns)

    @property
    def nodes(self) -> pd.DataFrame:
        """A row per node."""
        return nodes_table(self.store).frame()

    @property
    def ranks(self) -> pd.DataFrame:
        """A row per rank of every job."""
        return ranks_table(self.store).frame()

    @property
    def gpus(self) -> pd.DataFrame:
        """A row per GPU."""
        return gpus_table(self.store).frame()

    @property
    def findings(self) -> pd.DataFrame:
        """A row per finding, open and cleared."""
        return findings_table(self.store).frame()

    def diagnose(self, *, jobs: Sequence[str] = ()) -> JobVerdicts:
        """The verdicts on all jobs from what was recorded until then."""
        self.store.apply([*verdict_findings(self.store), *crash_findings(self.store)])
        return JobVerdicts.of_store(self.store, jobs)

    def report(self) -> dict[str, Any]:
        """The report of `gconsole batch -o` on this state, as Python values."""
        return report_of(self.store)

    def __repr__(self) -> str:
        nodes, ranks = len(self.store.nodes), len(self.store.ranks)
        return f"<RecordedState at {self.instant.isoformat()}: {nodes} nodes, {ranks} ranks>"


def _datetime(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(microsecond=ns % 10**9 // 1000)


def _node_names(nodes: str | Sequence[str]) -> list[str]:
    """The names of a node set, or of several. Raises GconsoleError."""
    from ..config.nodeset import expand
    from ..config.nodeset_parser import BadNodeSet

    try:
        return [host.name for part in ([nodes] if isinstance(nodes, str) else nodes) for host in expand(part)]
    except BadNodeSet as error:
        raise GconsoleError(f"nodes: {error}") from error


def _file_meta(path: Path) -> Meta:
    """The metadata of a file. Raises SessionError if it is not one of records."""
    try:
        return document.meta_of(document.read(path)[0]) if document.is_document(path) else Meta()
    except OSError as error:
        raise SessionError(f"{path}: {error.strerror}") from error


def _file_records(path: Path) -> Iterator[Published]:
    if document.is_document(path):
        return document.read(path)[1]
    return gswarm.read(path) if gswarm.is_gswarm(path) else reader.records(path)


def _unpacked(path: Path, folder: Path) -> Path:
    """The records of a file of JSON as NDJSON in a folder."""
    from ..records import encode

    unpacked = folder / "records.ndjson"
    with unpacked.open("wb") as file:
        for record in _file_records(path):
            file.write(encode(record) + b"\n")
    return unpacked
