"""Shared command-line options and parameter types."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import click

from ..config import Config
from ..fleet.scheduler_jobs import load_configuration
from ..text.format import comma_words
from ..text.sanitize import printable
from ..text.timespec import TimeSpecError, duration_s
from .completion import complete_sessions, complete_targets
from .main import GATEWAY
from .terminal import print_text

if TYPE_CHECKING:
    from ..core.control import CaptureRequest
    from ..monitor.capture_selection import CaptureSelection
    from ..monitor.hang import Diagnosis
    from .output import StackOutput

F = TypeVar("F", bound=Callable[..., Any])
#: Same as in `session.export` and `analysis.stacks`, which --help must not import.
FORMATS = ("text", "json", "folded", "speedscope", "dot")
THREADS = ("main", "blocking", "all")
GRANULARITIES = ("function", "line", "locals")


#: A duration without a unit, as 0.1.0 took it.
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """A duration such as 90s, 15m or 2h; converts to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        if _SECONDS.fullmatch(value):
            name = param.opts[0] if param else self.name
            print_text(
                printable(
                    f"gconsole: {name} {value}: write {value}s; the next release rejects a duration without a unit"
                ),
                err=True,
            )
            value += "s"
        try:
            return duration_s(value)
        except TimeSpecError as error:
            self.fail(str(error), param, ctx)


def duration_option(*names: str, help: str, default: str | None = None) -> Callable[[F], F]:
    """An option with a duration; the command receives seconds, or None without `default`."""
    shown = default is not None
    return click.option(*names, type=DurationType(), default=default, show_default=shown, help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_set_option = click.option(
    "--set",
    "overrides",
    metavar="SECTION.KEY=VALUE",
    multiple=True,
    help="Override a config value for all nodes, e.g. --set agent.linger_s=60. Repeatable.",
)
_via_option = click.option(
    "--via",
    metavar="HOST,…",
    help="Reach the nodes through these gateways, e.g. login[1-2]: as --set ssh.gateway=login[1-2].",
)


def overrides_option(command: F) -> F:
    """Add `--set` and `--via`; the command receives both as `overrides`."""

    @functools.wraps(command)
    def with_gateway(*args: Any, overrides: tuple[str, ...] = (), via: str | None = None, **options: Any) -> Any:
        via = via or click.get_current_context().meta.get(GATEWAY)
        if via is not None:
            overrides = (*overrides, f"ssh.gateway={via}")
        return command(*args, overrides=overrides, **options)

    return _set_option(_via_option(cast(F, with_gateway)))


#: Also without a terminal: statements go on after the end of the input.
linear_option = click.option(
    "--linear",
    is_flag=True,
    help="No screen: one statement a line, commands on lines of input; for screen readers and logs. "
    "Default on a terminal without cursor movement (TERM=dumb).",
)
fail_on_option = click.option(
    "--fail-on",
    default="error",
    show_default=True,
    metavar="SEVERITY|ID,…",
    callback=lambda ctx, param, value: _fail_on(value),
    help="Exit with code 1 on findings at or above this severity, or with these ids.",
)


def _fail_on(text: str) -> tuple[str, ...]:
    """Severities and finding ids from a comma-separated list. Raises UsageError for unknown words."""
    from ..analysis.finding import IDS
    from ..report import unknown_words

    words = comma_words(text)
    unknown = unknown_words(words)
    if unknown or not words:
        what = f"unknown severity or finding id: {', '.join(unknown)}" if unknown else "empty list"
        raise click.UsageError(f"--fail-on: {what}; use error, warning, info, or {', '.join(sorted(IDS))}")
    return words


def target(command: F) -> F:
    """Add the TARGET argument and the `--set` option."""
    return click.argument("target", metavar="TARGET", shell_complete=complete_targets)(overrides_option(command))


def target_or_recording(command: F) -> F:
    """Add an optional TARGET, `--set` and `--from`. Raises UsageError unless one of TARGET and `--from` is given."""

    @functools.wraps(command)
    def checked(target: str | None, source: Path | None, **options: Any) -> Any:
        if (target is None) == (source is None):
            raise click.UsageError("specify either TARGET or --from SESSION|FILE")
        return command(target=target, source=source, **options)

    recording = click.option(
        "--from",
        "source",
        type=InputPath(path_type=Path),
        shell_complete=complete_sessions,
        help="Read a recording (session or NDJSON file; - = stdin) instead of live nodes.",
    )
    argument = click.argument("target", metavar="TARGET", required=False, shell_complete=complete_targets)
    return argument(overrides_option(recording(cast(F, checked))))


def capturing(command: F) -> F:
    """Add the capture options; `capture_order` interprets them."""
    for option in (
        click.option(
            "--locals",
            "names",
            metavar="NAME,…",
            help="Also capture these local variables; '*' = all.",
        ),
        click.option(
            "--native/--no-native",
            default=None,
            help="Include native frames (pauses a process for up to 4 s). "
            "Default: only for ranks whose Python stack is not conclusive.",
        ),
        duration_option("--every", help="Sampling interval.  [default: 300ms]"),
        click.option("--samples", type=click.IntRange(1, 1000), help="Samples per rank.  [default: 3]"),
        click.option("--diagnose", is_flag=True, help="Sample until the blocking rank is identified, and report it."),
        click.option("--capture", is_flag=True, help="Capture stacks of all ranks at the end."),
    ):
        command = option(command)
    return command


def selecting(command: F) -> F:
    """Add the options that select what to capture; `selection_of` interprets them."""
    for option in (
        click.option(
            "--pid",
            "processes",
            metavar="NODE:PID",
            multiple=True,
            help="With --capture: also this Python process, rank or not. Repeatable.",
        ),
        click.option("--rank", "ranks", metavar="N,N-M", help="With --capture: only these ranks."),
        click.option(
            "--job", "jobs", metavar="NAME", multiple=True, help="Only jobs with this in their name. Repeatable."
        ),
    ):
        command = option(command)
    return command


def selection_of(
    order: CaptureRequest | Diagnosis | None, jobs: tuple[str, ...], ranks: str | None, processes: tuple[str, ...]
) -> CaptureSelection:
    """The selected jobs, ranks and processes. Raises UsageError for options that do not fit the order."""
    from ..core.control import CaptureRequest
    from ..monitor.capture_selection import CaptureSelection, parse_process

    if (jobs or ranks or processes) and order is None:
        raise click.UsageError("--job, --rank and --pid require --capture or --diagnose")
    if (ranks or processes) and not isinstance(order, CaptureRequest):
        raise click.UsageError("--rank and --pid require --capture: a verdict needs all ranks of a job")
    try:
        return CaptureSelection(jobs, _rank_numbers(ranks), tuple(map(parse_process, processes)))
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from error


def _rank_numbers(text: str | None) -> frozenset[int]:
    """`0-3,7` as numbers. Raises ValueError."""
    numbers: set[int] = set()
    for word in comma_words(text or ""):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", word)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{word!r} is not a rank or a range of ranks, such as 0-3")
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(numbers)


def stack_format(command: F) -> F:
    """Add the stack output options; `wanted_stacks` interprets them."""
    for option in (
        click.option(
            "--granularity",
            type=click.Choice(GRANULARITIES),
            default="function",
            show_default=True,
            help="Grouping of ranks in text, JSON and dot.",
        ),
        click.option(
            "--threads",
            type=click.Choice(THREADS),
            default="main",
            show_default=True,
            help="Threads to include: main, the one blocking main, or all.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            help="Write stacks to stdout in this format; the summary goes to stderr.",
        ),
    ):
        command = option(command)
    return command


def wanted_stacks(form: str | None, threads: str, granularity: str, output: str | None) -> StackOutput:
    """The requested stack output. Raises UsageError if stdout is already used by the report."""
    from ..analysis.stacks.fold import Granularity, Shape, Threads
    from .output import StackOutput

    if form is not None and output == "-":
        raise click.UsageError("--format writes to stdout; write the report to a file: -o FILE")
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
    """The requested capture or diagnosis; None for neither. Raises UsageError for conflicting options."""
    if not (capture or diagnose):
        if samples is not None or every_s is not None or native is not None or names is not None:
            raise click.UsageError("--samples, --every, --native and --locals require --capture or --diagnose")
        if flight_pipe:
            raise click.UsageError("--flight-pipe requires --capture or --diagnose")
        return None
    if native is not None and not diagnose:
        raise click.UsageError("--native and --no-native require --diagnose")
    variables = comma_words(names or "")
    from ..core.control import CaptureRequest, new_capture
    from ..monitor.hang import Diagnosis

    if diagnose:
        return Diagnosis(samples, every_s, native, variables, flight_pipe)
    return CaptureRequest(
        new_capture(), samples=samples or 3, every_s=0.3 if every_s is None else every_s, locals=variables,
        flight_pipe=flight_pipe,
    )  # fmt: skip


def sessions_folder(command: F) -> F:
    """Add `--folder`, the sessions folder, as a path."""

    def resolve(ctx: click.Context, param: click.Parameter, value: str | None) -> Path:
        from ..session.format.layout import sessions_folder as resolve_folder

        return resolve_folder(value)

    return click.option(
        "--folder",
        envvar="GCONSOLE_SESSIONS_FOLDER",
        metavar="DIR",
        callback=resolve,
        help="Sessions folder.  [default: user data folder; env var: GCONSOLE_SESSIONS_FOLDER]",
    )(command)


def refuse_black_box(text: str) -> None:
    """Raises UsageError for the name of a black box: its oldest records may be deleted while it is read."""
    from ..session.manage.black_boxes import find_black_box

    box = find_black_box(text)
    if box is not None:
        how = f"gconsole record {box.name} --last 15m --name NAME"
        raise click.UsageError(f"{box.name} is a black box; make a session of it first: {how}")


def session_argument(*names: str, black_boxes: bool = False) -> Callable[[F], F]:
    """Add an argument per session and `--folder`; the command receives each `Session`, or `black_boxes`, too.

    Raises UsageError if one does not exist.
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def resolved(folder: Path, **options: Any) -> Any:
            from ..session.format.layout import find
            from ..session.manage.black_boxes import find_black_box

            with usage_errors():
                for name in names:
                    if not black_boxes:
                        refuse_black_box(options[name])
                    options[name] = find_black_box(options[name]) or find(options[name], folder)
            return command(**options)

        decorated = sessions_folder(cast(F, resolved))
        for name in reversed(names):
            decorated = click.argument(name, shell_complete=complete_sessions)(decorated)
        return decorated

    return decorate


@contextlib.contextmanager
def usage_errors(what: str = "sessions") -> Iterator[None]:
    """Report a session or file that cannot be used as a usage error: one line, exit code 2.

    `what` is in use if the operating system names no file, e.g. on a full disk.
    """
    from ..session.format.layout import SessionError

    try:
        yield
    except SessionError as error:
        raise click.UsageError(printable(str(error))) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.FileError(printable(str(error.filename or what)), error.strerror or str(error)) from error


def session_or_file(text: str, folder: Path) -> Path:
    """Path of the file or session given on the command line. Raises UsageError if there is none."""
    from ..session.format.layout import find

    if text == "-":
        return spooled_input()
    if Path(text).is_file():
        return Path(text)
    refuse_black_box(text)
    with usage_errors():
        return find(text, folder).path


class InputPath(click.Path):
    """The path of an input; `-` is standard input, which is copied into a file until the command ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises BadParameter."""
        return spooled_input() if str(value) == "-" else super().convert(value, param, ctx)


_STDIN_IS_TAKEN = "gconsole.stdin"


def spooled_input() -> Path:
    """A file with the whole standard input, removed when the command ends: readers seek. Raises UsageError."""
    import shutil
    import tempfile

    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("- is standard input, which is a terminal; name a file")
    root = click.get_current_context().find_root()
    if root.meta.setdefault(_STDIN_IS_TAKEN, False):
        raise click.UsageError("- is standard input, which only one of the inputs can be")
    root.meta[_STDIN_IS_TAKEN] = True
    folder = tempfile.TemporaryDirectory(prefix="gconsole-")
    root.call_on_close(folder.cleanup)
    path = Path(folder.name) / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def node_names(text: str, option: str) -> tuple[str, ...]:
    """The nodes of a node set. Raises BadParameter that names `option`."""
    from ..config.nodeset import expand
    from ..config.nodeset_parser import BadNodeSet

    try:
        return tuple(host.name for host in expand(text))
    except BadNodeSet as error:
        raise click.BadParameter(str(error), param_hint=option) from error


@contextlib.contextmanager
def opened_output(output: str | None) -> Iterator[BinaryIO]:
    """Stdout for None and `-`, or a file that is replaced atomically on success.

    Raises FileError for the file that is wrong: another one than the output, where that cannot be read meanwhile.
    """
    if output in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from ..text.atomic_files import open_replacement

    try:
        with open_replacement(Path(str(output))) as file:
            yield file
    except OSError as error:
        wrong = Path(str(error.filename)) if error.filename else Path(str(output))
        is_draft = wrong.name.startswith(f".{Path(str(output)).name}.")
        raise click.FileError(str(output if is_draft else wrong), error.strerror or str(error)) from error


def write_output(output: str | None, data: bytes) -> None:
    """Write to stdout for None and `-`, or replace a file atomically. Raises FileError."""
    with opened_output(output) as file:
        file.write(data)


def report_output(output: str | None, as_json: bool) -> str | None:
    """Where the report goes; `--json` is standard output. Raises UsageError for two places."""
    if not as_json:
        return output
    if output not in (None, "-"):
        raise click.UsageError(f"--json prints the report, and -o {output} writes it; leave one of them out")
    return "-"


def require_confirmable(yes: bool, to_do: str) -> None:
    """Raise UsageError if a confirmation is needed and there is no terminal to ask on."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError(f"cannot ask for confirmation without a terminal; to {to_do}, add --yes")


def load_target(
    target: str, overrides: tuple[str, ...], *, quiet: bool = False, connects: bool = True, sessions: Path | None = None
) -> Config:
    """Load the configuration of TARGET; prints warnings to stderr unless `quiet`. Raises ConfigError.

    Raises UsageError for a single host name that cannot be resolved if the command `connects`. `sessions`: the folder
    of sessions, where the command takes one of these, too.
    """
    flags = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise click.BadParameter(f"{text!r} is not SECTION.KEY=VALUE", param_hint="--set")
        flags[key.strip()] = value.strip()
    config = load_configuration(target, flags)
    if "ssh.gateway" in flags and any(node.engine is not None for node in config.nodes):
        raise click.UsageError(f"{printable(target)} is reached by the site's commands here, not through a gateway")
    if connects and not quiet:
        from .target_names import require_known_name

        if sessions is None:
            require_known_name(config, target)
        else:
            from ..session.format.layout import all_sessions

            names = [session.name for session in all_sessions(sessions)]
            require_known_name(config, target, what="a session, a file", more=names, is_strict=True)
    for warning in () if quiet else config.warnings:
        print_text(printable(f"gconsole: {warning}"), err=True)
    return config
