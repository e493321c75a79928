"""Checks of the user: a TOML file with a rule in SQL over the records, or a command on this machine, for each check.

The file is read at every run. A rule returns a row for each node that fails, its first column the node, the second what
is wrong. A command runs once for each node, without a shell, with `{node}` in its arguments replaced; exit status 0
passes, 1 fails, any other is unknown; the first line that it prints is the text.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import platformdirs
from msgspec.structs import replace

from ...analysis.checks.result import CheckResult, Owner
from ...analysis.checks.table import CHECKS
from ...monitor.node_checks import CheckedNode
from ...text.sanitize import printable
from .engine import Database
from .limits import QueryError
from .sources import RecordedSource

#: Commands at a time; seconds for one rule; rows of a rule, and characters of a text at most.
_AT_A_TIME, _RULE_S, _MOST_ROWS, _LONGEST = 16, 20.0, 100_000, 300


class OwnCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[check]]` of the file: either `sql` or `command`."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{1,39}$")]
    what: str = ""  # what is checked, a clause
    sql: str = ""
    command: tuple[str, ...] = ()
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0  # of the command, per node
    severity: Literal["error", "warning", "info"] = "warning"
    owner: Owner = "operator"
    remedy: str = ""

    def __post_init__(self) -> None:
        if bool(self.sql) == bool(self.command):
            raise ValueError(f"check {self.id} needs either sql or command")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    check: tuple[OwnCheck, ...] = ()


class BadChecks(ValueError):
    """The file cannot be used; the text says where and why."""


def default_path() -> Path:
    """checks.toml in the configuration folder of this user."""
    return platformdirs.user_config_path("gconsole") / "checks.toml"


def read_checks(path: Path) -> tuple[OwnCheck, ...]:
    """The checks in a file. Raises BadChecks, FileNotFoundError."""
    try:
        checks = msgspec.toml.decode(path.read_bytes(), type=_File).check
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadChecks(f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadChecks(f"{path}: {error}") from error
    taken = {check.id for check in CHECKS}
    for check in checks:
        if check.id in taken:
            raise BadChecks(f"{path}: check id {check.id} is taken; use another one")
        taken.add(check.id)
    return checks


def with_own_checks(
    nodes: Sequence[CheckedNode], checks: Sequence[OwnCheck], records: Path | None
) -> list[CheckedNode]:
    """The nodes with the results of these checks after the others; `records` is the NDJSON file of the run.

    Nodes that were not reached have none.
    """
    names = [node.node for node in nodes if node.reached]
    results: dict[str, list[CheckResult]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        database: Database | None = None
        for check in checks:
            if check.command:
                for name, result in zip(names, _run_commands(check, names), strict=True):
                    results[name].append(result)
                continue
            if database is None and records is not None:
                source = stack.enter_context(RecordedSource(records))
                database = stack.enter_context(contextlib.closing(Database(source, source.scratch)))
            for name, result in _apply_rule(check, names, database).items():
                results[name].append(result)
    return [replace(node, checks=(*node.checks, *results.get(node.node, ()))) for node in nodes]


def _apply_rule(check: OwnCheck, names: Sequence[str], database: Database | None) -> dict[str, CheckResult]:
    """The result of a rule on each node; unknown on all where it cannot be evaluated."""
    if database is None:
        return {name: _unknown(check, "there are no records") for name in names}
    try:
        rows = database.query(check.sql, limit=_MOST_ROWS, deadline_s=_RULE_S).rows
    except QueryError as error:
        return {name: _unknown(check, str(error)) for name in names}
    failed: dict[str, list[str]] = {}
    for row in rows:
        failed.setdefault(str(row[0]), []).append(" ".join(str(cell) for cell in row[1:] if cell is not None))
    strangers = sorted(set(failed) - set(names))
    if strangers and len(strangers) == len(failed):
        text = f"the first column must be the node; the rule returned {strangers[0]!r}"
        return {name: _unknown(check, text) for name in names}
    return {name: _fail(check, "; ".join(dict.fromkeys(failed[name]))) if name in failed else _pass(check)
            for name in names}  # fmt: skip


def _run_commands(check: OwnCheck, names: Sequence[str]) -> list[CheckResult]:
    """The result of a command for each node."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(lambda name: _run_command(check, name), names))


def _run_command(check: OwnCheck, name: str) -> CheckResult:
    argv = [word.replace("{node}", name) for word in check.command]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=check.timeout_s, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return _unknown(check, f"{argv[0]} did not end within {check.timeout_s:g} s")
    except OSError as error:
        return _unknown(check, f"{argv[0]}: {error.strerror or error}")
    text = next(iter(done.stdout.decode("utf-8", "replace").strip().splitlines()), "")
    if done.returncode == 0:
        return _pass(check)
    if done.returncode == 1:
        return _fail(check, text)
    return _unknown(check, f"{argv[0]} ended with status {done.returncode}" + (f": {text}" if text else ""))


def _pass(check: OwnCheck) -> CheckResult:
    return CheckResult(check.id, "pass", check.severity)


def _fail(check: OwnCheck, text: str) -> CheckResult:
    return CheckResult(check.id, "fail", check.severity, _shown(text or check.what or "failed"), check.remedy)


def _unknown(check: OwnCheck, text: str) -> CheckResult:
    return CheckResult(check.id, "unknown", check.severity, _shown(text))


def _shown(text: str) -> str:
    return printable(" ".join(text.split()))[:_LONGEST]
