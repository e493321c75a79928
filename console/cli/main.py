"""The `gconsole` command: lazy subcommands, getting-started text, one-line errors, exit codes."""

from __future__ import annotations

import functools
import gc
import importlib
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from .. import __version__
from ..text.sanitize import printable_lines
from .terminal import guard_output, print_text, require_consent, set_quiet

if TYPE_CHECKING:
    from logging import Logger

#: Exit codes of all headless commands.
EXIT_OK, EXIT_FINDING, EXIT_USAGE, EXIT_PARTIAL, EXIT_NOTHING, EXIT_INTERNAL, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

#: The log of this command; None until its options are parsed, which `--help` never waits for.
_log: Logger | None = None

#: name → (module:attribute, help line). The module is imported only when its command runs.
COMMANDS = {
    "tui": ("screen:tui", "Open the TUI (default command)."),
    "link": ("screen:link", "Open the screen that a link names."),
    "serve": ("serve:serve", "Show the TUI in local browsers, to several visitors."),
    "api": ("api:api", "Serve an HTTP API and Prometheus metrics."),
    "mcp": ("api:mcp", "Serve the Model Context Protocol on stdin and stdout, read-only."),
    "batch": ("batch:batch", "Run headless: print a summary, write a report, set an exit code."),
    "watch": ("watch:watch", "Watch unattended: alert by rules, send a heartbeat, run as a service."),
    "record": ("record:record", "Record a crash-safe session, headless."),
    "sessions": ("sessions:sessions", "List, show, recover, verify, compact, merge and delete recorded sessions."),
    "replay": ("screen:replay", "Replay a recorded session in the TUI."),
    "diff": ("screen:diff", "Compare two recorded sessions."),
    "diagnose": ("batch:diagnose", "Find the blocking rank from a recording or py-spy dumps."),
    "query": ("query:query", "Run SQL over a session, an NDJSON recording or a live cluster."),
    "export": ("export:export", "Export a session as JSON, Parquet, CSV, HTML, Perfetto, speedscope or gswarm."),
    "stat": ("query:stat", "Summarise GPU/rank/node metrics of a session."),
    "demo": ("demo:demo", "Try gconsole on a local demo cluster with a running job."),
    "run": ("run:run", "Start, monitor and stop jobs on the nodes."),
    "ps": ("nodes:ps", "List job processes on all nodes."),
    "topo": ("nodes:topo", "Show GPU/NIC topology (like nvidia-smi topo -m), grouped by identical nodes."),
    "eval": ("evaluate:eval_", "Evaluate an expression in one rank, if the node allows it."),
    "why": ("why:why", "Find what a slow rank does and its peers do not, from sampled stacks."),
    "collectives": (
        "collectives:collectives",
        "Show the collectives of each job: faults, groups, traffic between ranks, statistics.",
    ),
    "clocks": ("clocks:clocks", "Measure clock offset between nodes; put traces on the common clock."),
    "check": ("check:check", "Check the health of nodes, once, passively; exit codes for a Slurm prolog."),
    "doctor": ("nodes:doctor", "Check each node and suggest fixes."),
    "release": ("nodes:release", "Let the nodes' GPUs go for a while, for a reset or an update of the driver."),
    "clean": ("nodes:clean", "Remove gconsole's files and leftover agents from the nodes."),
    "config": ("config:config", "Show the effective configuration, or write a starter file."),
    "hosts": ("config:hosts", "List, add and remove hosts in a hosts.toml, preserving comments."),
    "bundle": ("config:bundle", "Fetch binaries for nodes of other architectures."),
    "schema": ("export:schema", "Print the JSON schema of all record types."),
    "completion": ("config:completion", "Print the completion script for bash, zsh or fish."),
}

_EPILOG = """\b
TARGET: a hosts.toml, @NAME of one in ~/.config/gconsole/clusters, a node set (node[1-4],gpu-a or @group),
slurm:JOBID, k8s:NAMESPACE/SELECTOR, or local.
Exit codes: 0 ok, 1 findings, 2 usage or configuration error, 3 partial coverage, 4 no node reachable, 5 internal error.
Getting started: gconsole demo, or gconsole config init.
"""


#: Default TARGET.
HOSTS: Final = "hosts.toml"
#: A minimal hosts.toml.
SMALLEST: Final = '[cluster]\nname = "my-cluster"\n\n[[nodes]]\nhosts = "node[01-04]"\n'
_TEXT: Final = f"""\
gconsole diagnoses hung or slow distributed training jobs over SSH.
No TARGET given, and {HOSTS} not found in
{{folder}}.

Try it without a cluster (four local demo nodes with a running job):

    gconsole demo

Connect to your nodes, using your ~/.ssh/config:

    gconsole 'node[01-04]'

Or list them in {HOSTS}. A minimal file:

{textwrap.indent(SMALLEST, "    ")}
    gconsole config init      write a commented {HOSTS}
    gconsole                  open the TUI
    gconsole batch {HOSTS}  run headless

More commands: gconsole --help
"""


class FirstStart(click.ClickException):
    """No TARGET given and no hosts.toml in the current folder; carries the getting-started text."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__(_TEXT.format(folder=_here()))

    def show(self, file: Any = None) -> None:
        """Print the text without an error prefix."""
        click.echo(self.message, file=file, err=file is None, nl=False)


def _here() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # deleted
        return "the current folder"


def _configure_log(ctx: click.Context, option: click.Parameter, value: int | Path | None) -> None:
    """Configure logging after both options are parsed; `-v` before and after the command add up.

    The command line is logged once, by the command that runs.
    """
    global _log
    settings = ctx.find_root().meta
    key = f"gconsole.{option.name}"
    if isinstance(value, int):
        settings[key] = settings.get(key, 0) + value
    else:
        settings[key] = value or settings.get(key)
    if ctx.parent is None or option.name != _LOG_FILE.name or ctx.resilient_parsing:
        return
    from ..text import logs

    file = settings[key]
    try:
        logs.configure(settings["gconsole.verbose"], file)
    except OSError as error:
        raise click.FileError(str(file), error.strerror or str(error)) from error
    if not isinstance(ctx.command, click.Group):
        from logging import getLogger

        _log = getLogger(__name__)
        _log.info("%s, version %s, Python %s", command_line(), __version__, sys.version.partition(" ")[0])


#: Logging options of every command.
_VERBOSE = click.Option(
    ["-v", "--verbose"],
    count=True,
    is_eager=True,  # before --log-file, which configures the log
    expose_value=False,
    callback=_configure_log,
    help="Log details (commands, requests, transfers), also to stderr; -vv includes libraries.",
)
_LOG_FILE = click.Option(
    ["--log-file"],
    type=click.Path(dir_okay=False, path_type=Path),
    expose_value=False,
    callback=_configure_log,
    help="Log to this file.  [default: gconsole.log in the state folder]",
)


#: Key of `click.Context.meta`: the gateways given before the command.
GATEWAY: Final = "gconsole.gateway"
#: Only without a TARGET; `Commands.parse_args` reads it.
_TRUST = click.Option(
    ["--trust"],
    is_flag=True,
    expose_value=False,
    help="Use ./hosts.toml without asking, also if it names programs to run or keys to use.",
)


def _choose_gateway(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    ctx.meta[GATEWAY] = value


#: Before a TARGET; each command that takes one has the option, too.
_VIA = click.Option(
    ["--via"],
    metavar="HOST,…",
    expose_value=False,
    callback=_choose_gateway,
    help="Reach the nodes through these gateways.",
)


def _be_quiet(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if not value:
        return
    set_quiet()
    if ctx.parent is None:  # before the command: it is the default of commands with a `-q` of their own
        ctx.default_map = {name: {"quiet": True} for name in COMMANDS}


#: Of every command that does not have it with a meaning of its own.
_QUIET = click.Option(
    ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_be_quiet, help="Suppress progress."
)


def _add_common_options(command: click.Command) -> None:
    """Add the logging options, `-q`, and `--json` where `--format json` exists, to a command and its subcommands."""
    if _LOG_FILE not in command.params:
        names = {name for option in command.params for name in option.opts}
        if "--quiet" not in names and not isinstance(command, click.Group):
            command.params.append(_QUIET)
        if "--json" not in names:
            _add_json(command)
        command.params += [_VERBOSE, _LOG_FILE]
    for child in command.commands.values() if isinstance(command, click.Group) else ():
        _add_common_options(child)


def _add_json(command: click.Command) -> None:
    """`--json` for a command whose option `--format` takes json."""
    option = next((option for option in command.params if "--format" in option.opts), None)
    original = command.callback
    if option is None or original is None or "json" not in getattr(option.type, "choices", ()):
        return
    form = option.name or ""

    def chosen(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        ctx.meta[_AS_JSON] = value

    @functools.wraps(original)
    def called(*args: Any, **options: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.meta.get(_AS_JSON):
            is_other = ctx.get_parameter_source(form) is ParameterSource.COMMANDLINE and options[form] != "json"
            if is_other:
                raise click.UsageError(f"--json and --format {options[form]} exclude each other")
            options[form] = "json"
        return original(*args, **options)

    command.callback = called
    command.params.append(
        click.Option(["--json"], is_flag=True, expose_value=False, callback=chosen, help="Same as --format json.")
    )


_AS_JSON = "gconsole.json"
_LINEAR = "--linear"
#: Flags before a command that leave the default TARGET as it is.
_FLAGS = frozenset(["-q", "--quiet", "-v", "-vv", "--verbose"])


class Commands(click.Group):
    """Lazily imported subcommands. Any other first word, or ./hosts.toml by default, is the TARGET of `tui`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, in help order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a subcommand and add the common options to it and to its subcommands."""
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        _add_common_options(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Commands, and targets, of which `tui` is the command."""
        from .completion import complete_targets

        return [*super().shell_complete(ctx, incomplete), *complete_targets(ctx, _VERBOSE, incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a TARGET, use ./hosts.toml. Raises FirstStart if it does not exist."""
        via, rest = (args[:2], args[2:]) if args[:1] == _VIA.opts else ([], args)
        common = [arg for arg in rest if arg in _FLAGS]
        if set(rest) <= {*_TRUST.opts, _LINEAR, *_FLAGS} and not ctx.resilient_parsing:
            if not Path(HOSTS).is_file():
                raise FirstStart
            require_consent(Path(HOSTS), HOSTS, is_trusted=not set(rest).isdisjoint(_TRUST.opts))
            rest = [*common, HOSTS, *(arg for arg in rest if arg == _LINEAR)]
        if rest[:1] == [_LINEAR]:  # an option of `tui`
            rest = ["tui", *rest]
        args = [*via, *rest]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Insert `tui` before a first word that is not a subcommand."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            if len(args) > 1 and not args[1].startswith("-") and not ctx.resilient_parsing:
                from .target_names import did_you_mean, is_plainly_a_target

                if not is_plainly_a_target(args[0]):  # two words are a command, or several targets
                    raise click.UsageError(f"no command {args[0]}{did_you_mean(args[0])}", ctx)
            args = ["tui", *args]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command table without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[_TRUST, _VIA, _QUIET, _VERBOSE, _LOG_FILE],
)
@click.version_option(__version__, "-V", "--version", prog_name="gconsole")
def gconsole() -> None:
    """Diagnose hung or slow distributed training jobs over SSH.

    \b
    gconsole hosts.toml        open the TUI
    gconsole                   same, using ./hosts.toml
    gconsole batch hosts.toml  run headless, for scripts and CI
    """


_is_program = False
#: Thresholds of the garbage collector of a command. With Python's 700 allocations it walks in vain what imports create
#: and nothing drops: those of `run` take a twentieth longer. A connected fleet has its own (see fleet/gc_sweep.py).
_COLLECTIONS: Final = (10_000, 10, 10)


def is_program() -> bool:
    """Whether this process runs a command and nothing else, so that the command may limit its memory."""
    return _is_program


def main() -> None:
    """Entry point. Internal errors print one line; the traceback goes to the log file."""
    global _is_program
    _is_program = True
    gc.set_threshold(*_COLLECTIONS)
    guard_output()
    try:
        status = gconsole.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = EXIT_USAGE
    except click.ClickException as error:
        error.show()
        _log_exit(error.format_message())
        status = EXIT_USAGE  # click exits with 1 for unreadable files, which means findings here
    except (click.Abort, KeyboardInterrupt):
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        status = EXIT_OK  # the reader closed the pipe
        sys.stdout = None
    except Exception as error:  # noqa: BLE001 - reported with the path of the log
        status = _explain(error)
    status = status if isinstance(status, int) else EXIT_OK
    _log_exit(f"exit code {status}")
    sys.exit(status)


def _log_exit(text: str) -> None:
    if _log is not None:  # unless a usage error or --help came first
        _log.info("%s", text)


def _explain(error: Exception) -> int:
    from ..config import ConfigError

    if isinstance(error, ConfigError):
        print_text(printable_lines(str(error)), err=True)  # file:line: key: what is wrong
        _log_exit(str(error))
        return EXIT_USAGE
    import traceback

    from ..text import logs

    if logs.path() is None:
        logs.configure()
    if logs.path() is None:
        trace = "".join(traceback.format_exception(error))
        print_text(printable_lines(f"{trace}log file not writable"), err=True)
    print_text(printable_lines(f"gconsole: {logs.internal_error(error, command_line())}"), err=True)
    return EXIT_INTERNAL


def command_line() -> str:
    """The command line of this process for the log, without secrets."""
    from ..text.secrets import words_without_secrets

    return " ".join(("gconsole", *words_without_secrets(sys.argv[1:])))
