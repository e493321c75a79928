"""The terminal that a screen is to be drawn on."""

from __future__ import annotations

import os
import sys

import click


def terminal_is_ours() -> bool:
    """Whether the screen is drawn on this terminal; else in a browser, for `gconsole serve`."""
    return not os.environ.get("TEXTUAL_DRIVER")


def refuse_a_terminal_that_cannot_draw(instead: str) -> None:
    """Raises UsageError where there is no terminal, or one on which nothing can be placed; `instead` works there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # Textual reads the one and draws on the other
        raise click.UsageError(f"the console needs a terminal; without one, use: {instead}")
    term = os.environ.get("TERM")
    if term in ("dumb", "unknown"):
        raise click.UsageError(
            f"this terminal (TERM={term}) cannot place a cursor, so nothing can be drawn on it; use: {instead}"
        )


def ask_the_terminal_for_its_size() -> None:
    """Some programs (whatever uses readline, watch, Emacs) hand down the size that a terminal once had, as variables.

    Python believes those before the terminal, and the screen would never follow it.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
