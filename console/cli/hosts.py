"""`gconsole hosts`: list and edit entries of a hosts.toml, preserving comments."""

from __future__ import annotations

import click


@click.group()
def hosts() -> None:
    """List, add and remove the nodes of a hosts.toml."""


@hosts.command("list")
@click.argument("file")
def list_entries(file: str) -> None:
    """Print the entries of FILE."""
    from ..config import edit
    from ..config.show import entries_text

    click.echo(entries_text(edit.entries(file)))


@hosts.command()
@click.argument("file")
@click.argument("names", metavar="HOSTS")
@click.option("--address", help="Address of the host, if different from its name. Single host only.")
@click.option("--port", type=int, help="SSH port.")
@click.option("--user", help="SSH user.")
@click.option("--tag", "tags", multiple=True, help="Tag for filtering. Repeatable.")
@click.option("--python", help="Python interpreter on these nodes.")
def add(
    file: str, names: str, address: str | None, port: int | None, user: str | None, tags: tuple[str, ...],
    python: str | None,
) -> None:  # fmt: skip
    """Add an entry for HOSTS (node[001-064], a,b, @group) to FILE."""
    from ..config import edit

    values = {"address": address, "port": port, "user": user, "tags": tags, "python": python}
    count = edit.add(file, names, values)
    click.echo(f"{file}: {count} node{'s' * (count != 1)} added")


@hosts.command()
@click.argument("file")
@click.argument("names", metavar="HOSTS")
def remove(file: str, names: str) -> None:
    """Remove HOSTS from all entries of FILE."""
    from ..config import edit

    count = edit.remove(file, names)
    click.echo(f"{file}: {count} node{'s' * (count != 1)} removed")
