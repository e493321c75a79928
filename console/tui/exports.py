"""What can be saved right now, and in which forms. What is not there is not offered."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from .. import report
from ..analysis.stacks import PLAIN, Shape
from ..session.chosen import chosen
from ..session.export import FORMS, StackForm
from ..session.export.page import lines_of as page_of
from ..session.forms import FORMS as SESSION_FORMS
from ..session.forms import Form as SessionForm
from ..store import Store
from ..verdicts import hang_models
from .figures import clock_time
from .models.sheets import Sheet, as_csv, as_json, as_text

#: Makes the text of a file; may take long, touches nothing that changes, and may run in a thread.
Write = Callable[[], str]


@dataclass(frozen=True)
class Form:
    """One way to write a thing. `prepare` is called in the event loop, and takes what it needs of what is true now."""

    name: str
    suffix: str
    prepare: Callable[[], Write]
    stream: Callable[[BinaryIO], None] | None = None  # fills the file itself, in a thread, where that is much


@dataclass(frozen=True)
class Offer:
    """One thing that can be saved."""

    name: str  # what a file of it is called after
    what: str
    forms: tuple[Form, ...]


def offers(
    sheets: Iterable[Sheet], picture: Write, store: Store, shape: Shape = PLAIN, *, cluster: str = "",
    recorded: Path | None = None,
) -> list[Offer]:  # fmt: skip
    """Everything there is: tables, the screen as `picture` draws it, the report, a page, the newest capture.

    The capture is in that shape. `recorded` is the session that is shown, where one is: then all of it can be saved.
    """
    return [
        *(_of_sheet(sheet) for sheet in sheets),
        Offer("screen", "Screen: as it was when you pressed the key", (Form("SVG", ".svg", lambda: picture),)),
        Offer("report", "Report: everything, as batch writes it", (Form("JSON", ".json", partial(_report, store)),)),
        Offer("page", "Page: verdict, findings and stacks, for a ticket",
              (Form("HTML", ".html", partial(_page, store, cluster)),)),
        *(() if recorded is None else (_of_session(recorded),)),
        *_of_newest_capture(store, shape),
    ]


def free_path(folder: Path, cluster: str, offer: Offer, form: Form, at: int) -> Path:
    """A name that tells what, of which cluster, and of when: `at` is console time in ns. No file has it already."""
    where = re.sub(r"[^A-Za-z0-9._-]+", "-", cluster).strip("-.")[:40]
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(at / 1e9))
    stem = "-".join(filter(None, ("gconsole", where, offer.name, when)))
    numbered = (folder / f"{stem}{f'-{number}' if number > 1 else ''}{form.suffix}" for number in itertools.count(1))
    return next(path for path in numbered if not _is_taken(path))


def _is_taken(path: Path) -> bool:
    return os.path.lexists(os.path.expanduser(path))  # noqa: PTH111 - Path's own raises where there is no such user


def _of_sheet(sheet: Sheet) -> Offer:
    forms = (("CSV", ".csv", as_csv), ("JSON", ".json", as_json), ("text", ".txt", as_text))
    return Offer(
        sheet.name, sheet.what,
        tuple(Form(name, suffix, partial(partial, write, sheet)) for name, suffix, write in forms),
    )  # fmt: skip


def _report(store: Store) -> Write:
    made = report.make_report(store)
    return lambda: report.to_json(made).decode()


def _page(store: Store, cluster: str) -> Write:
    text = "\n".join(page_of(cluster or "cluster", store)) + "\n"
    return lambda: text


def _of_session(path: Path) -> Offer:
    """A whole session, in the forms that are one file."""

    def write(form: SessionForm, out: BinaryIO) -> None:
        form.write(chosen(path), out)

    forms = tuple(
        Form(form.name, form.suffix, lambda: str, partial(write, form))
        for form in SESSION_FORMS.values() if not form.is_folder
    )  # fmt: skip
    return Offer("session", f"Session: everything in {path.name}", forms)


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
