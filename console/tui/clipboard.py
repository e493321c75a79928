"""Clipboard access: the terminal's (OSC 52, through ssh and tmux), this machine's (a clipboard tool), or both.

Terminals do not acknowledge OSC 52, and discard what exceeds their limit; so larger texts are refused.
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

#: Bytes of text. Many terminals stop at an escape sequence of 100,000 bytes; base64 adds a third.
MOST_BYTES: Final = 74_994
#: Seconds. A tool that takes longer waits for an unreachable display.
TOOL_TIMEOUT_S: Final = 3.0
ClipboardTarget = Literal["osc52", "native", "both"]


@dataclass(frozen=True)
class ClipboardTool:
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


def run_tool(tool: ClipboardTool, text: str, timeout_s: float = TOOL_TIMEOUT_S) -> str:
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


@dataclass(frozen=True)
class CopyPlan:
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
