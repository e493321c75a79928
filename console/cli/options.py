"""Options and parameter types that several subcommands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from ..config import Config, ConfigError, load
from ..schedulers import SchedulerError, attach, is_site_target
from ..text.timespec import TimeSpecError, duration_s

if TYPE_CHECKING:
    from ..core.control import CaptureRequest
    from ..monitor.diagnose import Diagnosis
    from .output import StackOutput

F = TypeVar("F", bound=Callable[..., Any])
#: What --format takes (`session.export`), and how stacks are folded (`analysis.stacks`); --help need not load either.
FORMATS = ("text", "json", "folded", "speedscope", "dot")
THREADS = ("main", "blocking", "all")
GRANULARITIES = ("function", "line", "locals")


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """A duration of `text.timespec`, or a number of seconds; the value is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            return duration_s(value, bare=True)
        except TimeSpecError as error:
            self.fail(str(error), param, ctx)


def target(command: F) -> F:
    """The TARGET argument and `--set`, the flags that override any key of hosts.toml."""
    command = click.option(
        "--set",
        "overrides",
        metavar="SECTION.KEY=VALUE",
        multiple=True,
        help="Override a key of hosts.toml for all nodes, e.g. --set agent.linger_s=60. Repeatable.",
    )(command)
    return click.argument("target", metavar="TARGET")(command)


def capturing(command: F) -> F:
    """`--capture`, `--diagnose` and what belongs to them; `capture_order` makes sense of them."""
    for option in (
        click.option(
            "--locals",
            "names",
            metavar="NAME,…",
            help="Read these variables of every frame too; '*' reads all of them.",
        ),
        click.option(
            "--native/--no-native",
            default=None,
            help="Whether to read native calls, which stops a process for up to 4 s; "
            "without either, of ranks that stand still.",
        ),
        click.option("--every", metavar="DURATION", type=DurationType(), help="Between samples.  [default: 300ms]"),
        click.option("--samples", type=click.IntRange(1, 1000), help="How often each rank is read.  [default: 3]"),
        click.option("--diagnose", is_flag=True, help="Capture until it can be said who holds the job; say it."),
        click.option("--capture", is_flag=True, help="At the end read the stacks of all ranks, and fold them."),
    ):
        command = option(command)
    return command


def stack_format(command: F) -> F:
    """`--format`, `--threads` and `--granularity`; `wanted_stacks` makes sense of them."""
    for option in (
        click.option(
            "--granularity",
            type=click.Choice(GRANULARITIES),
            default="function",
            show_default=True,
            help="By what ranks are told apart in text, JSON and dot.",
        ),
        click.option(
            "--threads",
            type=click.Choice(THREADS),
            default="main",
            show_default=True,
            help="Which thread of a process: the main one, the one that it waits for, or all.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            help="Write the stacks to stdout in this form; the summary goes to stderr.",
        ),
    ):
        command = option(command)
    return command


def wanted_stacks(form: str | None, threads: str, granularity: str, output: str | None) -> StackOutput:
    """What those options ask for. Raises UsageError where stdout is somebody else's."""
    from ..analysis.stacks.fold import Granularity, Shape, Threads
    from .output import StackOutput

    if form is not None and output == "-":
        raise click.UsageError("--format has stdout for itself; write the report to a file: -o FILE")
    return StackOutput(form, Shape(cast(Threads, threads), cast(Granularity, granularity)))


def capture_order(
    capture: bool,
    diagnose: bool,
    samples: int | None,
    every_s: float | None,
    native: bool | None,
    names: str | None,
    flight_pipe: bool = False,
) -> CaptureRequest | Diagnosis | None:
    """What those options ask for; None for no capture. Raises UsageError."""
    if not (capture or diagnose):
        if samples is not None or every_s is not None or native is not None or names is not None:
            raise click.UsageError("--samples, --every, --native and --locals belong to --capture or --diagnose")
        if flight_pipe:
            raise click.UsageError("--flight-pipe belongs to --capture or --diagnose")
        return None
    if native is not None and not diagnose:
        raise click.UsageError("--native and --no-native belong to --diagnose")
    variables = tuple(name.strip() for name in (names or "").split(",") if name.strip())
    from ..core.control import CaptureRequest, new_capture
    from ..monitor.diagnose import Diagnosis

    if diagnose:
        return Diagnosis(samples, every_s, native, variables, flight_pipe)
    return CaptureRequest(
        new_capture(), samples=samples or 3, every_s=0.3 if every_s is None else every_s, locals=variables,
        flight_pipe=flight_pipe,
    )  # fmt: skip


def sessions_folder(command: F) -> F:
    """`--folder`, where sessions are kept; the function gets its path."""

    def found(ctx: click.Context, param: click.Parameter, value: str | None) -> Path:
        from ..session.format.layout import sessions_folder as place

        return place(value)

    return click.option(
        "--folder",
        envvar="GCONSOLE_SESSIONS_FOLDER",
        metavar="DIR",
        callback=found,
        help="Where the sessions are, if not in your data folder.  [env var: GCONSOLE_SESSIONS_FOLDER]",
    )(command)


def load_target(target: str, overrides: tuple[str, ...], *, quiet: bool = False) -> Config:
    """The configuration of a TARGET; warnings go to stderr, unless `quiet`. Raises ConfigError."""
    flags = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise click.BadParameter(f"{text!r} is not SECTION.KEY=VALUE", param_hint="--set")
        flags[key.strip()] = value.strip()
    config = _attached(target, flags) if is_site_target(target) else load(target, flags=flags)
    for warning in () if quiet else config.warnings:
        click.echo(f"gconsole: {warning}", err=True)
    return config


def _attached(target: str, flags: Mapping[str, object]) -> Config:
    """The nodes that the site's scheduler names, each with what starts its agent. Raises ConfigError."""
    try:
        found = attach(target)
    except SchedulerError as error:
        raise ConfigError("target", target, str(error)) from error
    engines = {place.name: place.engine for place in found.places}
    config = load(",".join(engines), flags=flags, name=target)
    nodes = tuple(msgspec.structs.replace(node, engine=engines[node.name]) for node in config.nodes)
    return msgspec.structs.replace(config, nodes=nodes, warnings=(*config.warnings, *found.warnings))
