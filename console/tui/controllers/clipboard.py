"""Clipboard and screenshot actions.

The clipboard is the terminal's (OSC 52, through ssh and tmux), this machine's (a clipboard tool), or both. Terminals do
not acknowledge OSC 52, and discard what exceeds their limit; so larger texts are refused.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from textual.app import App

from ...text import format
from ...text.atomic_files import create_text
from ...text.cells import clean
from ...text.sanitize import Printable, printable_document
from . import Controller

#: Characters of a copied name in the message about it.
_LONGEST_NAME: Final = 40


class ClipboardController(Controller):
    """Copies through OSC 52, a clipboard tool or both, as `where` says. `picture_title` is the title of screenshots."""

    def __init__(self, app: App[Any], where: ClipboardTarget, picture_title: str) -> None:
        self._app, self._where, self.picture_title = app, where, picture_title

    def copy(self, text: str, what: str) -> None:
        """Copy `text` and report how, or why it was not copied; `what` names it, e.g. "8 ranks"."""
        copied = printable_document(text)  # a shell obeys what is pasted into it
        size = len(copied.encode())
        chosen = plan(self._where, size)
        if chosen.refused:
            self._warn(f"{what} not copied: {chosen.refused}")
            return
        self._put(copied, chosen)
        done = f"{what} copied, {format.size(size)} ({describe(chosen, size)})"
        if chosen.tool is None:
            self._app.notify(done, timeout=3, markup=False)
        else:
            self._app.run_worker(self._run_tool(chosen, copied, done, what), name="copy")

    def copy_names(self, names: Iterable[str]) -> None:
        """Copy names, a line each and each once; nothing if there are none."""
        distinct = list(dict.fromkeys(filter(None, names)))
        if distinct:
            only = clean(distinct[0])[:_LONGEST_NAME]
            self.copy("\n".join(distinct), only if len(distinct) == 1 else format.plural(len(distinct), "name"))

    def copy_selection(self, text: str) -> None:
        """Copy what is selected with the mouse or in an input line; only failures are reported."""
        copied = printable_document(text)
        chosen = plan(self._where, len(copied.encode()))
        if chosen.refused:
            self._warn(f"not copied: {chosen.refused}")
            return
        self._put(copied, chosen)
        if chosen.tool is not None:
            self._app.run_worker(self._run_tool(chosen, copied, "", "selection"), name="copy")

    def _put(self, text: Printable, chosen: CopyPlan) -> None:
        """Send OSC 52 where planned; in any case set what Ctrl-V pastes into our own input lines."""
        if chosen.osc52:
            App.copy_to_clipboard(self._app, text)
        else:
            self._app._clipboard = text  # Textual has no setter without OSC 52

    async def _run_tool(self, chosen: CopyPlan, text: Printable, done: str, what: str) -> None:
        assert chosen.tool is not None
        problem = await asyncio.to_thread(run_tool, chosen.tool, text)
        if problem:
            outcome = "sent by OSC 52 only" if chosen.osc52 else "not copied"
            self._warn(f"{what}: {outcome}; {problem}")
        elif done:
            self._app.notify(done, timeout=3, markup=False)

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning", markup=False)

    def action_save_screenshot(self) -> None:
        """Save the screen as SVG in the current folder."""
        self.save(self._app.export_screenshot(title=self.picture_title), "gconsole", "svg", "screenshot failed")

    def save(self, text: str, stem: str, ending: str, failed: str = "not saved") -> None:
        """Write a new file into the current folder, and report its path or that it `failed`."""
        folder: object = "the current folder"
        try:
            folder = Path.cwd()  # raises if it was deleted
            self._app.notify(f"saved {save_new(text, stem, ending)}", markup=False)
        except OSError as error:
            self._app.notify(f"{failed}: {error.strerror}: {folder}", severity="error", markup=False)


#: Bytes of text. Many terminals stop at an escape sequence of 100,000 bytes; base64 adds a third.
MOST_BYTES: Final = 74_994
#: Seconds. A tool that takes longer waits for an unreachable display.
TOOL_TIMEOUT_S: Final = 3.0
ClipboardTarget = Literal["osc52", "native", "both"]


class ClipboardTool(msgspec.Struct, frozen=True):
    """A program that copies its input to this machine's clipboard; needs the environment variable `needs`."""

    argv: tuple[str, ...]
    needs: str = ""

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return Path(self.argv[0]).name


TOOLS: Final = (
    ClipboardTool(("pbcopy",)),
    ClipboardTool(("wl-copy",), "WAYLAND_DISPLAY"),
    ClipboardTool(("xclip", "-selection", "clipboard"), "DISPLAY"),
    ClipboardTool(("xsel", "--clipboard", "--input"), "DISPLAY"),
)


def find_tool(environ: Mapping[str, str] = os.environ) -> ClipboardTool | None:
    """The first tool that is installed and has its display; None if there is none."""
    for tool in TOOLS:
        path = shutil.which(tool.name, path=environ.get("PATH"))
        if path is not None and (not tool.needs or environ.get(tool.needs)):
            return ClipboardTool((path, *tool.argv[1:]), tool.needs)
    return None


def run_tool(tool: ClipboardTool, text: Printable, timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Copy the text with the tool; returns its error, else "". Blocks until it ends.

    Its stderr goes to a file: xclip and wl-copy leave a child that owns the clipboard and would keep a pipe open.
    """
    name = tool.name
    with tempfile.TemporaryFile() as stderr:
        try:
            done = subprocess.run(
                tool.argv, input=text.encode(), stdout=subprocess.DEVNULL, stderr=stderr, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{name} took longer than {timeout_s:g} s"
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        if done.returncode == 0:
            return ""
        stderr.seek(0)
        words = stderr.read(200).decode(errors="replace").strip().splitlines()
        return f"{name}: {words[0] if words else f'exit code {done.returncode}'}"


class CopyPlan(msgspec.Struct, frozen=True):
    """How a text is copied; `refused` is the reason if it is not."""

    osc52: bool
    tool: ClipboardTool | None
    refused: str = ""


def plan(where: ClipboardTarget, size: int, find: Callable[[], ClipboardTool | None] = find_tool) -> CopyPlan:
    """How to copy `size` bytes."""
    tool = find() if where != "osc52" else None
    osc52 = where != "native" and size <= MOST_BYTES
    if osc52 or tool is not None:
        return CopyPlan(osc52, tool)
    if where == "native":
        names = ", ".join(candidate.name for candidate in TOOLS)
        return CopyPlan(False, None, f'no clipboard tool works here ({names}); set [console] clipboard = "osc52"')
    limit = format.size(MOST_BYTES)
    return CopyPlan(False, None, f"{format.size(size)} exceeds the terminal limit of {limit}; filter (/) to copy less")


def describe(ways: CopyPlan, size: int) -> str:
    """The ways that were used, and the limit of OSC 52."""
    names = [ways.tool.name] if ways.tool else []
    limit = f"the limit is {format.size(MOST_BYTES)}"
    if ways.osc52:
        return f"{', '.join(['OSC 52', *names])}; {limit}"
    return names[0] + (f"; too large for OSC 52, {limit}" if size > MOST_BYTES else "")


def picture(app: App[Any], title: str) -> Callable[[], str]:
    """Returns a function that draws the present screen as SVG; it is slow and may run in a thread."""
    width, height = app.size
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False, safe_box=False,
    )  # fmt: skip
    screens = app._background_screens  # what Textual's own export_screenshot draws, in two steps
    console.print(app.screen._compositor.render_update(full=True, screen_stack=screens, simplify=False))
    return lambda: console.export_svg(title=title)


def save_new(text: str, stem: str, ending: str) -> Path:
    """Write a new file, whose name begins with `stem`, into the current folder; returns its path. Raises OSError."""
    name = f"{stem}-{format.file_stamp(time.time_ns())}"
    for number in itertools.count(1):
        path = Path.cwd() / (f"{name}.{ending}" if number == 1 else f"{name}-{number}.{ending}")
        with suppress(FileExistsError), create_text(path) as file:
            file.write(text)
            return path
    raise AssertionError("unreachable")
