"""Schedules clock probes: periodic windows in the background, continuous on request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...config.sections import ClockConfig
from ...core.bus import Hub, Published
from ...records import ClockBins, Log, Severity
from ...text.format import some
from ...text.logs import internal_error
from ..node_link import NodeLink
from .probe_session import RENEW_S, Edge, ProbePace, ProbeSession
from .ssh_probe import SshProbe

_log = logging.getLogger(__name__)

#: Seconds between background windows (`duty = "auto"`), and their minimum cadence in µs.
BACKGROUND_PERIOD_S: Final = 60.0
#: The same for a cluster that is not on the screen; less than the 180 s without probes after which node lines come from
#: time services.
HIDDEN_PERIOD_S: Final = 150.0
BACKGROUND_CADENCE_US: Final = 20_000
#: Seconds added to a window: peers must be distributed, and the last bins completed.
TAIL_S: Final = 0.8
#: Consecutive unanswered requests after which an edge counts as blocked for UDP.
BLOCKED_AFTER: Final = 60
#: Seconds. Maximum session; then new keys, since packet numbers are 32 bits (40 days at the highest rate).
MAX_SESSION_S: Final = 86_400.0
#: Methods that send probes; the clock services of the nodes are read in any case.
_PROBING: Final = ("auto", "probe", "ssh")
#: Blocked edges named in one log line.
_MAX_NAMED: Final = 8


class ProbeSchedule:
    """Starts and ends probe sessions."""

    def __init__(self, config: ClockConfig, hub: Hub, ready: Callable[[], Mapping[str, NodeLink]]) -> None:
        self._config, self._hub, self._ready = config, hub, ready
        self._wanted: set[str] = set()  # requesters of continuous probes
        self._is_hidden = False  # another cluster is on the screen
        self._changed = asyncio.Event()
        self._seed = secrets.randbits(32)
        self._task: asyncio.Task[None] | None = None
        self._ssh_probe: SshProbe | None = None
        self._unanswered: dict[Edge, int] = {}
        self._unsubscribe = hub.subscribe(self._watch, frozenset({ClockBins}))
        self._releases: dict[str, asyncio.TimerHandle] = {}  # by requester of one window
        self._reported: set[Edge] = set()  # blocked edges already reported

    def start(self) -> None:
        """Start the scheduling task."""
        self._task = asyncio.create_task(self._run(), name="clocks")

    def follow(self, config: ClockConfig) -> None:
        """Apply a newer configuration: restart the current session."""
        if config != self._config:
            self._config = config
            self._changed.set()

    def want(self, who: str, wanted: bool) -> None:
        """Request or release continuous probes for `who`."""
        before = set(self._wanted)
        (self._wanted.add if wanted else self._wanted.discard)(who)
        if before != self._wanted:
            self._changed.set()

    def in_background(self, is_hidden: bool) -> None:
        """Whether the screen shows another cluster: windows are fewer then."""
        if is_hidden != self._is_hidden:
            self._is_hidden = is_hidden
            self._changed.set()

    def want_window(self, who: str) -> None:
        """Request continuous probes for one window from now; a repeated request extends it."""
        earlier = self._releases.pop(who, None)
        if earlier is not None:
            earlier.cancel()
        self.want(who, True)
        self._release_after(self._config.probe_window_s + TAIL_S, who)

    def _release_after(self, seconds: float, who: str) -> None:
        self._releases[who] = asyncio.get_running_loop().call_later(seconds, self._release, who)

    def _release(self, who: str) -> None:
        """Release the window of `who`, once there are enough pings where nodes are pinged over SSH."""
        left_s = self._ssh_probe.left_of_window_s if self._ssh_probe is not None else 0.0
        if left_s > 0:
            self._release_after(left_s, who)
        else:
            self.want(who, False)

    async def stop(self) -> None:
        """End the session and the task."""
        self._unsubscribe()
        for release in self._releases.values():
            release.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def _continuous(self) -> bool:
        return bool(self._wanted) or self._config.duty == "continuous"

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._run_session_or_wait()
            except Exception as error:  # noqa: BLE001 - report bugs and continue
                text = f"clock probes failed: {internal_error(error, 'the clock probes')}"
                self._hub.publish_own(Log(source="console", severity="error", text=text))
                await self._pause(BACKGROUND_PERIOD_S)

    async def _run_session_or_wait(self) -> None:
        """Run one session, or wait for a reason to start one."""
        links = dict(self._ready())
        if not self._allowed:
            await self._pause(BACKGROUND_PERIOD_S)
        elif len(links) < 2:  # needs two nodes
            await self._pause(1.0)
        elif self._continuous:
            await self._session(links, ProbePace.of(self._config), None)
        else:
            pace = ProbePace.of(self._config, BACKGROUND_CADENCE_US)
            began_s, usual_s = time.monotonic(), self._config.probe_window_s + TAIL_S
            await self._session(links, pace, usual_s)
            longer_s = max(0.0, time.monotonic() - began_s - usual_s)
            period_s = HIDDEN_PERIOD_S if self._is_hidden else BACKGROUND_PERIOD_S
            await self._pause(max(0.0, period_s - longer_s))

    @property
    def _allowed(self) -> bool:
        config = self._config
        return config.enabled and config.duty != "off" and config.method in _PROBING

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until the demand changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _session(self, links: Mapping[str, NodeLink], pace: ProbePace, for_s: float | None) -> None:
        """Probe for `for_s` seconds (None: while wanted and the nodes are the same), then close the ports."""
        config = self._config
        session = ProbeSession(self._hub, links, config, self._seed)
        self._unanswered = {}
        _log.debug("clock probes begin: %d nodes, %d edges, method %s", len(links), len(session.edges), config.method)
        ssh_probe = self._ssh_probe = SshProbe(self._hub, links, pace.bin_ms)
        pinging = asyncio.create_task(ssh_probe.run(), name="clock pings")
        try:
            if config.method == "ssh":
                ssh_probe.edges.update(session.edges)
            else:
                await session.begin(pace)
                if config.method == "auto":
                    self._fall_back(session.without_udp | (self._reported & set(session.edges)))
            if for_s is None:
                await self._renew(session, links)
            else:
                await self._probe_one_window(ssh_probe, for_s)
        finally:
            self._ssh_probe = None
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)
            await session.end()
            _log.debug("clock probes ended")

    async def _probe_one_window(self, ssh_probe: SshProbe, for_s: float) -> None:
        """Wait `for_s` seconds, or longer where many nodes are pinged over SSH; until the demand changes."""
        await self._pause(for_s)
        if not self._changed.is_set():  # meanwhile edges may have turned out to be blocked
            await self._pause(ssh_probe.left_of_window_s)

    async def _renew(self, session: ProbeSession, links: Mapping[str, NodeLink]) -> None:
        config = self._config
        until = time.monotonic() + MAX_SESSION_S
        while self._continuous and self._config is config and time.monotonic() < until:
            await self._pause(RENEW_S)
            self._changed.clear()
            if dict(self._ready()) != links or not await session.renew():
                return

    # -- unanswered edges ---------------------------------------------------------------------------------------

    def _watch(self, records: Sequence[Published]) -> None:
        """Fall back to SSH on edges whose requests stay unanswered; UDP probing continues."""
        blocked = set()
        for record in records:
            if isinstance(record, ClockBins) and record.method == "udp":
                edge = (record.node, record.dst)
                if any(b.got for b in record.bins):
                    self._unanswered[edge] = 0
                    self._answered(edge)
                    continue
                self._unanswered[edge] = self._unanswered.get(edge, 0) + sum(b.sent for b in record.bins)
                if self._unanswered[edge] >= BLOCKED_AFTER:
                    blocked.add(edge)
        if blocked and self._config.method == "auto":
            self._fall_back(blocked)

    def _answered(self, edge: Edge) -> None:
        self._reported.discard(edge)
        if self._ssh_probe is not None:
            self._ssh_probe.edges.discard(edge)

    def _fall_back(self, blocked: set[Edge]) -> None:
        if self._ssh_probe is not None:
            self._ssh_probe.edges |= blocked
        new = sorted(blocked - self._reported)
        self._reported |= blocked
        if new:
            named = some([f"{near} → {far}" for near, far in new], _MAX_NAMED)
            text = f"UDP blocked {named}: clocks are compared over SSH instead, with a wider error bound"
            try_ = "allow UDP between the nodes, or set [clock] interface to their data network"
            severity: Severity = "warning" if self._continuous else "info"  # a background run is not user-requested
            self._hub.publish_own(Log(source="console", severity=severity, text=text, try_=try_))
