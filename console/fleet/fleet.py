"""All links of one console, and the `Control` over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..config.diff import Changes, difference
from ..config.load import more_nodes
from ..config.model import Config, NodeConfig
from ..config.read_only import Change, ReadOnly, refusal
from ..core.bus import Hub, Published
from ..core.control import CaptureRequest, CaptureResult, CrashedRecording, Recordings
from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder
from ..records import AgentCost, Failure, Log, Mark, NodeState
from ..transport import fd_limit
from ..transport.login_limiter import LoginLimiter
from ..transport.openssh import LocalTransport, OpensshTransport
from ..transport.site_exec import SiteExecTransport
from ..transport.transport import Transport
from . import capture, jobs, sync_push
from .clocks.schedule import ProbeSchedule
from .deploy.binaries import Binaries
from .deploy.staging import Staging
from .gc_sweep import GcSweep
from .link import NodeLink
from .node_reply import NodeReply, request_reply

if TYPE_CHECKING:
    from ..transport.ssh_keys import Prompt  # which loads asyncssh

#: The doctor looks for binaries and asks drivers: a cold node takes seconds.
DOCTOR_S = 60.0


class Fleet:
    """The live implementation of `hub.Control`. Everything it learns leaves through the hub.

    `ask` is given where a person can answer (a passphrase, a second factor); without it such a login fails.
    """

    def __init__(
        self, config: Config, hub: Hub, ask: Prompt | None = None, recordings: Recordings | None = None,
        left: CrashedRecording | None = None, allow_run: bool = False,
    ) -> None:  # fmt: skip
        """`left`: what a crashed console left on its nodes; the hub is that console's already.

        `allow_run`: a person asked for jobs to be started and stopped, whatever `[console] read_only` says.
        """
        self.config = config
        self._console, self._allow_run = config.console, allow_run  # as it was at the start: no file that is followed
        self.hub = hub
        self.recordings = recordings
        self._left = left
        self._met: set[str] = set()  # nodes whose agents of that console were asked for
        self._gate = LoginLimiter(config.ssh.max_connecting)
        self._assets = Binaries()
        self.staging = Staging(hub, self._assets)
        self._ask = ask
        self._transports: dict[str, Transport] = {}
        self.links: dict[str, NodeLink] = {}
        self._clocks = ProbeSchedule(config.clock, hub, self._sampled_links)
        self.followers: list[Callable[[Config], None]] = []  # who else acts on a newer configuration
        self._sweep = GcSweep()
        self._stopped = False
        self._unsubscribe = hub.subscribe(self._watch)
        fd_limit.raise_limit(len(config.nodes))

    async def start(self) -> None:
        """Begin to connect to every node; returns at once."""
        for node in self.config.nodes:
            self.add_node(node)
        self._clocks.start()

    def add_node(self, node: NodeConfig) -> None:
        """Begin to connect to one more node."""
        known = None
        if self._left is not None and node.name not in self._met:
            self._met.add(node.name)
            known = self._left.agent_of(node.name)
        link = NodeLink(
            node, self._transport("engine" if node.engine else node.ssh.transport), self.hub,
            self._assets, self.staging.send_now, _snapshot_period_ms(self.config), known,
            gpu_clock=self.config.clock.enabled and self.config.clock.gpu_clock,
        )  # fmt: skip
        self.links[node.name] = link
        link.start()

    async def remove_node(self, node: str) -> None:
        await self.links.pop(node).stop()
        self.hub.publish_own(NodeState(node=node, state="removed"))

    async def reconnect(self, node: str) -> None:
        link = self.links[node]
        for transport in self._transports.values():
            transport.forget_refused_prompts()
        link.reconnect()

    async def add_nodes(self, names: str) -> Sequence[str]:
        new = [node for node in more_nodes(self.config, names) if node.name not in self.links]
        for node in new:
            self.add_node(node)
        return [node.name for node in new]

    async def apply(self, config: Config) -> Changes:
        changes = difference(self.config, config)
        period_ms = _snapshot_period_ms(config)
        reads_otherwise = period_ms != _snapshot_period_ms(self.config)
        self.config = config
        self._clocks.follow(config.clock)
        for follow in self.followers:
            follow(config)
        gone = [name for name in changes.removed if name in self.links]
        other = [node for node in changes.changed if node.name in self.links]  # not those a person has let go of
        await asyncio.gather(*(self.remove_node(name) for name in gone))
        await asyncio.gather(*(self.links.pop(node.name).stop() for node in other))
        for node in (*changes.added, *other):
            if node.name not in self.links:  # a person may have added it before it was written
                self.add_node(node)
        if reads_otherwise:
            for link in self.links.values():
                link.read_clocks_every(period_ms)
        fd_limit.raise_limit(len(self.links))
        return changes

    def is_awaited(self, left: CrashedRecording) -> bool:
        away_s = (time.time_ns() - left.broke_off) / 1e9
        return any(
            link.node.agent.linger_s + link.node.agent.orphan_s > away_s and left.agent_of(name) is not None
            for name, link in self.links.items()
            if link.node.agent.linger_s > 0
        )

    async def go_on_as(self, left: CrashedRecording) -> None:
        nodes = [link.node for link in self.links.values() if link.node.agent.linger_s > 0]
        self._left, self._met = left, set()
        self.hub.adopt_identity(left.console_id, left.seq)
        await asyncio.gather(*(self.links.pop(node.name).stop() for node in nodes))
        for node in nodes:
            self.add_node(node)

    async def examine(self, nodes: Sequence[str]) -> Sequence[NodeReply]:
        links = [self.links[name] for name in nodes if name in self.links]
        return await asyncio.gather(*(request_reply(link, "doctor", {}, DOCTOR_S) for link in links))

    async def mark(self, text: str) -> None:
        self.hub.publish_own(Mark(text=text))

    def refusal(self, change: Change) -> ReadOnly | None:
        return refusal(self._console, change, explicit=self._allow_run)

    async def capture(self, order: CaptureRequest) -> CaptureResult:
        if order.flight_pipe:
            self._permit(Change.FLIGHT_PIPE)
        self._clocks.want_window("capture")  # so that its instants can be compared as well as can be
        done = await capture.capture(self.links.values(), self.staging, order, self.config.hang)
        for node, failure in done.failures.items():
            text = f"no stacks of {node}: {failure.text}"
            self.hub.publish_own(Log(node=node, source="console", severity="warning", text=text, try_=failure.try_))
        return done

    def want_clocks(self, who: str, wanted: bool) -> None:
        self._clocks.want(who, wanted)

    async def probe_job(self, nodes: Sequence[str], question: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
        return await jobs.probe(self.links, nodes, question)

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        self._permit(Change.START_JOB)  # it is for one that is about to start
        return await sync_push.sync(self.links, nodes, folder, workdir)

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        self._permit(Change.START_JOB)
        return await jobs.start(self.links, orders)

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        self._permit(Change.STOP_JOB)
        return await jobs.stop(self.links, job, nodes, grace_s)

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        return await jobs.follow(self.links, job, nodes, tail, follow)

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        return await jobs.watch(self.links, job, nodes, wanted)

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        return await jobs.list_files(self.links, job, node, path)

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        return await jobs.read_file(self.links, job, node, path, offset)

    async def stop(self) -> None:
        """Disconnect from every node. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self._sweep.close()
        await self._clocks.stop()
        await self.staging.close()
        await asyncio.gather(*(link.stop() for link in self.links.values()))
        await asyncio.gather(*(transport.close() for transport in self._transports.values()))

    def _permit(self, change: Change) -> None:
        refused = self.refusal(change)
        if refused is not None:
            raise refused

    def _transport(self, kind: str) -> Transport:
        if kind not in self._transports:
            if kind == "local":
                self._transports[kind] = LocalTransport()
            elif kind == "engine":
                self._transports[kind] = SiteExecTransport(self._gate)
            elif kind == "openssh":
                self._transports[kind] = OpensshTransport(self._gate)
            else:
                from ..transport.ssh import AsyncsshTransport  # 200 ms of import that the other transports need not pay

                self._transports[kind] = AsyncsshTransport(self._gate, self._ask)
        return self._transports[kind]

    def _sampled_links(self) -> dict[str, NodeLink]:
        """Nodes that can take part in probes: connected, and past their first tick."""
        return {name: link for name, link in self.links.items() if link.state == "ok" and link.has_sampled}

    def _watch(self, records: Sequence[Published]) -> None:
        """The first full tick of an agent: now py-spy may travel without delaying the first sample. And losses."""
        for record in records:
            if isinstance(record, NodeState) and record.retry_at is not None:
                self._sweep.soon()
            elif isinstance(record, AgentCost):
                link = self.links.get(record.node)
                if link:
                    link.sampled()
                    self.staging.stage_py_spy(link)


def _snapshot_period_ms(config: Config) -> int:
    """Between two reads of a node's clocks against each other; 0: none."""
    return config.clock.snapshot_period_ms if config.clock.enabled else 0
