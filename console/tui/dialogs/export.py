"""The export dialog: what to save, in which format, and where. Errors are shown in it, and the typed path is kept."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ...present.spans import Span
from ...session.format.layout import SessionError
from ...text import atomic_files
from ...text.cells import clean, fit, width_of
from ..exports import ExportFormat, ExportItem, free_path
from ..keymap.actions import bindings, in_scope
from ..widgets.line_view import LineView
from .dialog import Dialog
from .prompts import Confirm

#: Cells. Formats that need more are not aligned with those of other items, which leaves more room for the text.
_ALIGNED = 24


class ExportList(LineView):
    """One line per item with its formats at the right. The keyboard stays with the path; a click selects."""

    can_focus = False
    DEFAULT_CSS = "ExportList { height: auto; }"

    @dataclass
    class Clicked(Message):
        """An item was clicked, or one of its formats."""

        item: int
        format: int | None

    def __init__(self, items: Sequence[ExportItem]) -> None:
        super().__init__(id="export-items")
        self._items = items
        self._picked = (0, 0)
        widths = [self._width(item) for item in items]
        self._formats_width = max([width for width in widths if width <= _ALIGNED], default=0)

    def on_mount(self) -> None:
        self.styles.height = len(self._items)

    def select(self, item: int, format: int) -> None:
        """Mark this item, and this format of it."""
        self._picked = (item, format)
        self.changed()

    def line_count(self) -> int:
        """Number of items."""
        return len(self._items)

    def version(self, y: int) -> Hashable:
        """Changes whenever line `y` does."""
        return self._picked if self._picked[0] == y else None

    def has_cursor(self, y: int) -> bool:
        """Whether item `y` is selected."""
        return y == self._picked[0]

    def line(self, y: int) -> Sequence[Span]:
        """Item `y`."""
        item, is_selected = self._items[y], y == self._picked[0]
        room = max(1, self._formats_x(item) - 2)
        spans = [Span("▸ " if is_selected else "  ", "accent"), Span(fit(clean(item.what), room), "text")]
        for index, format in enumerate(item.formats):
            is_picked = is_selected and index == self._picked[1]
            left, right = ("‹", "›") if is_picked else (" ", " ")
            spans.append(Span(f"{left}{format.name}{right}", "pick" if is_picked else "muted"))
        return spans

    def _formats_x(self, item: ExportItem) -> int:
        return self.size.width - max(self._formats_width, self._width(item))

    @staticmethod
    def _width(item: ExportItem) -> int:
        return sum(_format_width(format) for format in item.formats)

    def on_click(self, event: events.Click) -> None:
        if event.y >= len(self._items):
            return
        x, clicked = self._formats_x(self._items[event.y]), None
        for index, format in enumerate(self._items[event.y].formats):
            if x <= event.x < x + _format_width(format):
                clicked = index
            x += _format_width(format)
        self.post_message(self.Clicked(event.y, clicked))


class ExportDialog(Dialog[None]):
    """Saves one of `items` under a proposed name of `cluster` and `now`, console time in ns: a replay shows the past.

    `folder` is where the last file was saved.
    """

    BINDINGS = bindings(in_scope("export"))

    def __init__(self, items: Sequence[ExportItem], cluster: str, now: int, folder: str = "") -> None:
        super().__init__("Export", [("↑↓", "item"), ("Tab", "format"), ("Enter", "save"), ("Esc", "cancel")])
        self._items, self._cluster, self._now, self.folder = items, cluster, now, folder
        self._item, self._format = 0, 0
        self._list = ExportList(items)
        self._path_input = Input(id="path")
        self._status = Static(classes="prompt-text")
        self._proposed = ""

    def content(self) -> Iterable[Widget]:
        """The items, the path, and a status line."""
        return self._list, self._path_input, self._status

    def on_mount(self) -> None:
        self._select(0, 0)
        self._path_input.focus()

    @property
    def selected(self) -> tuple[ExportItem, ExportFormat]:
        """The selected item and format."""
        item = self._items[self._item]
        return item, item.formats[self._format]

    def _select(self, item: int, format: int) -> None:
        """Select, and propose a path unless the user has typed one, of which only the suffix changes."""
        suffix = self.selected[1].suffix
        self._item, self._format = item, format
        self._list.select(item, format)
        typed = self._path_input.value
        if typed == self._proposed:
            self._propose(self.folder)
        elif typed.endswith(suffix):
            self._path_input.value = typed.removesuffix(suffix) + self.selected[1].suffix
        self._show_folder()

    def _propose(self, folder: str) -> None:
        self._proposed = str(free_path(Path(folder), self._cluster, *self.selected, self._now))
        self._path_input.value = self._proposed
        self._path_input.cursor_position = len(self._proposed)

    def _show_folder(self) -> None:
        self._show_status(f"relative to {Path.cwd()}", "muted")

    def _show_status(self, text: str, style: str) -> None:
        self._status.update(Content.styled(clean(text), f"${style}"))

    def _show_error(self, text: str) -> None:
        self._show_status(f"✖ {text}", "status-failed")

    def on_export_list_clicked(self, event: ExportList.Clicked) -> None:
        unchanged = self._format if event.item == self._item else 0
        self._select(event.item, unchanged if event.format is None else event.format)

    def action_previous(self) -> None:
        self._select((self._item - 1) % len(self._items), 0)

    def action_next(self) -> None:
        self._select((self._item + 1) % len(self._items), 0)

    def action_form(self) -> None:
        self._select(self._item, (self._format + 1) % len(self._items[self._item].formats))

    def action_form_before(self) -> None:
        self._select(self._item, (self._format - 1) % len(self._items[self._item].formats))

    def action_drop(self) -> None:
        """Cancel; an export that is being prepared is not written."""
        self.dismiss()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._start(replace=False)

    def _start(self, replace: bool) -> None:
        self.run_worker(self._save(replace), name="export", exclusive=True)

    async def _save(self, replace: bool) -> None:
        item, format = self.selected
        path = self._path()
        if path is None:
            return
        self._show_status("writing …", "muted")
        try:
            if format.folder is not None:
                await asyncio.to_thread(_fill, path, format.folder())
            elif format.stream is not None:
                await asyncio.to_thread(atomic_files.write_streamed, path, format.stream(), replace=replace)
            else:
                data = (await asyncio.to_thread(format.prepare())).encode(errors="backslashreplace")
                write = atomic_files.write_atomically if replace else atomic_files.write_new
                await asyncio.shield(asyncio.to_thread(write, path, data))
        except FileExistsError:
            if self.is_current:
                self._confirm_replace(path)
        except OSError as error:
            self._show_error(_why(error, path))
        except SessionError as error:
            self._show_error(str(error))
        else:
            self.folder = str(path.parent) if path.is_absolute() else str(path.parent).removeprefix(".")
            if self.is_current:  # else Escape came while the file was written
                self.dismiss()
            self.app.notify(f"saved {item.name} as {format.name}: {path.absolute()}", timeout=6, markup=False)

    def _path(self) -> Path | None:
        """The typed path; None if no file can be written there, which the dialog explains."""
        typed = self._path_input.value.strip()
        try:
            path = Path(typed).expanduser()
            if not typed:
                self._show_error("no file name; type one")
            elif self.selected[1].folder is not None:
                return path if self._can_be_filled(path) else None
            elif path.is_dir():
                self._propose(typed)
                self._show_status("that is a folder; proposed a file in it", "muted")
            elif path.exists() and not path.is_file():
                self._show_error(f"{path} is not a regular file; type another path")
            else:
                return path
        except (OSError, RuntimeError, ValueError) as error:  # ~user unknown; name too long; NUL byte
            self._show_error(getattr(error, "strerror", None) or str(error))
        return None

    def _can_be_filled(self, path: Path) -> bool:
        """Whether the folder is new or empty. Raises OSError."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            self._show_error(f"{path} is not empty; this format needs a new or empty folder")
            return False
        return True

    def _confirm_replace(self, path: Path) -> None:
        def confirmed(yes: bool | None) -> None:
            if yes:
                self._start(replace=True)
            else:
                self._show_folder()

        text = f"{clean(str(path.absolute()))} exists; its content will be lost."
        self.app.push_screen(Confirm("Replace the file?", text, "replace"), confirmed)


def _fill(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a new or empty folder. If it raises, a new folder is removed again."""
    is_new = not path.exists()
    path.mkdir(mode=0o700, exist_ok=True)
    try:
        write(path)
    except BaseException:
        if is_new:
            shutil.rmtree(path, ignore_errors=True)
        raise


def _why(error: OSError, path: Path) -> str:
    """What went wrong, where, and what to try."""
    folder = path.absolute().parent
    if isinstance(error, FileNotFoundError) and not folder.is_dir():
        return f"folder {folder} does not exist; create it, or choose another one"
    if isinstance(error, PermissionError):
        return f"no permission to write to {folder}; choose another folder"
    return f"{error.strerror or error}: {path}"


def _format_width(format: ExportFormat) -> int:
    return width_of(format.name) + 2
