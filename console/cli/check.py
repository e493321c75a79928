"""`gconsole check`: every node check once."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ..records import Severity
from .options import InputPath, duration_option, load_target, target
from .terminal import print_text

if TYPE_CHECKING:
    from ..session.query.own_checks import OwnCheck

#: Seconds for which nodes are awaited, beyond --for, that were reached late or not yet.
LATE_S = 2.0


def _print_table(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    if is_set:
        from ..monitor.node_checks import table_json, table_text

        as_json = context.params["as_json"]
        print_text(table_json() if as_json else table_text(), is_document=as_json)
        context.exit()


@click.command()
@target
@duration_option("--for", "for_s", default="7s",
                 help="Watch for this long before the checks are evaluated; 2 s more for late nodes.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(["warning", "error"]), default="error", show_default=True,
              help="Exit with code 1 on failed checks of this severity or a worse one.")  # fmt: skip
@click.option(
    "--checks",
    "path",
    type=InputPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Checks of your own in TOML, - = stdin.  [default: checks.toml in the configuration folder]",
)
@click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print JSON.")  # before --list, which reads it
@click.option("--list", is_flag=True, expose_value=False, callback=_print_table,
              help="Print the table of checks and exit; connects to no node.")  # fmt: skip
def check(
    target: str, overrides: tuple[str, ...], for_s: float, fail_on: str, path: Path | None, as_json: bool
) -> int:  # fmt: skip
    """Check the health of the nodes: driver, GPUs, links, network ports, kernel, services, memory and clocks.

    Nothing is started, changed or loaded on the nodes. Each check passes, fails, is unknown if the node does not
    report what it needs, or absent if the node has no such device. Checks of rates and of load need --for 20s.

    Exit codes: 0 no failure, 1 a failed check at or above --fail-on, 3 some nodes or their GPUs were not judged,
    4 no node was reached.

    \b
    gconsole check hosts.toml
    gconsole check node[01-64] --for 30s --json
    gconsole check localhost --set ssh.transport=local --fail-on error    # in a prolog on the node itself
    """
    from ..monitor.node_checks import check_nodes, exit_code, to_json, to_text
    from ..session.query.own_checks import with_own_checks
    from .live import watch_nodes
    from .main import EXIT_INTERRUPTED

    own, config = _own_checks(path), load_target(target, overrides)
    with tempfile.TemporaryDirectory(prefix="gconsole-check-") as folder:
        records = Path(folder) / "records.ndjson" if any(check.sql for check in own) else None
        watching = watch_nodes(config, for_s, records=records, late_s=LATE_S, stacks=False)
        store, interrupted = asyncio.run(watching)
        nodes = with_own_checks(check_nodes(store), own, records)
    print_text(to_json(nodes) if as_json else to_text(nodes), is_document=as_json)
    return EXIT_INTERRUPTED if interrupted else exit_code(nodes, cast(Severity, fail_on))


def _own_checks(path: Path | None) -> tuple[OwnCheck, ...]:
    """The checks of the file, or of the one in the configuration folder if there is one."""
    from ..session.query.own_checks import BadChecks, default_path, read_checks

    try:
        return read_checks(path or default_path())
    except FileNotFoundError as error:
        if path is None:
            return ()
        raise click.FileError(str(path), "no such file") from error
    except BadChecks as error:
        raise click.UsageError(str(error)) from error
