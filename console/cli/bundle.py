"""`gconsole bundle`: psutil and py-spy wheels for other architectures and air-gapped sites."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read wheels from this folder instead of the package index (for air-gapped sites).",
)
@click.option("--list", "only_list", is_flag=True, help="List cached wheels without fetching.")
def bundle(wheels: Path | None, only_list: bool) -> int:
    """Fetch psutil and py-spy for x86_64 and aarch64 nodes into the local cache.

    Not needed if console and nodes run Linux on the same architecture.
    """
    from ..fleet.deploy import binaries

    if not only_list:
        try:
            binaries.fill(wheels)
        except binaries.WheelhouseError as error:
            raise click.ClickException(str(error)) from error
    for line in binaries.describe():
        click.echo(line)
    return 0
