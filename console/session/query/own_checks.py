"""Checks of the user: a TOML file with a rule in SQL over the records, or a command on this machine, for each check.

A run reads the file once, a console at every pass after it has changed. A rule returns a row for each node that fails,
its first column the node, the second what is wrong. A command runs once for each node, without a shell, with `{node}`
in its arguments replaced; exit status 0 passes, 1 fails, any other is unknown; the first line that it prints is the
text.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import platformdirs

from ...analysis.checks.result import CheckResult, Owner
from ...analysis.checks.table import CHECKS
from ...monitor.node_checks import CheckedNode, append_results
from ...text.sanitize import printable
from .limits import QueryError

if TYPE_CHECKING:
    from .engine import Database

#: CheckCommands at a time; seconds for one rule; rows of a rule, and characters of a text at most.
_AT_A_TIME, RULE_S, MOST_ROWS, _LONGEST = 16, 20.0, 100_000, 300


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


class OwnCheckFile:
    """The checks of a file that changes while a console runs. `trouble`: what is wrong with it; the old checks stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None  # inode, size and time of change of what was read
        self._checks: tuple[OwnCheck, ...] = ()
        self.trouble = ""

    def read(self) -> tuple[OwnCheck, ...]:
        """The newest valid checks; none without a file."""
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._seen:
                self._checks, self.trouble = read_checks(self._path), ""
                self._seen = seen
        except (FileNotFoundError, NotADirectoryError):
            self._seen, self._checks, self.trouble = None, (), ""
        except (BadChecks, OSError) as error:
            self.trouble = str(error)
        return self._checks


#: Returns the rows of a rule. Raises QueryError, OSError.
RunRule = Callable[[str], Sequence[Sequence[object]]]


def with_own_checks(
    nodes: Sequence[CheckedNode], checks: Sequence[OwnCheck], records: Path | None
) -> list[CheckedNode]:
    """The nodes with the results of these checks after the others; `records` is the NDJSON file of the run.

    Nodes that were not reached have none.
    """
    names = [node.node for node in nodes if node.reached]
    with contextlib.ExitStack() as stack:
        database: Database | None = None

        def run_rule(sql: str) -> Sequence[Sequence[object]]:
            nonlocal database
            if records is None:
                raise QueryError("there are no records")
            from .engine import Database
            from .sources import RecordedSource

            if database is None:
                source = stack.enter_context(RecordedSource(records, is_kept=True))
                database = stack.enter_context(contextlib.closing(Database(source, source.scratch)))
            return database.query(sql, limit=MOST_ROWS, deadline_s=RULE_S).rows

        results = evaluate_checks(checks, names, run_rule, CheckCommands())
    return append_results(nodes, results)


def evaluate_checks(
    checks: Sequence[OwnCheck], names: Sequence[str], run_rule: RunRule, commands: CheckCommands
) -> dict[str, list[CheckResult]]:
    """The results of the checks by node."""
    results: dict[str, list[CheckResult]] = {name: [] for name in names}
    for check in checks:
        of_check = _apply_rule(check, names, run_rule) if check.sql else commands.run(check, names)
        for name, result in of_check.items():
            results[name].append(result)
    return results


def _apply_rule(check: OwnCheck, names: Sequence[str], run_rule: RunRule) -> dict[str, CheckResult]:
    """The result of a rule on each node; unknown on all where it cannot be evaluated."""
    try:
        rows = run_rule(check.sql)
    except (QueryError, OSError) as error:
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


class CheckCommands:
    """Runs the commands of checks. `close`, from any thread, ends those that run and starts no others."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False
        self._lock = threading.Lock()

    def run(self, check: OwnCheck, names: Sequence[str]) -> dict[str, CheckResult]:
        """The result of a command for each node."""
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return dict(zip(names, pool.map(lambda name: self._run_one(check, name), names), strict=True))

    def close(self) -> None:
        """Kill what runs."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    def _run_one(self, check: OwnCheck, name: str) -> CheckResult:
        argv = [word.replace("{node}", name) for word in check.command]
        try:
            process = self._start(argv)
        except OSError as error:
            return _unknown(check, f"{argv[0]}: {error.strerror or error}")
        if process is None:
            return _unknown(check, "the console ends")
        try:
            output, _ = process.communicate(timeout=check.timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return _unknown(check, f"{argv[0]} did not end within {check.timeout_s:g} s")
        finally:
            with self._lock:
                self._running.discard(process)
        text = next(iter(output.decode("utf-8", "replace").strip().splitlines()), "")
        if process.returncode == 0:
            return _pass(check)
        if process.returncode == 1:
            return _fail(check, text)
        return _unknown(check, f"{argv[0]} ended with status {process.returncode}" + (f": {text}" if text else ""))

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_closed:
                return None
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self._running.add(process)
            return process


def _pass(check: OwnCheck) -> CheckResult:
    return CheckResult(check.id, "pass", check.severity)


def _fail(check: OwnCheck, text: str) -> CheckResult:
    return CheckResult(check.id, "fail", check.severity, _shown(text or check.what or "failed"), check.remedy)


def _unknown(check: OwnCheck, text: str) -> CheckResult:
    return CheckResult(check.id, "unknown", check.severity, _shown(text))


def _shown(text: str) -> str:
    return printable(" ".join(text.split()))[:_LONGEST]
