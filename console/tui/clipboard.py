"""To the clipboard: of the terminal that shows the console (OSC 52, through ssh and tmux), of this machine, or both.

The terminal never answers, and one that takes less than it is sent takes nothing: so there is a limit, and it is told.
This machine's clipboard is reached through the tool people have for it; without its display such a tool cannot work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..text import format

#: Bytes of text that terminals take at most: many stop at an escape sequence of 100,000 bytes, base64 adds a third.
MOST_BYTES: Final = 74_994
#: A tool that takes longer than this waits for a display that is away, in seconds.
PATIENCE_S: Final = 3.0
ClipboardTarget = Literal["osc52", "native", "both"]


@dataclass(frozen=True)
class ClipboardTool:
    """A program that puts its input into the clipboard of this machine, where the variable `needs` is set."""

    argv: tuple[str, ...]
    needs: str = ""

    @property
    def name(self) -> str:
        """Without its folder."""
        return Path(self.argv[0]).name


TOOLS: Final = (
    ClipboardTool(("pbcopy",)),
    ClipboardTool(("wl-copy",), "WAYLAND_DISPLAY"),
    ClipboardTool(("xclip", "-selection", "clipboard"), "DISPLAY"),
    ClipboardTool(("xsel", "--clipboard", "--input"), "DISPLAY"),
)


def find_tool(environ: Mapping[str, str] = os.environ) -> ClipboardTool | None:
    """The first tool that is installed here and has its display."""
    for tool in TOOLS:
        path = shutil.which(tool.name, path=environ.get("PATH"))
        if path is not None and (not tool.needs or environ.get(tool.needs)):
            return ClipboardTool((path, *tool.argv[1:]), tool.needs)
    return None


def run_tool(tool: ClipboardTool, text: str, patience_s: float = PATIENCE_S) -> str:
    """Give it the text; why it did not take it, else "". Blocks for as long as the tool takes.

    Its stderr goes to a file: xclip and wl-copy leave a child behind that holds the clipboard, and would hold a pipe.
    """
    name = tool.name
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                tool.argv, input=text.encode(), stdout=subprocess.DEVNULL, stderr=said, timeout=patience_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{name} took longer than {patience_s:g} s"
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        if done.returncode == 0:
            return ""
        said.seek(0)
        words = said.read(200).decode(errors="replace").strip().splitlines()
        return f"{name}: {words[0] if words else f'exit code {done.returncode}'}"


@dataclass(frozen=True)
class CopyPlan:
    """Which ways a text takes, and what the person is told if it takes none."""

    osc52: bool
    tool: ClipboardTool | None
    refused: str = ""


def plan(where: ClipboardTarget, size: int, find: Callable[[], ClipboardTool | None] = find_tool) -> CopyPlan:
    """How so many bytes get to the clipboard."""
    tool = find() if where != "osc52" else None
    osc52 = where != "native" and size <= MOST_BYTES
    if osc52 or tool is not None:
        return CopyPlan(osc52, tool)
    if where == "native":
        names = ", ".join(known.name for known in TOOLS)
        return CopyPlan(False, None, f'none of {names} works here; [console] clipboard = "osc52" asks the terminal')
    limit = f"terminals take {format.size(MOST_BYTES)} at most"
    return CopyPlan(False, None, f"{format.size(size)}, and {limit}; a filter (/) makes it less")


def describe(ways: CopyPlan, size: int) -> str:
    """The ways it took, and the limit of the terminal's."""
    names = [ways.tool.name] if ways.tool else []
    limit = f"the limit is {format.size(MOST_BYTES)}"
    if ways.osc52:
        return f"{', '.join(['OSC 52', *names])}; {limit}"
    return names[0] + (f"; too large for OSC 52, {limit}" if size > MOST_BYTES else "")
