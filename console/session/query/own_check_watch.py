"""The user's checks in a console that runs: evaluated on its store again and again, or once at the end of a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ...analysis.checks.result import CheckResult
from ...core.store import Store
from ...records import Log
from ...text.logs import internal_error
from ..store_snapshot import StoreSnapshot, snapshot_tables
from .own_checks import MOST_ROWS, RULE_S, CheckCommands, OwnCheck, OwnCheckFile, default_path, evaluate_checks
from .views import tables_for
from .worker import QueryWorkerClient

#: Seconds between two passes; a changed file takes effect at the next one.
EVERY_S: Final = 30.0
#: Seconds before the first pass, in which nodes connect.
FIRST_S: Final = 10.0


class OwnCheckWatch:
    """Evaluates the checks of a file on the nodes that are reached; `publish` receives what is wrong with the file."""

    def __init__(self, store: Store, publish: Callable[[Log], object], path: Path | None = None) -> None:
        self._store, self._publish = store, publish
        self._path = path or default_path()
        self._file = OwnCheckFile(self._path)
        self._reported = ""
        self._commands, self._worker = CheckCommands(), QueryWorkerClient()
        self._task: asyncio.Task[None] | None = None
        self.results: Mapping[str, Sequence[CheckResult]] = {}  # of the newest pass, by node

    def of(self, node: str) -> Sequence[CheckResult]:
        """The newest results of a node."""
        return self.results.get(node, ())

    def start(self) -> None:
        """Begin the passes."""
        self._task = asyncio.create_task(self._run(), name="own checks")

    async def stop(self) -> None:
        """End the pass that runs, with its commands and its query."""
        self._commands.close()
        self._worker.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._worker.close()

    async def evaluate(self) -> None:
        """Make one pass."""
        checks = await asyncio.to_thread(self._file.read)
        which = "the checks from before stay" if checks else "no check of your own is evaluated"
        # what it means first: the path of the file may fill the line of an event
        trouble = f"{self._path.name} cannot be used, {which}: {self._file.trouble}" if self._file.trouble else ""
        self._report(trouble, f"correct the file; it is read again every {EVERY_S:.0f} s")
        names = [name for name, now in self._store.nodes.items() if now.state is not None and now.state.state == "ok"]
        wanted = {table for check in checks if check.sql for table in tables_for(check.sql)[0]}
        tables = snapshot_tables(self._store, wanted) if names else StoreSnapshot({}, {})
        self.results = await asyncio.to_thread(self._evaluate, checks, names, tables) if checks and names else {}

    def _report(self, text: str, try_: str) -> None:
        """Publish what is wrong, once as long as it stays the same; empty: nothing is."""
        if text != self._reported:
            self._reported = text
            if text:
                self._publish(Log(source="console", severity="warning", text=text, try_=try_))

    async def _run(self) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.evaluate()
            except Exception as error:  # noqa: BLE001 - a bug here must not end the passes without a word
                self._report(internal_error(error, "the checks of your own"), "")
            await asyncio.sleep(EVERY_S)

    def _evaluate(
        self, checks: Sequence[OwnCheck], names: Sequence[str], tables: StoreSnapshot
    ) -> Mapping[str, Sequence[CheckResult]]:
        def run_rule(sql: str) -> Sequence[Sequence[object]]:
            source = tables.tables(tables_for(sql)[0])
            return self._worker.query(sql, source, limit=MOST_ROWS, deadline_s=RULE_S).rows

        return evaluate_checks(checks, names, run_rule, self._commands)
