"""The composition root: the parts of one running console, wired once.

The screen, the headless commands, HTTP and notebooks all start a `Console` and differ only in what they attach to it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .. import __version__
from ..config import Config, target_key
from ..config.model import without_clock_probes, without_stacks
from ..core.bus import LOGGED, Hub, Sink, log_records
from ..core.control import CrashedRecording, Selection
from ..core.store import Store
from ..core.wants import DIGESTED, EVERY_SAMPLE, Want
from ..fleet.fleet import Fleet
from ..monitor.clock_estimator import ClockEstimator, ClockFindings
from ..monitor.crash import CrashFindings
from ..monitor.digest_rules import digest_rules
from ..monitor.finding_tracker import FindingTracker
from ..monitor.hang import console_record
from ..monitor.skew import SkewFindings, clock_of
from ..monitor.stall_watch import StallWatch
from ..session.format.layout import sessions_folder
from ..session.manage.black_boxes import black_boxes_folder
from ..session.manage.retention import Limits
from ..session.record.black_box import BlackBox
from ..session.record.recorder import Recorder
from ..session.stored_records import current_records

if TYPE_CHECKING:
    from ..fleet.fleet import Prompt
    from ..monitor.skew import ClusterInstant, NodeClock
    from ..session.query.own_check_watch import OwnCheckWatch

#: In whose figures the steps of jobs show.
_STEP_KINDS: Final = frozenset({"gpu", "nic"})


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
        black_box: bool = True,
        is_embedded: bool = False,
        stacks: bool = True,
        own_checks: bool = False,
    ) -> None:
        """Wire the parts; `sinks` receive every record after the store, from the first on.

        `prompt` asks a person for a password or passphrase; without it such logins fail. `resume` continues the
        crashed console of a session, whose records `refold` puts back into the store. `allow_run` permits starting
        and stopping jobs, whatever `[console] read_only` is. Without `probe_clocks` no node is probed. `clock`, in
        seconds, schedules the findings. Without `black_box`, as for commands of a few seconds, none is written.
        `is_embedded`: in a process that is not gconsole's own, whose garbage collector is left as it is. Without
        `stacks` none are sampled, and py-spy is not sent to the nodes. `own_checks`: evaluate the user's checks.
        """
        self.config = config
        self.bus = Hub(resume.console_id, resume.seq) if resume else Hub()
        self.store = store if store is not None else Store(config.console.history_bytes)
        self.bus.subscribe(self.store.apply)
        if refold:
            refold(self.store)
        self.bus.subscribe(log_records, LOGGED)
        for sink in sinks:
            self.bus.subscribe(sink)
        self.black_box = BlackBox(
            self.bus,
            black_boxes_folder(),
            config.console,
            lambda: current_records(self.store),
            config.cluster,
            target_key(str(config.path)) if config.path else config.cluster,
            is_wanted=black_box,
        )
        self.recorder = Recorder(
            self.bus,
            sessions_folder_of(config),
            Limits.of(config.sessions),
            lambda: current_records(self.store),
            config.cluster,
            [name for node in config.nodes for name in (node.name, node.host, node.address) if name],
            request_clock_probes=lambda who, wanted: self.fleet.request_clock_probes(who, wanted),
            black_box=self.black_box,
            want=lambda who, selection: self.fleet.want(who, *_wants_of(selection)),
        )
        self._clock_findings = ClockFindings(self.store, config.clock)
        self._skew_findings = SkewFindings(self.store, config.skew)
        self.crashes = CrashFindings(self.store, clock)
        sources = (self.crashes, self._clock_findings, self._skew_findings)
        self.findings = FindingTracker(self.bus, config.health, clock, sources)
        self.stalls = StallWatch(self.store, config.watch, clock)
        self.clock_estimator = ClockEstimator(self.bus, config.clock, config.cluster)
        self._probe_clocks, self._is_embedded = probe_clocks, is_embedded
        fleet_config = config if probe_clocks else without_clock_probes(config)
        fleet_config = fleet_config if stacks else without_stacks(fleet_config)
        self.fleet = Fleet(
            fleet_config, self.bus, prompt, self.recorder, left=resume, allow_run=allow_run, sends_py_spy=stacks,
            digest_rules=digest_rules,
        )  # fmt: skip
        self.stalls.step_clocks.want = lambda nodes: self.fleet.want(
            "step clocks", Want(nodes, _STEP_KINDS, EVERY_SAMPLE)
        )
        self.stalls.step_clocks.measure_traffic = self.fleet.measure_traffic
        self.own_checks = _own_checks(self.store, self.bus) if own_checks else None
        self.fleet.followers.append(self._follow)
        self.recorder.bridge = self.fleet
        self.bus.publish_own(console_record(config, __version__))

    async def start(self) -> None:
        """Begin to connect to every node; returns at once."""
        self.black_box.start()
        if self._probe_clocks:
            self.clock_estimator.start()
        await self.fleet.start()
        if self.own_checks is not None:
            self.own_checks.start()
        if not self._is_embedded:
            freeze_imported_modules()

    async def stop(self) -> None:
        """Disconnect from every node, then end clock estimation and recordings. A second call does nothing."""
        if self.own_checks is not None:
            await self.own_checks.stop()
        await self.fleet.stop()
        await self.clock_estimator.stop()
        await self.recorder.close()
        await self.black_box.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Console]:
        """The console, started on entry and stopped on exit."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    def to_cluster(self, node: str, t: int, clock: NodeClock = "real") -> ClusterInstant | None:
        """The common clock at an instant of a node's clock (ns), with its error bound; None without clock data."""
        return clock_of(self.store).to_cluster(node, t, clock)

    def _follow(self, newer: Config) -> None:
        """Apply a configuration file that was saved while the console runs."""
        self.clock_estimator.follow(newer.clock)
        self._clock_findings.config = newer.clock
        self._skew_findings.follow(newer.skew)
        self.stalls.follow(newer.watch)


def sessions_folder_of(config: Config) -> Path:
    """The folder in which this configuration keeps its sessions."""
    return sessions_folder(config.sessions.folder)


def freeze_imported_modules() -> None:
    """Exclude the objects loaded so far from garbage collection: walking them takes 35 to 100 ms, a whole frame."""
    gc.freeze()


def _wants_of(selection: Selection | None) -> tuple[Want, ...]:
    """What a recording wants: every sample of what it selects, or one each `--every`."""
    if selection is None:
        return ()
    nodes = frozenset(selection.nodes) if selection.nodes else None
    kinds = DIGESTED & frozenset(selection.kinds) if selection.kinds else DIGESTED
    return (Want(nodes, kinds, 1 / selection.every_s if selection.every_s else EVERY_SAMPLE),)


def _own_checks(store: Store, bus: Hub) -> OwnCheckWatch:
    from ..session.query.own_check_watch import OwnCheckWatch  # commands without a screen have no use for it

    return OwnCheckWatch(store, bus.publish_own)
