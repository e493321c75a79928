"""What can be saved right now, and in which forms. What is not there is not offered."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from .. import report
from ..analysis.stacks.fold import PLAIN, Shape
from ..core.control import RecordingNow
from ..core.store import Store
from ..monitor.hang import hang_models
from ..session.export import FORMS, StackForm
from ..session.export.formats import FORMS as SESSION_FORMS
from ..session.export.formats import Form as SessionForm
from ..session.export.html_page import page_of
from ..session.export.live_snapshot import held
from ..session.export.slice import Chosen, chosen
from ..text import format
from ..text.format import clock_time
from .controllers.recording import session_name
from .models.table_export import ExportTable, as_csv, as_json, as_text

#: Makes the text of a file; may take long, touches nothing that changes, and may run in a thread.
Write = Callable[[], str]


@dataclass(frozen=True)
class Form:
    """One way to write a thing. `prepare` is called in the event loop, and takes what it needs of what is true now."""

    name: str
    suffix: str
    prepare: Callable[[], Write]
    stream: Callable[[], Callable[[BinaryIO], None]] | None = None  # where that is much: fills the file in a thread
    folder: Callable[[], Callable[[Path], list[Path]]] | None = None  # where it is several: fills a folder, likewise


@dataclass(frozen=True)
class Offer:
    """One thing that can be saved."""

    name: str  # what a file of it is called after
    what: str
    forms: tuple[Form, ...]


def offers(
    sheets: Iterable[ExportTable], picture: Write, store: Store, shape: Shape = PLAIN, *, cluster: str = "",
    recorded: Path | None = None, recordings: Sequence[RecordingNow] = (),
) -> list[Offer]:  # fmt: skip
    """Everything there is: tables, the screen as `picture` draws it, the report, a page, sessions, the newest capture.

    The capture is in that shape. `recorded` is the session that is shown, where one is; else what this console still
    knows can leave like one, and so can what it records: `recordings`.
    """
    return [
        *(_of_sheet(sheet) for sheet in sheets),
        Offer("screen", "Screen: as it was when you pressed the key", (Form("SVG", ".svg", lambda: picture),)),
        Offer("report", "Report: everything, as batch writes it", (Form("JSON", ".json", partial(_report, store)),)),
        Offer("page", "Page: verdict, findings, stacks, plots for a ticket",
              (Form("HTML", ".html", partial(page_of, cluster or "cluster", store)),)),
        *itertools.chain.from_iterable(
            _of_session(f"everything in {path.name}", partial(partial, chosen, path))
            for path in ([recorded] if recorded else [now.path for now in recordings if now.path])
        ),
        *(() if recorded else _of_session("all that is still known", partial(_held, store, cluster), but="html")),
        *_of_newest_capture(store, shape),
    ]  # fmt: skip


def free_path(folder: Path, cluster: str, offer: Offer, form: Form, at: int) -> Path:
    """A name that tells what, of which cluster, and of when: `at` is console time in ns. No file has it already."""
    where = re.sub(r"[^A-Za-z0-9._-]+", "-", cluster).strip("-.")[:40]
    when = format.file_stamp(at)
    stem = "-".join(filter(None, ("gconsole", where, offer.name, when)))
    numbered = (folder / f"{stem}{f'-{number}' if number > 1 else ''}{form.suffix}" for number in itertools.count(1))
    return next(path for path in numbered if not _is_taken(path))


def _is_taken(path: Path) -> bool:
    return os.path.lexists(os.path.expanduser(path))  # noqa: PTH111 - Path's own raises where there is no such user


def _of_sheet(sheet: ExportTable) -> Offer:
    forms = (("CSV", ".csv", as_csv), ("JSON", ".json", as_json), ("text", ".txt", as_text))
    return Offer(
        sheet.name, sheet.what,
        tuple(Form(name, suffix, partial(partial, write, sheet)) for name, suffix, write in forms),
    )  # fmt: skip


def _report(store: Store) -> Write:
    made = report.make_report(store)
    return lambda: report.to_json(made).decode()


def _held(store: Store, cluster: str) -> Callable[[], Chosen]:
    """What is known now, as a session."""
    taken = held(store, session_name(cluster, store.newest_rx))
    return lambda: taken


def _of_session(what: str, take: Callable[[], Callable[[], Chosen]], but: str = "") -> Iterator[Offer]:
    """A whole session in every form `but` one, which is offered already.

    `take` takes what changes, and what that gives reads it, in a thread.
    """

    def file(form: SessionForm) -> Callable[[BinaryIO], None]:
        read = take()
        return lambda out: form.write(read(), out)

    def folder(form: SessionForm) -> Callable[[Path], list[Path]]:
        read = take()
        return lambda path: form.write_folder(read(), path)

    every = [form for form in SESSION_FORMS.values() if form.name != but]
    files = (Form(one.name, one.suffix, lambda: str, partial(file, one)) for one in every if not one.is_folder)
    folders = (Form(one.name, one.suffix, lambda: str, folder=partial(folder, one)) for one in every if one.is_folder)
    yield Offer("session", f"Session: {what}", tuple(files))
    yield Offer("session", f"Tables: {what}", tuple(folders))


def _of_newest_capture(store: Store, shape: Shape) -> Iterator[Offer]:
    kept = store.captures.values()
    if not kept:
        return
    newest = kept[-1]
    ranks = f"{len(newest.ranks)} rank{'s' * (len(newest.ranks) != 1)}"
    what = f"Stacks: the capture of {clock_time(newest.started_rx)}, {ranks}"

    def form(one: StackForm) -> Form:
        def prepare() -> Write:
            return partial(one.write, [replace(newest, stacks=list(newest.stacks))], hang_models(store), shape)

        return Form(one.title, one.suffix, prepare)

    yield Offer("stacks", what, tuple(map(form, FORMS)))
