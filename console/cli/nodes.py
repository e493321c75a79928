"""Commands on nodes without a screen: ps, topo, doctor, clean, release."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import duration_option, json_option, load_target, target, target_or_recording, write_output
from .terminal import print_text

if TYPE_CHECKING:
    from ..config import Config
    from ..core.store import Store
    from ..fleet.survey import NodeReply
    from ..topology.snapshot import TopologySnapshot


@click.command()
@target
@json_option
def ps(target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """List launchers, ranks, their child processes and other Python processes, grouped by command line."""
    from ..present.processes import processes_json, processes_text
    from ..report import coverage_code
    from .live import observe

    store = observe(load_target(target, overrides))
    print_text(processes_json(store) if as_json else processes_text(store), is_document=as_json)
    return coverage_code(store)


@click.command()
@target
@json_option
def doctor(target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check each node and suggest fixes.

    Checks: reachability, host key and login, Python, agent start, /proc visibility, ptrace, sudo, py-spy, NVML,
    clock, cache folder, and buffer capacity.
    """
    from ..monitor.doctor import examine, exit_code, to_json, to_text

    config = load_target(target, overrides)
    exams = examine(_survey(config, "doctor", {}, "examined"))
    print_text(to_json(exams) if as_json else to_text(exams), is_document=as_json)
    return exit_code(exams)


@click.command()
@target
@click.option("--force", is_flag=True, help="Also stop agents of your user that are still running.")
@json_option
def clean(target: str, overrides: tuple[str, ...], force: bool, as_json: bool) -> int:
    """Remove gconsole's files from nodes and gateways: the cache folder with its binaries, and leftover agents.

    A cache in use by another console's agent is kept, and that console is listed; --force first stops such agents if
    they run as your user.
    """
    from ..fleet.fleet import gateways_of
    from ..monitor.doctor import clean_exit_code, clean_json, clean_text

    config = load_target(
        target, (*overrides, "ssh.record_on=", "agent.ephemeral=true", "agent.linger_s=0", "agent.simulate_gpus=0")
    )
    gateways = gateways_of(config)  # first: one that keeps records would start agents on its nodes again
    of_gateways = _survey(gateways, "clean", {"force": force}, "gateways cleaned") if gateways is not None else []
    replies = [*_survey(config, "clean", {"force": force}, "cleaned"), *of_gateways]
    print_text(clean_json(replies) if as_json else clean_text(replies), is_document=as_json)
    return clean_exit_code(replies)


@click.command()
@target
@duration_option("--for", "for_s", default="10m", help="How long; at most an hour.")
@click.option("--undo", is_flag=True, help="Use the GPUs again now.")
@json_option
def release(target: str, overrides: tuple[str, ...], for_s: float, undo: bool, as_json: bool) -> int:
    """Let the nodes' GPUs go for a while, and name the processes that still have one open.

    A GPU can neither be reset nor get another driver while a process has it open, and gconsole's agents have. All
    agents of your user close the GPUs, whatever console they belong to, and open them again when the time is over.
    Exit codes: 0 no process has a GPU open, 3 some have, or some nodes were not reached, 4 none was.

    \b
    gconsole release node044 && ssh node044 sudo nvidia-smi --gpu-reset -i 3
    gconsole release node044 --undo
    """
    if not 1 <= for_s <= 3600:
        raise click.BadParameter("from 1 s to 1 h", param_hint="--for")
    from ..monitor.doctor import release_exit_code, release_json, release_text

    config = load_target(target, overrides)
    replies = _survey(config, "release", {"for_s": 0 if undo else round(for_s)}, "released")
    print_text(release_json(replies) if as_json else release_text(replies), is_document=as_json)
    return release_exit_code(replies)


def _survey(config: Config, verb: str, args: dict[str, Any], done: str) -> list[NodeReply]:
    """The reply of every node to one request; `done` is what the progress line counts."""
    from ..fleet.survey import survey
    from ..runtime.console import Console
    from .terminal import counted

    async def run() -> list[NodeReply]:
        async with Console(config, probe_clocks=False, black_box=False).running() as console:
            links = list(console.fleet.links.values())
            return await survey(links, verb, args, deadline_s=60.0, progress=counted(done))

    return asyncio.run(run())


@click.command()
@target_or_recording
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
    if ends is not None and (node is not None or form != "text"):
        raise click.UsageError("--path conflicts with --node and supports --format text only")
    from ..report import coverage_code
    from ..topology import formats
    from ..topology.snapshot import gather

    store = _load_store(target, overrides, source)
    fleet = gather(store)
    if node is not None and node not in fleet.nodes:
        raise click.UsageError(_unknown(store, node))
    text = _path(fleet, ends) if ends is not None else formats.FORMATS[form](fleet, node)
    write_output(output, text.encode() + b"\n")
    return coverage_code(store)


def _load_store(target: str | None, overrides: tuple[str, ...], source: Path | None) -> Store:
    if source is not None:
        from .output import folded

        return folded(source)
    from .live import observe

    return observe(load_target(target or "", overrides))


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
