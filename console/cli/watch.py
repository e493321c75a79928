"""`gconsole watch`: unattended, with rules, a heartbeat, and a systemd unit."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

import click

from ..text.sanitize import printable
from .main import EXIT_OK
from .options import duration_option, fail_on_option, load_target, target
from .target_names import require_no_typing_error
from .terminal import print_result


@click.command()
@target
@duration_option("--for", "for_s", help="Duration.  [default: until it is stopped]")
@click.option("--until-finding", is_flag=True, help="Stop at the first finding that --fail-on counts.")
@fail_on_option
@click.option("--json", "as_json", is_flag=True, help="Write events to stdout as NDJSON instead of stderr.")
@click.option("--record", "session", metavar="NAME", help="Also record a session with this name.")
@click.option("--test-rule", "rule_name", metavar="NAME", help="Fire this rule with a test finding, and stop.")
@click.option("--install", "unit_action", flag_value="install", help="Write a systemd user unit that runs this.")
@click.option("--uninstall", "unit_action", flag_value="uninstall", help="Remove the unit of TARGET.")
@click.option("--print", "unit_action", flag_value="print", help="Print the unit instead of writing it.")
def watch(
    target: str, overrides: tuple[str, ...], for_s: float | None, until_finding: bool, fail_on: tuple[str, ...],
    as_json: bool, session: str | None, rule_name: str | None, unit_action: str | None,
) -> int:  # fmt: skip
    """Watch TARGET unattended: diagnose jobs that stop, and act by the [[watch.rule]] entries of hosts.toml.

    \b
    gconsole watch hosts.toml
    gconsole watch hosts.toml --test-rule page
    gconsole watch hosts.toml --install
    gconsole watch slurm:1234 --for 30s --fail-on gpu_lost,gpu_xid,nic_down
    gconsole watch hosts.toml --until-finding --json | jq -c .finding

    One line per event on stderr. Nodes are connected again for ever. A changed hosts.toml holds at once; an invalid one
    is reported and changes nothing. A finding that was alerted is not alerted again after a restart.
    """
    if sum((rule_name is not None, unit_action is not None, for_s is not None or until_finding)) > 1:
        raise click.UsageError("--test-rule, --install, --uninstall and --print go neither together nor with --for")
    config = load_target(target, overrides, connects=False)
    require_no_typing_error(config, target)  # only that: a service retries a name that cannot be resolved yet
    if unit_action is not None:
        return _manage_unit(unit_action, target, overrides, config.cluster, session, as_json)
    from .watch_live import fire_test_rule, run_watch

    if rule_name is not None:
        names = [placed.rule.name for placed in config.rules]
        if rule_name not in names:
            listed = printable(", ".join(names)) if names else "none; add a [[watch.rule]]"
            text = f"no rule {printable(repr(rule_name))} in {target}: {listed}"
            raise click.BadParameter(text, param_hint="--test-rule")
        return fire_test_rule(config, rule_name, as_json)
    return run_watch(
        config, lambda: load_target(target, overrides, quiet=True), target=target,
        for_s=math.inf if for_s is None else for_s, until_finding=until_finding, fail_on=fail_on, as_json=as_json,
        session=session,
    )  # fmt: skip


def _manage_unit(
    action: str, target: str, overrides: tuple[str, ...], cluster: str, session: str | None, as_json: bool
) -> int:
    """Print, write or remove the unit of a target; returns the exit code. Raises UsageError."""
    from ..config.load import is_file_target, named_cluster
    from ..monitor.alerting.systemd import UnitError, install, next_steps, unit_path, unit_text
    from .json_documents import WatchUnit

    named = str((named_cluster(target) or Path(target)).absolute()) if is_file_target(target) else target
    path = unit_path(named)
    try:
        if action == "uninstall":
            return _uninstall(path, as_json)
        argv = [*_program(), "watch", named, *(word for override in overrides for word in ("--set", override))]
        argv += ["--record", session] if session is not None else []
        text = unit_text(named, cluster, argv, Path.home())
        if action == "print":
            unit = WatchUnit(path=str(path), action="printed", text=text, next_steps=())
            print_result(unit, text.rstrip("\n"), as_json=as_json)
            return EXIT_OK
        install(path, text)
    except UnitError as error:
        raise click.UsageError(printable(str(error))) from error
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
    steps = next_steps(path)
    unit = WatchUnit(path=str(path), action="installed", text=text, next_steps=tuple(steps.splitlines()))
    print_result(unit, f"wrote {printable(str(path))}\nStart it:\n\n{_indented(steps)}", as_json=as_json)
    return EXIT_OK


def _uninstall(path: Path, as_json: bool) -> int:
    from ..monitor.alerting.systemd import removal_steps, uninstall
    from .json_documents import WatchUnit

    if uninstall(path):
        steps = removal_steps(path)
        unit = WatchUnit(path=str(path), action="removed", text=None, next_steps=tuple(steps.splitlines()))
        text = f"removed {printable(str(path))}\nIf it runs, stop it:\n\n{_indented(steps)}"
        print_result(unit, text, as_json=as_json)
    else:
        unit = WatchUnit(path=str(path), action="absent", text=None, next_steps=())
        print_result(unit, printable(f"{path} does not exist"), as_json=as_json, err=True)
    return EXIT_OK


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _program() -> list[str]:
    """The words that start this program: the script, or the interpreter with the module."""
    script = shutil.which(sys.argv[0]) if sys.argv else None
    if script is not None and Path(script).name.startswith("gconsole") and os.access(script, os.X_OK):
        return [str(Path(script).absolute())]
    return [sys.executable, "-P", "-m", "gconsole"]
