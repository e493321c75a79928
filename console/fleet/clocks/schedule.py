"""When clocks are probed: a window now and then in the background, without pause while somebody wants to know."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...config.sections import ClockConfig
from ...core.bus import Hub, Published
from ...records import ClockBins, Log, Severity
from ..link import NodeLink
from .edge_plan import Edge
from .probe_session import RENEW_S, ProbePace, ProbeSession
from .ssh_probe import SshProbe

#: `duty = "auto"`: in the background one window so often, with triples no closer than this.
EVERY_S: Final = 60.0
BACKGROUND_CADENCE_US: Final = 20_000
#: A triple waits so long for its peers to be told, and the last bins need so long to be whole.
TAIL_S: Final = 0.8
#: An edge on which so many requests in a row had no answer is blocked for UDP.
BLOCKED_AFTER: Final = 60
#: Then a session begins anew, with new keys: its packets are numbered with 32 bits, 40 days at the closest cadence.
LONGEST_S: Final = 86_400.0
#: The methods for which anything is sent at all: what the nodes' own services claim is read anyway.
_PROBING: Final = ("auto", "probe", "ssh")
#: So many blocked edges are named in one line.
_NAMED: Final = 8


class ProbeSchedule:
    """Owns the session under way, and the task that begins and ends sessions."""

    def __init__(self, config: ClockConfig, hub: Hub, ready: Callable[[], Mapping[str, NodeLink]]) -> None:
        self._config, self._hub, self._ready = config, hub, ready
        self._wanted: set[str] = set()  # who wants probes without pause
        self._changed = asyncio.Event()
        self._seed = secrets.randbits(32)
        self._task: asyncio.Task[None] | None = None
        self._pinger: SshProbe | None = None
        self._unanswered: dict[Edge, int] = {}
        self._unsubscribe = hub.subscribe(self._watch)
        self._releases: dict[str, asyncio.TimerHandle] = {}  # of those who want one window
        self._told: set[Edge] = set()  # blocked edges that were already named

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="clocks")

    def follow(self, config: ClockConfig) -> None:
        """A newer configuration: what is under way ends, and begins anew by that."""
        if config != self._config:
            self._config = config
            self._changed.set()

    def want(self, who: str, wanted: bool) -> None:
        """Somebody wants probes without pause, or no longer."""
        before = set(self._wanted)
        (self._wanted.add if wanted else self._wanted.discard)(who)
        if before != self._wanted:
            self._changed.set()

    def want_window(self, who: str) -> None:
        """Somebody wants one whole window from now on; asked again meanwhile, it begins anew."""
        earlier = self._releases.pop(who, None)
        if earlier is not None:
            earlier.cancel()
        self.want(who, True)
        long_s = self._config.probe_window_s + TAIL_S
        self._releases[who] = asyncio.get_running_loop().call_later(long_s, self.want, who, False)

    async def stop(self) -> None:
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
                await self._once()
            except Exception as error:  # noqa: BLE001 - a fault of ours must be seen, and must not end the clocks
                text = f"the clocks cannot be probed: {type(error).__name__}: {error}"
                self._hub.publish_own(Log(source="console", severity="error", text=text, try_="please report this"))
                await self._pause(EVERY_S)

    async def _once(self) -> None:
        """One session, or one wait for a reason to begin one."""
        links = dict(self._ready())
        if not self._allowed:
            await self._pause(EVERY_S)
        elif len(links) < 2:  # nobody to compare with, yet
            await self._pause(1.0)
        elif self._continuous:
            await self._session(links, ProbePace.of(self._config), None)
        else:
            pace = ProbePace.of(self._config, BACKGROUND_CADENCE_US)
            await self._session(links, pace, self._config.probe_window_s + TAIL_S)
            await self._pause(EVERY_S)

    @property
    def _allowed(self) -> bool:
        config = self._config
        return config.enabled and config.duty != "off" and config.method in _PROBING

    async def _pause(self, seconds: float) -> None:
        """Wait, but not when what is wanted changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _session(self, links: Mapping[str, NodeLink], pace: ProbePace, for_s: float | None) -> None:
        """Probe for so long (None: while that is wanted, and these are the nodes), then close every port."""
        config = self._config
        session = ProbeSession(self._hub, links, config, self._seed)
        self._unanswered = {}
        pinger = self._pinger = SshProbe(self._hub, links, pace.bin_ms)
        pinging = asyncio.create_task(pinger.run(), name="clock pings")
        try:
            if config.method == "ssh":
                pinger.edges.update(session.edges)
            else:
                await session.begin(pace)
                if config.method == "auto":
                    self._fall_back(session.without_udp | (self._told & set(session.edges)))
            await self._keep_on(session, links, for_s)
        finally:
            self._pinger = None
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)
            await session.end()

    async def _keep_on(self, session: ProbeSession, links: Mapping[str, NodeLink], for_s: float | None) -> None:
        if for_s is not None:
            await self._pause(for_s)
            return
        config = self._config
        until = time.monotonic() + LONGEST_S
        while self._continuous and self._config is config and time.monotonic() < until:
            await self._pause(RENEW_S)
            self._changed.clear()
            if dict(self._ready()) != links or not await session.renew():
                return

    # -- edges without an answer ---------------------------------------------------------------------------------------

    def _watch(self, records: Sequence[Published]) -> None:
        """Requests that nobody answers: after a second or so the edge is measured over SSH, and probed on."""
        blocked = set()
        for record in records:
            if isinstance(record, ClockBins) and record.method == "udp":
                edge = (record.node, record.dst)
                if any(one.got for one in record.bins):
                    self._unanswered[edge] = 0
                    self._answered(edge)
                    continue
                self._unanswered[edge] = self._unanswered.get(edge, 0) + sum(one.sent for one in record.bins)
                if self._unanswered[edge] >= BLOCKED_AFTER:
                    blocked.add(edge)
        if blocked and self._config.method == "auto":
            self._fall_back(blocked)

    def _answered(self, edge: Edge) -> None:
        self._told.discard(edge)
        if self._pinger is not None:
            self._pinger.edges.discard(edge)

    def _fall_back(self, blocked: set[Edge]) -> None:
        if self._pinger is not None:
            self._pinger.edges |= blocked
        new = sorted(blocked - self._told)
        self._told |= blocked
        if new:
            named = ", ".join(f"{near} → {far}" for near, far in new[:_NAMED])
            more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            text = f"UDP blocked {named}{more}: clocks are compared over SSH there, with a wide bound"
            try_ = "allow UDP between the nodes, or set [clock] interface to their data network"
            severity: Severity = "warning" if self._continuous else "info"  # in the background nobody has asked
            self._hub.publish_own(Log(source="console", severity=severity, text=text, try_=try_))
