"""Job options of `gconsole run`, converted to a typed request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..text.format import parse_size
from .options import node_names

if TYPE_CHECKING:
    from ..config.sections import RunConfig
    from ..launch.request import JobRequest
    from ..launch.scale import ScaleConfig

F = TypeVar("F", bound=Callable[..., Any])


class SizeType(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """A size in binary units such as 40G or 512MiB; converts to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def job_options(command: F) -> F:
    """Add the job options; `request_of` converts them. Defaults come from [run] of hosts.toml."""
    count = click.IntRange(1, 16_384)
    for option in (
        click.argument("command", metavar="-- COMMAND …", nargs=-1, required=True, type=click.UNPROCESSED),
        click.option(
            "--env",
            "variables",
            metavar="NAME=VALUE",
            multiple=True,
            help="Environment variable for all ranks. Repeatable.",
        ),
        click.option("--port", type=click.IntRange(1, 65535), help="Rendezvous port.  [default: a free port]"),
        click.option("--interface", metavar="NAME", help="Network interface between nodes.  [default: a common one]"),
        click.option("--workdir", metavar="DIR", help="Working directory on the nodes.  [default: home directory]"),
        click.option(
            "--sync",
            "folder",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Copy this folder to all nodes first, to --workdir or ~/gconsole-sync/DIR.",
        ),
        click.option(
            "--scale-batch",
            type=click.Choice(["auto", "job", "rank"]),
            default="auto",
            show_default=True,
            help="Meaning of batch sizes in that file: per job or per rank; auto = by key name.",
        ),
        click.option(
            "--scale-config",
            "config_file",
            metavar="FILE",
            help="Pass the job a copy of this JSON, TOML or YAML file, scaled to its number of ranks.",
        ),
        click.option(
            "--launcher",
            type=click.Choice(["torchrun", "accelerate", "env"]),
            help="env = start each rank directly with RANK, WORLD_SIZE etc. set.  [default: torchrun]",
        ),
        click.option(
            "--check-imports",
            is_flag=True,
            help="Also check on every node that the modules which the script imports are installed.",
        ),
        click.option("--select", metavar="auto|NODESET", help="Candidate nodes.  [default: auto]"),
        click.option("--min-disk", type=SizeType(), default=0, help="Min free disk space in the working directory."),
        click.option("--min-mem", type=SizeType(), default=0, help="Min available host memory."),
        click.option("--min-gpu-mem", type=SizeType(), default=0, help="Min memory per GPU."),
        click.option("--procs-per-node", type=click.IntRange(1, 1024), help="Ranks per node.  [default: one per GPU]"),
        click.option(
            "--gpus-per-node",
            type=click.IntRange(0, 1024),
            help="GPUs per node; 0 = CPU only.  [default: max available on one node]",
        ),
        click.option("--nodes", type=count, help="Number of nodes.  [default: all of --select, else 1]"),
    ):
        command = option(command)
    return command


def request_in(text: str, preferred: RunConfig) -> JobRequest:
    """The job request of a line as after `gconsole run start TARGET`. Raises ValueError; blocks to read a folder."""
    command = job_options(click.Command("start", add_help_option=False))
    try:
        with command.make_context("start", shlex.split(text)) as context:
            return request_of(context.params, preferred)
    except click.ClickException as error:
        raise ValueError(error.format_message()) from error


def request_of(options: dict[str, Any], preferred: RunConfig) -> JobRequest:
    """The job request of these options, with `preferred` as defaults. Raises UsageError."""
    from ..launch.code_folder import BadFolder, read_folder
    from ..launch.request import JobRequest

    def value_of(name: str) -> Any:
        return options[name] if options[name] is not None else getattr(preferred, name)

    select = value_of("select") or "auto"
    chosen = None if select == "auto" else node_names(select, "--select")
    try:
        folder = read_folder(options["folder"]) if options["folder"] is not None else None
    except BadFolder as error:
        raise click.BadParameter(str(error), param_hint="--sync") from error
    workdir = value_of("workdir")
    if folder is not None and workdir is None:
        workdir = f"~/gconsole-sync/{Path(folder.local).name}"
    return JobRequest(
        command=tuple(options["command"]), nodes=value_of("nodes"), gpus_per_node=value_of("gpus_per_node"),
        procs_per_node=value_of("procs_per_node"), min_gpu_mem_bytes=options["min_gpu_mem"],
        min_mem_bytes=options["min_mem"], min_disk_bytes=options["min_disk"], select=chosen,
        launcher=value_of("launcher"), workdir=workdir, interface=options["interface"],
        port=options["port"], env=tuple(map(_variable, options["variables"])),
        sync=folder, scale=_scale_config(options), check_imports=options["check_imports"],
    )  # fmt: skip


def _scale_config(options: dict[str, Any]) -> ScaleConfig | None:
    """The `--scale-config` file, relative to the current or the synced folder."""
    from ..launch.scale import ScaleConfig

    name = options["config_file"]
    if name is None:
        return None
    candidates = [Path(name), *([options["folder"] / name] if options["folder"] is not None else [])]
    path = next((candidate for candidate in candidates if candidate.is_file()), candidates[0])
    try:
        return ScaleConfig(name, path.read_text(encoding="utf-8"), options["scale_batch"])
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--scale-config") from error


def _variable(text: str) -> tuple[str, str]:
    from ..launch.request import RESERVED

    name, equals, value = text.partition("=")
    if not equals or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    if name.startswith(RESERVED):
        raise click.BadParameter(f"{name} is reserved for gconsole; use another name", param_hint="--env")
    return name, value
