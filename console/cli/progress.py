"""Progress line of node surveys."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click


def counted(word: str) -> Callable[[int, int], None]:
    """A callback (done, total) that prints `12/64 nodes examined` on a terminal only."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{done}/{total} nodes {word}" + ("\n" if done == total else ""), err=True, nl=False)

    return show
