"""Terminal checks before the TUI starts."""

from __future__ import annotations

import os
import sys

import click


def is_terminal_output() -> bool:
    """Whether the TUI draws on this terminal, rather than in a browser (`gconsole serve`)."""
    return not os.environ.get("TEXTUAL_DRIVER")


def require_terminal(instead: str) -> None:
    """Raises UsageError without a terminal with cursor control; the message suggests the command `instead`."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual reads stdin and draws on stderr
        raise click.UsageError(f"the TUI requires a terminal; without one, run: {instead}")
    term = os.environ.get("TERM")
    if term in ("dumb", "unknown"):
        raise click.UsageError(f"TERM={term} does not support cursor movement; run: {instead}")


def clear_inherited_size() -> None:
    """Remove COLUMNS and LINES set by parents such as watch or Emacs; Python prefers them to the real size."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
