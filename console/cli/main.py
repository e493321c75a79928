"""`gconsole`: finds the subcommand, loads only that, and turns its errors into one line and an exit code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from .. import __version__
from .terminal import guard_terminal

#: Exit codes of every headless command: findings, usage, coverage.
EXIT_OK, EXIT_FINDING, EXIT_USAGE, EXIT_PARTIAL, EXIT_NOTHING, EXIT_INTERNAL, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

#: name → (module:attribute, one line of help). The module is imported when its command runs, not before.
COMMANDS = {
    "tui": ("tui:tui", "Watch a cluster in the terminal (what `gconsole TARGET` does)."),
    "serve": ("serve:serve", "Watch a cluster in a browser of this machine."),
    "api": ("api:api", "Answer scripts, dashboards and Prometheus over HTTP."),
    "batch": ("batch:batch", "Watch without a screen: a report, a summary, an exit code."),
    "record": ("record:record", "Record a cluster without a screen, into a session that survives a crash."),
    "sessions": ("sessions:sessions", "List, show, recover, verify, compact, merge and delete recorded sessions."),
    "replay": ("replay:replay", "Watch a recorded session again: the same views, with a time line."),
    "diff": ("diff:diff", "Two recorded sessions side by side."),
    "diagnose": ("diagnose:diagnose", "Who holds a job, from recorded records or from py-spy dumps."),
    "query": ("query:query", "Ask a session, a file of records or a cluster in SQL."),
    "export": ("export:export", "Write a session as JSON, Parquet, CSV, HTML, for Perfetto or gswarm's readers."),
    "stat": ("stat:stat", "What the GPUs, ranks and nodes of a session did, in figures and pictures."),
    "demo": ("demo:demo", "A cluster on this machine with a job on it, to try everything."),
    "run": ("run:run", "Start a job on the nodes, see how it goes, stop it."),
    "ps": ("ps:ps", "Processes of the jobs on every node, folded."),
    "topo": ("topo:topo", "The matrix of GPUs and cards of every class of nodes, as nvidia-smi topo -m."),
    "clocks": ("clocks:clocks", "How far the nodes' clocks are apart, with bounds."),
    "doctor": ("doctor:doctor", "What works on each node, what does not, and what to do."),
    "clean": ("clean:clean", "Remove what gconsole left on the nodes."),
    "config": ("config:config", "Show the effective configuration, write a starter file."),
    "hosts": ("hosts:hosts", "List, add and remove hosts in a file, keeping its comments."),
    "bundle": ("bundle:bundle", "Fetch the binaries for nodes of other architectures."),
    "schema": ("schema:schema", "Print what every record means."),
    "completion": ("completion:completion", "Print the completion script for bash, zsh or fish."),
}

_EPILOG = """\b
TARGET is a hosts.toml; a node set: node[1-4],gpu-a or @group; or the site's: slurm:JOBID, k8s:NAMESPACE/SELECTOR.
Exit codes: 0 fine, 1 a finding, 2 usage or configuration, 3 partial, 4 nothing reachable, 5 internal error.
New here? gconsole demo, or gconsole config init.
"""


def _configure_log(ctx: click.Context, option: click.Parameter, value: int | Path | None) -> None:
    """Start logging when the last of the two options was parsed; `-v` before and after the command add up."""
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


#: On every command: how much is logged, and where.
_VERBOSE = click.Option(
    ["-v", "--verbose"],
    count=True,
    expose_value=False,
    callback=_configure_log,
    help="Log more, also to stderr; -vv also what libraries log.",
)
_LOG_FILE = click.Option(
    ["--log-file"],
    type=click.Path(dir_okay=False, path_type=Path),
    expose_value=False,
    callback=_configure_log,
    help="Log to this file.  [default: gconsole.log in the state folder]",
)


class Commands(click.Group):
    """Subcommands by name; a first word that is none is a TARGET for `tui`, and so is the hosts.toml of this folder."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        if not any(option.name == _LOG_FILE.name for option in command.params):
            command.params += [_VERBOSE, _LOG_FILE]
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            from .welcome import HOSTS, FirstStart, has_hosts

            if not has_hosts():
                raise FirstStart
            args = [HOSTS]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            args = ["tui", *args]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[_VERBOSE, _LOG_FILE],
)
@click.version_option(__version__, prog_name="gconsole")
def gconsole() -> None:
    """The console for a distributed training job that misbehaves.

    \b
    gconsole hosts.toml        watch it live
    gconsole                   the same, with the hosts.toml of this folder
    gconsole batch hosts.toml  the same without a screen, for CI
    """


def main() -> None:
    """The entry point. No traceback reaches the terminal: an internal error is one line and a file."""
    guard_terminal()
    try:
        status = gconsole.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = EXIT_USAGE
    except click.ClickException as error:
        error.show()
        status = EXIT_USAGE  # click's own code for a file that cannot be opened is that of a finding
    except (click.Abort, KeyboardInterrupt):
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        status = EXIT_OK  # whoever read us has seen enough
        sys.stdout = None
    except Exception as error:  # noqa: BLE001 - the last line of defence, which tells where it wrote the story
        status = _explain(error)
    sys.exit(status if isinstance(status, int) else EXIT_OK)


def _explain(error: Exception) -> int:
    from ..config import ConfigError

    if isinstance(error, ConfigError):
        click.echo(str(error), err=True)  # file:line: key: what is wrong
        return EXIT_USAGE
    import logging
    import traceback

    from ..text import logs
    from ..text.sanitize import printable
    from ..text.secrets import without_secrets

    if logs.path() is None:
        logs.configure()
    arguments = " ".join(sys.argv[1:])
    logging.getLogger(__name__).critical("internal error in: gconsole %s", arguments, exc_info=error)
    what = printable(f"{type(error).__name__}: {error}"[:2000])
    if logs.path() is None:
        click.echo(without_secrets("".join(traceback.format_exception(error))), err=True)
    where = f"details in {logs.path()}" if logs.path() else "details above; the log file cannot be written"
    click.echo(f"gconsole: internal error: {what}; {where} (please report it)", err=True)
    return EXIT_INTERNAL
