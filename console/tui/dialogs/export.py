"""`e`: what to save, in which form, and where. An error stands in the dialog, and nothing that was typed is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...present.spans import Span
from ...session.format.layout import SessionError
from ...text import atomic_files
from ...text.cells import clean, fit, width_of
from ..exports import Form, Offer, free_path
from ..keymap.actions import bindings, in_scope
from ..widgets.line_view import LineView
from .prompts import Confirm, hints

#: Cells up to which the forms of things stand below each other.
_IN_LINE = 24


class OfferList(LineView):
    """A line a thing, its forms at the right. The keys stay with the path; a click chooses, too."""

    can_focus = False
    DEFAULT_CSS = "OfferList { height: auto; }"

    class Chosen(Message):
        """Somebody clicked on a thing, or on a form of it."""

        def __init__(self, offer: int, form: int | None) -> None:
            super().__init__()
            self.offer, self.form = offer, form

    def __init__(self, offers: Sequence[Offer]) -> None:
        super().__init__(id="offers")
        self._offers = offers
        self._chosen = (0, 0)
        widths = [self._width(offer) for offer in offers]
        #: Forms stand below each other, but those that are too many for that: text needs room, too.
        self._forms_width = max([width for width in widths if width <= _IN_LINE], default=0)

    def on_mount(self) -> None:
        self.styles.height = len(self._offers)

    def choose(self, offer: int, form: int) -> None:
        """Mark this thing, and this form of it."""
        self._chosen = (offer, form)
        self.changed()

    def line_count(self) -> int:
        return len(self._offers)

    def version(self, y: int) -> Hashable:
        return self._chosen if self._chosen[0] == y else None

    def has_cursor(self, y: int) -> bool:
        return y == self._chosen[0]

    def line(self, y: int) -> Sequence[Span]:
        offer, chosen = self._offers[y], y == self._chosen[0]
        room = max(1, self._forms_at(offer) - 2)
        spans = [Span("▸ " if chosen else "  ", "accent"), Span(fit(clean(offer.what), room), "text")]
        for at, form in enumerate(offer.forms):
            is_form = chosen and at == self._chosen[1]
            left, right = ("‹", "›") if is_form else (" ", " ")
            spans.append(Span(f"{left}{form.name}{right}", "pick" if is_form else "muted"))
        return spans

    def _forms_at(self, offer: Offer) -> int:
        return self.size.width - max(self._forms_width, self._width(offer))

    @staticmethod
    def _width(offer: Offer) -> int:
        return sum(_form_width(form) for form in offer.forms)

    def on_click(self, event: events.Click) -> None:
        if event.y >= len(self._offers):
            return
        at, found = self._forms_at(self._offers[event.y]), None
        for number, form in enumerate(self._offers[event.y].forms):
            if at <= event.x < at + _form_width(form):
                found = number
            at += _form_width(form)
        self.post_message(self.Chosen(event.y, found))


class ExportDialog(ModalScreen[None]):
    """Saves one of `offers`. The name that is proposed says of which `cluster` and of when: `at` is console time in ns,
    for what a replay shows is not of today. `folder` is where the last file went."""

    BINDINGS = bindings(in_scope("export"))

    def __init__(self, offers: Sequence[Offer], cluster: str, at: int, folder: str = "") -> None:
        super().__init__()
        self._offers, self._cluster, self._at, self.folder = offers, cluster, at, folder
        self._offer, self._form = 0, 0
        self._list = OfferList(offers)
        self._line = Input(id="path")
        self._said = Static(classes="prompt-words")
        self._proposed = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = hints(("↑↓", "what"), ("Tab", "form"), ("Enter", "saves"), ("Esc", "leaves it"))
            yield Static(Content.styled("Export", "bold"), classes="dialog-title")
            yield self._list
            yield self._line
            yield self._said

    def on_mount(self) -> None:
        self._choose(0, 0)
        self._line.focus()

    # -- what, and as what -------------------------------------------------------------------------------------------

    @property
    def chosen(self) -> tuple[Offer, Form]:
        offer = self._offers[self._offer]
        return offer, offer.forms[self._form]

    def _choose(self, offer: int, form: int) -> None:
        """This thing from now on, under a name of its own unless the person has typed one."""
        before = self.chosen[1].suffix
        self._offer, self._form = offer, form
        self._list.choose(offer, form)
        typed = self._line.value
        if typed == self._proposed:
            self._propose(self.folder)
        elif typed.endswith(before):
            self._line.value = typed.removesuffix(before) + self.chosen[1].suffix
        self._tell_where()

    def _propose(self, folder: str) -> None:
        self._proposed = str(free_path(Path(folder), self._cluster, *self.chosen, self._at))
        self._line.value = self._proposed
        self._line.cursor_position = len(self._proposed)

    def _tell_where(self) -> None:
        self._say(f"a path is relative to {Path.cwd()}", "muted")

    def _say(self, text: str, style: str) -> None:
        self._said.update(Content.styled(clean(text), f"${style}"))

    def on_offer_list_chosen(self, event: OfferList.Chosen) -> None:
        same = event.offer == self._offer
        self._choose(event.offer, event.form if event.form is not None else self._form if same else 0)

    def action_previous(self) -> None:
        self._choose((self._offer - 1) % len(self._offers), 0)

    def action_next(self) -> None:
        self._choose((self._offer + 1) % len(self._offers), 0)

    def action_form(self) -> None:
        self._choose(self._offer, (self._form + 1) % len(self._offers[self._offer].forms))

    def action_form_before(self) -> None:
        self._choose(self._offer, (self._form - 1) % len(self._offers[self._offer].forms))

    def action_drop(self) -> None:
        """Leave it; what is being made is not written any more."""
        self.dismiss()

    # -- saving ------------------------------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._start(replace=False)

    def _start(self, replace: bool) -> None:
        self.run_worker(self._save(replace), name="export", exclusive=True)

    async def _save(self, replace: bool) -> None:
        offer, form = self.chosen
        path = self._path()
        if path is None:
            return
        self._say("writing …", "muted")
        try:
            if form.folder is not None:
                await asyncio.to_thread(_fill, path, form.folder())
            elif form.stream is not None:
                await asyncio.to_thread(atomic_files.write_streamed, path, form.stream(), replace=replace)
            else:
                data = (await asyncio.to_thread(form.prepare())).encode(errors="backslashreplace")
                write = atomic_files.write_atomically if replace else atomic_files.write_new
                await asyncio.shield(asyncio.to_thread(write, path, data))
        except FileExistsError:
            self._ask_to_replace(path)
        except OSError as error:
            self._say(f"✖ {_why(error, path)}", "status-failed")
        except SessionError as error:
            self._say(f"✖ {error}", "status-failed")
        else:
            self.folder = str(path.parent) if path.is_absolute() else str(path.parent).removeprefix(".")
            self.dismiss()
            self.app.notify(f"saved {offer.name} as {form.name}: {path.absolute()}", timeout=6, markup=False)

    def _path(self) -> Path | None:
        """Where to; None where that cannot be a file, and then the dialog says why."""
        typed = self._line.value.strip()
        try:
            path = Path(typed).expanduser()
            if not typed:
                self._say("✖ a file needs a name", "status-failed")
            elif self.chosen[1].folder is not None:
                return path if self._can_be_filled(path) else None
            elif path.is_dir():
                self._propose(typed)
                self._say("that is a folder; this would be the file in it", "muted")
            elif path.exists() and not path.is_file():
                self._say(f"✖ {path} is no file", "status-failed")
            else:
                return path
        except (OSError, RuntimeError, ValueError) as error:  # ~nobody; longer than a name can be; a NUL
            self._say(f"✖ {getattr(error, 'strerror', None) or error}", "status-failed")
        return None

    def _can_be_filled(self, path: Path) -> bool:
        """Whether that can be a folder of ours: new, or empty. Raises OSError."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            self._say(f"✖ {path}: there is something; these are several files: name a new folder", "status-failed")
            return False
        return True

    def _ask_to_replace(self, path: Path) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self._start(replace=True)
            else:
                self._tell_where()

        words = f"{clean(str(path.absolute()))} is there already. What it holds is gone then."
        self.app.push_screen(Confirm("Replace the file?", words, "replaces it"), answered)


def _fill(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new folder, or an empty one. Raises what it raises; then a folder that was new is gone."""
    is_new = not path.exists()
    path.mkdir(mode=0o700, exist_ok=True)
    try:
        write(path)
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise


def _why(error: OSError, path: Path) -> str:
    """What went wrong with writing that file, where, and what to try."""
    folder = path.absolute().parent
    if isinstance(error, FileNotFoundError) and not folder.is_dir():
        return f"there is no folder {folder}; choose another, or make it"
    if isinstance(error, PermissionError):
        return f"you may not write into {folder}; choose another folder"
    return f"{error.strerror or error}: {path}"


def _form_width(form: Form) -> int:
    return width_of(form.name) + 2
