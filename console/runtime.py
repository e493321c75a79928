"""The composition root: the parts of one running console, wired once.

The screen, the headless commands, HTTP and notebooks all start a `Console` and differ only in what they attach to it.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from . import __version__, records
from .analysis.stacks.frame_models import BadModel, parse_model
from .config import Config, ConfigError
from .core.bus import Hub, Published, Sink
from .core.control import CrashedRecording
from .core.store import Store
from .fleet.fleet import Fleet
from .monitor.clock_estimator import ClockEstimator
from .monitor.clock_findings import ClockFindings, SkewFindings
from .monitor.finding_tracker import FindingTracker
from .session.format.layout import sessions_folder
from .session.manage.retention import Limits
from .session.record.initial_snapshot import known
from .session.record.recorder import Recorder
from .text.timespec import duration_s

if TYPE_CHECKING:
    from .transport.ssh_keys import Prompt

_LOG_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO}

_log = logging.getLogger("gconsole.records")


class Console:
    """Bus, store, fleet, clock estimation, findings and recordings of one console.

    Nothing connects before `start`. Raises ConfigError for an invalid `[hang] models` entry.
    """

    def __init__(
        self,
        config: Config,
        *,
        store: Store | None = None,
        sinks: Sequence[Sink] = (),
        prompt: Prompt | None = None,
        resume: CrashedRecording | None = None,
        refold: Callable[[Store], None] | None = None,
        allow_run: bool = False,
        probe_clocks: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wire the parts; `sinks` receive every record after the store, from the first on.

        `prompt` asks a person for a password or passphrase; without it such logins fail. `resume` continues the
        crashed console of a session, whose records `refold` puts back into the store. `allow_run` permits starting
        and stopping jobs, whatever `[console] read_only` is. Without `probe_clocks` no node is probed. `clock`, in
        seconds, schedules the findings.
        """
        self.config = config
        self.bus = Hub(resume.console_id, resume.seq) if resume else Hub()
        self.store = store if store is not None else Store(config.console.history_bytes)
        self.bus.subscribe(self.store.apply)
        if refold:
            refold(self.store)
        for sink in (log_records, *sinks):
            self.bus.subscribe(sink)
        self.recorder = Recorder(
            self.bus,
            sessions_folder_of(config),
            Limits(config.sessions.max_bytes, duration_s(config.sessions.max_age) if config.sessions.max_age else None),
            lambda: known(self.store),
            config.cluster,
            [name for node in config.nodes for name in (node.name, node.host, node.address) if name],
            want_clocks=lambda who, wanted: self.fleet.want_clocks(who, wanted),
        )
        self._clock_findings = ClockFindings(self.store, config.clock)
        self._skew_findings = SkewFindings(self.store, config.skew)
        self.findings = FindingTracker(self.bus, config.health, clock, (self._clock_findings, self._skew_findings))
        self.clock_estimator = ClockEstimator(self.bus, config.clock, config.cluster)
        self._probe_clocks = probe_clocks
        fleet_config = config if probe_clocks else _without_probes(config)
        self.fleet = Fleet(fleet_config, self.bus, prompt, self.recorder, left=resume, allow_run=allow_run)
        self.fleet.followers.append(self._follow)
        self.recorder.bridge = self.fleet
        self.bus.publish_own(_console_record(config))

    async def start(self) -> None:
        """Begin to connect to every node; returns at once."""
        if self._probe_clocks:
            self.clock_estimator.start()
        await self.fleet.start()
        freeze_imported_modules()

    async def stop(self) -> None:
        """Disconnect from every node, then end clock estimation and recordings. A second call does nothing."""
        await self.fleet.stop()
        await self.clock_estimator.stop()
        await self.recorder.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Console]:
        """The console, started on entry and stopped on exit."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    def _follow(self, newer: Config) -> None:
        """Apply a configuration file that was saved while the console runs."""
        self.clock_estimator.follow(newer.clock)
        self._clock_findings.config = newer.clock
        self._skew_findings.follow(newer.skew)


def log_records(batch: Sequence[Published]) -> None:
    """A sink of the bus: logs node states, findings, gaps and the console's own messages."""
    for record in batch:
        if isinstance(record, records.NodeState):
            reason = f": {record.error.name}: {record.error.text}" if record.error else ""
            _log.log(logging.WARNING if record.error else logging.INFO, "%s %s%s", record.node, record.state, reason)
        elif isinstance(record, records.Finding):
            state = "cleared" if record.cleared_at is not None else "open"
            _log.log(_LOG_LEVELS[record.severity], "finding %s %s: %s", record.id, state, record.text)
        elif isinstance(record, records.Gap):
            _log.warning("gap on %s: %s, %s, count %s", record.node, record.source, record.reason, record.count)
        elif isinstance(record, records.Log) and record.source in ("console", "agent"):
            _log.log(_LOG_LEVELS[record.severity], "%s %s: %s", record.node, record.source, record.text)
        elif isinstance(record, records.ConsoleRecord):
            _log.info("console %s, gconsole %s, cluster %s", record.state, record.version, record.cluster)


def sessions_folder_of(config: Config) -> Path:
    """The folder in which this configuration keeps its sessions."""
    return sessions_folder(config.sessions.folder)


def freeze_imported_modules() -> None:
    """Exclude the objects loaded so far from garbage collection: walking them takes 35 to 100 ms, a whole frame."""
    gc.freeze()


def _without_probes(config: Config) -> Config:
    return msgspec.structs.replace(config, clock=msgspec.structs.replace(config.clock, duty="off"))


def _console_record(config: Config) -> records.ConsoleRecord:
    """The record that identifies this console and its frame models. Raises ConfigError for an invalid model."""
    for text in config.hang.models:
        try:
            parse_model(text)
        except BadModel as error:
            raise ConfigError("", "hang.models", str(error)) from error
    return records.ConsoleRecord(
        cluster=config.cluster,
        version=__version__,
        hang_models=config.hang.models,
        min_frozen_s=config.hang.min_frozen_s,
    )
