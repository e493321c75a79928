"""`gconsole bundle`: binaries for nodes of other architectures, and for sites without internet."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the wheels from this folder instead of the package index (for air-gapped sites).",
)
@click.option("--list", "only_list", is_flag=True, help="Only say what is there.")
def bundle(wheels: Path | None, only_list: bool) -> int:
    """Fetch psutil and py-spy for x86_64 and aarch64 nodes into the console's own cache.

    A console on Linux serves nodes of its own architecture without this.
    """
    from ..fleet.deploy import wheel_cache

    if not only_list:
        try:
            wheel_cache.fill(wheels)
        except wheel_cache.WheelhouseError as error:
            raise click.ClickException(str(error)) from error
    for line in wheel_cache.describe():
        click.echo(line)
    return 0
