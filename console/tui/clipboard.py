"""To the clipboard of the terminal that shows the console, through ssh and tmux: OSC 52.

The terminal never answers, and one that takes less than it is sent takes nothing: so there is a limit, and it is told.
"""

from __future__ import annotations

from typing import Final

from textual.app import App

#: Bytes of text that terminals take at most: many stop at an escape sequence of 100,000 bytes, base64 adds a third.
MOST_BYTES: Final = 74_994


def copy(app: App[object], text: str, what: str) -> None:
    """Copy the text, and say so; or say that it is too much. `what` names it for the person, e.g. "8 ranks"."""
    size = len(text.encode())
    if size > MOST_BYTES:
        app.notify(
            f"{what} not copied: {size // 1000:,} kB, and terminals take {MOST_BYTES // 1000} kB at most; "
            "a filter (/) makes it less",
            severity="warning", markup=False,
        )  # fmt: skip
        return
    app.copy_to_clipboard(text)
    app.notify(f"{what} copied, {_said(size)} (OSC 52; the limit is {MOST_BYTES // 1000} kB)", timeout=3, markup=False)


def _said(size: int) -> str:
    return f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"
