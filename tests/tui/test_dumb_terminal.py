"""A terminal that cannot place a cursor is told so, with what works there."""

import io

import click
import pytest

from gconsole.cli.live import run_tui
from gconsole.config import Config


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_dumb_terminal_is_sent_to_batch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr("sys.stderr", _Terminal())
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(click.UsageError, match=r"TERM=dumb.*gconsole batch TARGET"):
        run_tui(Config(cluster="pod", nodes=()))
