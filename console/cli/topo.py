"""`gconsole topo`: GPU/NIC topology of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import load_target

if TYPE_CHECKING:
    from ..core.store import Store
    from ..topology.snapshot import TopologySnapshot


@click.command()
@click.argument("target", metavar="TARGET", required=False)
@click.option("--set", "overrides", metavar="SECTION.KEY=VALUE", multiple=True, help="Override a config value.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Read a recording (session or NDJSON file) instead of live nodes.",
)
@click.option("--node", metavar="NODE", help="Only this node, with a diagram and the links between its GPUs.")
@click.option("--path", "ends", nargs=2, metavar="NODE:GPU NODE:GPU", help="Show only the best path between two GPUs.")
@click.option("--format", "form", type=click.Choice(["text", "dot", "json", "svg"]), default="text", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Output file.  [default: stdout]")
def topo(
    target: str | None, overrides: tuple[str, ...], source: Path | None, node: str | None, ends: tuple[str, str] | None,
    form: str, output: str | None,
) -> int:  # fmt: skip
    """Show GPU/NIC topology (like nvidia-smi topo -m) with ranks, grouped by identical nodes.

    Lists differences between nodes. Exit codes: 0 all nodes reported, 3 some did not, 4 none did.

    \b
    gconsole topo hosts.toml
    gconsole topo hosts.toml --node node044
    gconsole topo hosts.toml --path node001:0 node002:7
    gconsole topo hosts.toml --format dot | dot -Tpng -o topology.png
    """
    if (target is None) == (source is None):
        raise click.UsageError("specify either TARGET or --from SESSION|FILE")
    if ends is not None and (node is not None or form != "text"):
        raise click.UsageError("--path conflicts with --node and supports --format text only")
    from ..report import coverage_code
    from ..topology.snapshot import gather

    store = _load_store(target, overrides, source)
    fleet = gather(store)
    if node is not None and node not in fleet.nodes:
        raise click.UsageError(_unknown(store, node))
    _write(_path(fleet, ends) if ends is not None else _render(fleet, node, form), output)
    return coverage_code(store)


def _load_store(target: str | None, overrides: tuple[str, ...], source: Path | None) -> Store:
    if source is not None:
        from .offline import folded

        return folded(source)
    from .live import observe

    return observe(load_target(target or "", overrides))


def _render(fleet: TopologySnapshot, node: str | None, form: str) -> str:
    from ..topology import formats

    return formats.FORMATS[form](fleet, node)


def _path(fleet: TopologySnapshot, ends: tuple[str, str]) -> str:
    from ..topology.pair_queries import find_gpu, path_text

    try:
        start, end = (find_gpu(fleet, name) for name in ends)
    except LookupError as error:
        raise click.BadParameter(error.args[0], param_hint="--path") from error
    if start == end:
        raise click.BadParameter("both ends are the same GPU", param_hint="--path")
    return path_text(fleet, start, end)


def _unknown(store: Store, node: str) -> str:
    now = store.nodes.get(node)
    if now is None:
        return f"--node {node}: node not found; nodes: {', '.join(list(store.nodes)[:8]) or 'none'}"
    error = now.state.error if now.state else None
    return f"--node {node}: {error.name}: {error.text}" if error else f"--node {node}: no GPU or NIC reported"


def _write(text: str, output: str | None) -> None:
    if output is None or output == "-":
        click.echo(text)
        return
    from ..text import atomic_files

    try:
        atomic_files.write_atomically(Path(output), text.encode() + b"\n")
    except OSError as error:
        raise click.FileError(output, error.strerror or str(error)) from error
