"""What can be exported now, and in which formats."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from .. import report
from ..analysis.stacks.fold import PLAIN, Shape
from ..core.control import ActiveRecording
from ..core.store import Store
from ..monitor.hang import hang_models
from ..session.export.formats import SESSION_FORMATS, SessionFormat
from ..session.export.html_page import page_of
from ..session.export.live_snapshot import live_snapshot
from ..session.export.slice import SessionSlice, slice_session
from ..session.export.stacks import STACK_FORMATS, StackFormat
from ..session.record.selection import session_name
from ..text import format
from .models.export_table import ExportTable, as_csv, as_json, as_text

#: Returns the text of a file; may be slow and run in a thread, because it reads nothing that changes.
Write = Callable[[], str]


class ExportFormat(msgspec.Struct, frozen=True):
    """One format of an item. `prepare` is called in the event loop and copies what it needs of the present state."""

    name: str
    suffix: str
    prepare: Callable[[], Write]
    stream: Callable[[], Callable[[BinaryIO], None]] | None = None  # for large files: writes in a thread
    folder: Callable[[], Callable[[Path], list[Path]]] | None = None  # for several files, likewise


class ExportItem(msgspec.Struct, frozen=True):
    """One thing that can be exported."""

    name: str  # part of the proposed file name
    what: str
    formats: tuple[ExportFormat, ...]


def export_items(
    tables: Iterable[ExportTable], picture: Write, store: Store, shape: Shape = PLAIN, *, cluster: str = "",
    recorded: Path | None = None, recordings: Sequence[ActiveRecording] = (),
) -> list[ExportItem]:  # fmt: skip
    """Tables, the screenshot `picture`, the report, an HTML page, sessions, and the newest capture folded as `shape`.

    Sessions are the one on the screen, `recorded`; if None, the running `recordings` and the in-memory history.
    """
    return [
        *(_of_table(table) for table in tables),
        ExportItem("screen", "Screenshot", (ExportFormat("SVG", ".svg", lambda: picture),)),
        ExportItem("report", "Report (same as batch -o)",
                   (ExportFormat("JSON", ".json", partial(_report, store)),)),
        ExportItem("page", "HTML report",
              (ExportFormat("HTML", ".html", partial(page_of, cluster or "cluster", store)),)),
        *itertools.chain.from_iterable(
            _of_session(path.name, partial(partial, slice_session, path))
            for path in ([recorded] if recorded else [now.path for now in recordings if now.path])
        ),
        *(() if recorded else _of_session("in-memory history", partial(_held, store, cluster), but="html")),
        *_of_newest_capture(store, shape),
    ]  # fmt: skip


def free_path(folder: Path, cluster: str, item: ExportItem, format_: ExportFormat, now: int) -> Path:
    """A path that does not exist yet, named after item, cluster and time; `now` is console time in ns."""
    where = re.sub(r"[^A-Za-z0-9._-]+", "-", cluster).strip("-.")[:40]
    stem = "-".join(filter(None, ("gconsole", where, item.name, format.file_stamp(now))))
    numbered = (folder / f"{stem}{f'-{number}' if number > 1 else ''}{format_.suffix}" for number in itertools.count(1))
    return next(path for path in numbered if not _is_taken(path))


def _is_taken(path: Path) -> bool:
    return os.path.lexists(os.path.expanduser(path))  # noqa: PTH111 - Path's own raises for an unknown user


def _of_table(table: ExportTable) -> ExportItem:
    writers = (("CSV", ".csv", as_csv), ("JSON", ".json", as_json), ("text", ".txt", as_text))
    formats = (ExportFormat(name, suffix, partial(partial, write, table)) for name, suffix, write in writers)
    return ExportItem(table.name, table.what, tuple(formats))


def _report(store: Store) -> Write:
    document = report.make_report(store)
    return lambda: report.to_json(document).decode()


def _held(store: Store, cluster: str) -> Callable[[], SessionSlice]:
    """The in-memory history, as a session."""
    session = live_snapshot(store, session_name(cluster, store.newest_rx))
    return lambda: session


def _of_session(what: str, take: Callable[[], Callable[[], SessionSlice]], but: str = "") -> Iterator[ExportItem]:
    """A whole session in every format except `but`, which is listed elsewhere.

    `take` is called in the event loop and copies what changes; its result is read in a thread.
    """

    def file(form: SessionFormat) -> Callable[[BinaryIO], None]:
        read = take()
        return lambda out: form.write(read(), out)

    def folder(form: SessionFormat) -> Callable[[Path], list[Path]]:
        read = take()
        return lambda path: form.write_folder(read(), path)

    files, folders = [], []
    for form in SESSION_FORMATS.values():
        if form.is_folder:
            folders.append(ExportFormat(form.name, form.suffix, lambda: str, folder=partial(folder, form)))
        elif form.name != but:
            files.append(ExportFormat(form.name, form.suffix, lambda: str, partial(file, form)))
    yield ExportItem("session", f"Session: {what}", tuple(files))
    yield ExportItem("session", f"Tables: {what}", tuple(folders))


def _of_newest_capture(store: Store, shape: Shape) -> Iterator[ExportItem]:
    captures = store.captures.values()
    if not captures:
        return
    newest = captures[-1]
    what = f"Stacks: capture of {format.clock_time(newest.started_rx)}, {format.plural(len(newest.ranks), 'rank')}"

    def format_of(form: StackFormat) -> ExportFormat:
        def prepare() -> Write:
            return partial(form.write, [replace(newest, stacks=list(newest.stacks))], hang_models(store), shape)

        return ExportFormat(form.title, form.suffix, prepare)

    yield ExportItem("stacks", what, tuple(map(format_of, STACK_FORMATS.values())))
