"""Options of `gconsole run`: what a job shall be, as a typed request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..config.sections import RunConfig
    from ..launch.request import JobRequest
    from ..launch.scale import ScaleConfig

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
}  # fmt: skip


class Size(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """`40GiB`, `40G`, `512MiB`; the value is in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", value.strip().lower())
        if match is None or match[2] not in _UNITS:
            self.fail(f"{value!r} is no size; write 40GiB or 512MiB", param, ctx)
        return int(float(match[1]) * _UNITS[match[2]])


def job_options(command: F) -> F:
    """Everything that says what a job shall be; `request_of` makes a request of it. Defaults: [run] of hosts.toml."""
    count = click.IntRange(1, 16_384)
    for option in (
        click.argument("command", metavar="-- COMMAND …", nargs=-1, required=True, type=click.UNPROCESSED),
        click.option(
            "--env",
            "variables",
            metavar="NAME=VALUE",
            multiple=True,
            help="In the environment of every rank. Repeatable.",
        ),
        click.option("--port", type=click.IntRange(1, 65535), help="Where the ranks meet.  [default: a free one]"),
        click.option("--interface", metavar="NAME", help="Network between the nodes.  [default: one they share]"),
        click.option("--workdir", metavar="DIR", help="Folder on the nodes.  [default: the home folder]"),
        click.option(
            "--sync",
            "folder",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Copy this folder to every node first, into --workdir, or ~/gconsole-sync/DIR.",
        ),
        click.option(
            "--scale-batch",
            type=click.Choice(["auto", "job", "rank"]),
            default="auto",
            show_default=True,
            help="Whether the batch in that file is the job's or each rank's; auto: by its name.",
        ),
        click.option(
            "--scale-config",
            "config_file",
            metavar="FILE",
            help="Give the job a copy of this JSON, TOML or YAML file, adjusted to its ranks.",
        ),
        click.option(
            "--launcher",
            type=click.Choice(["torchrun", "accelerate", "env"]),
            help="env: each rank is started with RANK, WORLD_SIZE and the like.  [default: torchrun]",
        ),
        click.option("--select", metavar="auto|NODESET", help="Choose among these nodes only.  [default: auto]"),
        click.option("--min-disk", type=Size(), default=0, help="Free where the job works."),
        click.option("--min-mem", type=Size(), default=0, help="Available memory of the host."),
        click.option("--min-gpu-mem", type=Size(), default=0, help="Memory of each GPU."),
        click.option(
            "--procs-per-node", type=click.IntRange(1, 1024), help="Ranks a node.  [default: one for each GPU]"
        ),
        click.option(
            "--gpus-per-node",
            type=click.IntRange(0, 1024),
            help="0: a job for CPUs.  [default: all of the node that has most]",
        ),
        click.option("--nodes", type=count, help="How many.  [default: all of --select, else one]"),
    ):
        command = option(command)
    return command


def request_of(options: dict[str, Any], preferred: RunConfig) -> JobRequest:
    """The request that these options make, with what is `preferred` where they say nothing. Raises UsageError."""
    from ..config.nodeset import expand
    from ..config.nodeset_parser import BadNodeSet
    from ..launch.request import JobRequest
    from ..launch.sync_manifest import BadFolder, read_folder

    def wanted(name: str) -> Any:
        return options[name] if options[name] is not None else getattr(preferred, name)

    select = wanted("select") or "auto"
    try:
        chosen = None if select == "auto" else tuple(host.name for host in expand(select))
    except BadNodeSet as error:
        raise click.BadParameter(str(error), param_hint="--select") from error
    try:
        folder = read_folder(options["folder"]) if options["folder"] is not None else None
    except BadFolder as error:
        raise click.BadParameter(str(error), param_hint="--sync") from error
    workdir = wanted("workdir")
    if folder is not None and workdir is None:
        workdir = f"~/gconsole-sync/{Path(folder.local).name}"
    return JobRequest(
        command=tuple(options["command"]), nodes=wanted("nodes"), gpus_per_node=wanted("gpus_per_node"),
        procs_per_node=wanted("procs_per_node"), min_gpu_mem_bytes=options["min_gpu_mem"],
        min_mem_bytes=options["min_mem"], min_disk_bytes=options["min_disk"], select=chosen,
        launcher=wanted("launcher"), workdir=workdir, interface=options["interface"],
        port=options["port"], env=tuple(map(_variable, options["variables"])),
        sync=folder, scale=_scale_config(options),
    )  # fmt: skip


def _scale_config(options: dict[str, Any]) -> ScaleConfig | None:
    """The file that `--scale-config` names, looked for below the folder that is copied, too."""
    from ..launch.scale import ScaleConfig

    name = options["config_file"]
    if name is None:
        return None
    places = [Path(name), *([options["folder"] / name] if options["folder"] is not None else [])]
    found = next((place for place in places if place.is_file()), places[0])
    try:
        return ScaleConfig(name, found.read_text(encoding="utf-8"), options["scale_batch"])
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{found}: {error}", param_hint="--scale-config") from error


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    if name.startswith("GCONSOLE_JOB") or name == "GCONSOLE_NODE_RANK":
        raise click.BadParameter(f"{name} is how gconsole knows its own jobs", param_hint="--env")
    return name, value
