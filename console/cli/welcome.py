"""Getting-started text of `gconsole` without arguments or hosts.toml."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Final

import click

#: Default TARGET.
HOSTS: Final = "hosts.toml"
#: A minimal hosts.toml.
SMALLEST: Final = '[cluster]\nname = "my-cluster"\n\n[[nodes]]\nhosts = "node[01-04]"\n'
_TEXT: Final = f"""\
gconsole diagnoses hung or slow distributed training jobs over SSH.
No TARGET given, and {HOSTS} not found in
{{folder}}.

Try it without a cluster (four local demo nodes with a running job):

    gconsole demo

Connect to your nodes, using your ~/.ssh/config:

    gconsole 'node[01-04]'

Or list them in {HOSTS}. A minimal file:

{textwrap.indent(SMALLEST, "    ")}
    gconsole config init      write a commented {HOSTS}
    gconsole                  open the TUI
    gconsole batch {HOSTS}  run headless

More commands: gconsole --help
"""


class FirstStart(click.ClickException):
    """No TARGET given and no hosts.toml in the current folder; carries the getting-started text."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__(_TEXT.format(folder=_here()))

    def show(self, file: Any = None) -> None:
        """Print the text without an error prefix."""
        click.echo(self.message, file=file, err=file is None, nl=False)


def has_hosts() -> bool:
    """Whether ./hosts.toml exists."""
    return Path(HOSTS).is_file()


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # deleted
        return "the current folder"
