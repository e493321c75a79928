"""What can be saved right now, and in which forms. What is not there is not offered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from .. import report
from ..analysis.stacks import PLAIN, Shape
from ..session.export import FORMS, StackForm
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


@dataclass(frozen=True)
class Offer:
    """One thing that can be saved."""

    name: str  # what a file of it is called after
    what: str
    forms: tuple[Form, ...]


def offers(sheets: Iterable[Sheet], picture: Write, store: Store, shape: Shape = PLAIN) -> list[Offer]:
    """Everything there is: tables, the screen as `picture` draws it, the report, the newest capture in that shape."""
    return [
        *(_of_sheet(sheet) for sheet in sheets),
        Offer("screen", "Screen: as it was when you pressed the key", (Form("SVG", ".svg", lambda: picture),)),
        Offer("report", "Report: everything, as batch writes it", (Form("JSON", ".json", partial(_report, store)),)),
        *_of_newest_capture(store, shape),
    ]


def file_name(cluster: str, offer: Offer, form: Form) -> str:
    """A name that tells what, of which cluster, and when; no other file has it already."""
    where = re.sub(r"[^A-Za-z0-9._-]+", "-", cluster).strip("-.")[:40]
    return "-".join(filter(None, ("gconsole", where, offer.name, time.strftime("%Y%m%d-%H%M%S")))) + form.suffix


def _of_sheet(sheet: Sheet) -> Offer:
    forms = (("CSV", ".csv", as_csv), ("JSON", ".json", as_json), ("text", ".txt", as_text))
    return Offer(
        sheet.name, sheet.what,
        tuple(Form(name, suffix, partial(partial, write, sheet)) for name, suffix, write in forms),
    )  # fmt: skip


def _report(store: Store) -> Write:
    made = report.make_report(store)
    return lambda: report.to_json(made).decode()


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
