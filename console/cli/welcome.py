"""`gconsole` on its own, where there is nothing to open yet: what it is for, and the first thing to type."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Final

import click

#: What `gconsole` without a TARGET opens.
HOSTS: Final = "hosts.toml"
#: A whole hosts.toml: what must be said, and nothing that has a default.
SMALLEST: Final = '[cluster]\nname = "my-cluster"\n\n[[nodes]]\nhosts = "node[01-04]"\n'
_TEXT: Final = f"""\
gconsole shows a distributed training job on a GPU cluster, live and over SSH.
It does not know your nodes yet: there is no {HOSTS} in
{{folder}}.

To try it without a cluster (this machine plays four nodes with a job on them):

    gconsole demo

To see your own nodes, reached as ssh reaches them, with your own ~/.ssh/config:

    gconsole 'node[01-04]'

To keep them, write a {HOSTS}. This is a whole one:

{textwrap.indent(SMALLEST, "    ")}
    gconsole config init      writes one with every key explained
    gconsole                  watches its nodes
    gconsole batch {HOSTS}  looks at them without a screen

Everything else: gconsole --help
"""


class FirstStart(click.ClickException):
    """No TARGET was given, and there is no hosts.toml here. Its text is the whole story, for stderr."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__(_TEXT.format(folder=_here()))

    def show(self, file: Any = None) -> None:
        click.echo(self.message, file=file, err=file is None, nl=False)


def has_hosts() -> bool:
    """Whether there is something to open."""
    return Path(HOSTS).is_file()


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # the folder was removed under us
        return "this folder"
