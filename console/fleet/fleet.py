"""All node links of one console, and its `Control` implementation."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..config.diff import Changes, difference
from ..config.load import more_nodes
from ..config.model import Change, Config, NodeConfig, PodExec, ReadOnly, refusal
from ..core.bus import Hub, Published
from ..core.control import CaptureRequest, CaptureResult, CrashedRecording, Recordings
from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder
from ..core.wants import DIGESTED, EVERY_SAMPLE, DigestRules, Want
from ..records import AgentCost, Failure, GpuInfo, Log, Mark, NodeState, Rank
from ..transport import run_command
from ..transport.errors import FleetError
from ..transport.gateway.transport import GatewayTransport, gateway_hosts
from ..transport.login_limiter import LoginLimiter
from ..transport.openssh import LocalTransport, OpensshTransport
from ..transport.site_exec import PodTransport
from ..transport.step.transport import StepTransport
from ..transport.transport import Transport
from . import capture, folder_sync, job_requests
from .clocks.schedule import ProbeSchedule
from .deploy import agent_payload
from .deploy.binaries import Binaries
from .deploy.gateway_launch import GatewayLaunch, gateway_share, kept_text
from .deploy.send_binaries import Staging
from .deploy.step_launch import StepLaunch
from .digest_orders import DigestOrders
from .gc_sweep import GcSweep
from .liveness_timer import LivenessTimer
from .node_link import NodeLink
from .pod_events import PodEvents
from .survey import NodeReply, request_reply
from .tick_offsets import tick_offset_s
from .wire import Kept

if TYPE_CHECKING:
    from ..transport.ssh_keys import Prompt as Prompt  # which loads asyncssh

#: Seconds. The doctor searches binaries and queries drivers; a cold node takes seconds.
DOCTOR_S = 60.0
#: Seconds of one block of a profile, and by which its reply may be late.
PROFILE_BLOCK_S, PROFILE_GRACE_S = 2.0, 30.0


class Fleet:
    """The live implementation of `Control`; results are published on the hub.

    `prompt_user` prompts the user (passphrase, second factor); without it such logins fail.
    """

    def __init__(
        self, config: Config, hub: Hub, prompt_user: Prompt | None = None, recordings: Recordings | None = None,
        left: CrashedRecording | None = None, allow_run: bool = False, sends_py_spy: bool = True,
        digest_rules: Callable[[Config], DigestRules] | None = None, jobs_only: bool = False,
    ) -> None:  # fmt: skip
        """`left`: the recording of a crashed console, whose agents are adopted; the hub already has its identity.

        `allow_run`: the user permitted starting and stopping jobs, overriding `[console] read_only`. Without
        `sends_py_spy`, only nodes that have it in their cache can read stacks. `digest_rules`: what digests must keep
        apart; without, every sample is sent. `jobs_only`: agents sample only what the plan of a job needs.
        """
        self.config = config
        self._console, self._allow_run = config.console, allow_run  # from the start: not reloaded
        self.hub = hub
        self.recordings = recordings
        self._crashed = left
        self._adopted: set[str] = set()  # nodes whose lingering agent was requested
        self._liveness_timer = LivenessTimer(hub)
        self._login_limiter = LoginLimiter(config.ssh.max_connecting, lambda: self._liveness_timer.is_late)
        self.staging = Staging(hub, Binaries())
        self._sends_py_spy, self._jobs_only = sends_py_spy and not jobs_only, jobs_only
        self._prompt_user = prompt_user
        self._transports: dict[str, Transport] = {}
        self.links: dict[str, NodeLink] = {}
        self._clocks = ProbeSchedule(config.clock, hub, self._sampled_links)
        self._digests = DigestOrders(config, self._sampled_links, digest_rules or _no_digests)
        self.followers: list[Callable[[Config], None]] = []  # callbacks for a newer configuration
        self._sweep = GcSweep()
        self._pod_events = PodEvents(hub, [node.engine for node in config.nodes if isinstance(node.engine, PodExec)])
        self._stopped = False
        self._unsubscribe = hub.subscribe(self._watch, frozenset({NodeState, GpuInfo, Rank, AgentCost}))
        run_command.raise_limit(len(config.nodes))

    async def start(self) -> None:
        """Begin to connect to every node; returns at once."""
        asyncio.get_running_loop().run_in_executor(None, _build_payload)  # 80 ms, while the first logins wait
        for node in self.config.nodes:
            self.add_node(node)
        self._clocks.start()
        self._pod_events.start()
        self._sweep.start()

    def add_node(self, node: NodeConfig) -> None:
        """Begin to connect to one more node."""
        last_agent = None
        if self._crashed is not None and node.name not in self._adopted:
            self._adopted.add(node.name)
            last_agent = self._crashed.agent_of(node.name)
        link = NodeLink(
            node, self._transport(_transport_of(node)), self.hub,
            self.staging.send_now, _snapshot_period_ms(self.config), last_agent,
            gpu_clock=self.config.clock.enabled and self.config.clock.gpu_clock, liveness_timer=self._liveness_timer,
            via=self._gateway_of(node), jobs_only=self._jobs_only, tick_offset_s=tick_offset_s(len(self.links)),
        )  # fmt: skip
        self.links[node.name] = link
        link.start()

    async def remove_node(self, node: str) -> None:
        """Disconnect a node and publish its removal."""
        await self.links.pop(node).stop()
        self.hub.publish_own(NodeState(node=node, state="removed"))

    async def reconnect(self, node: str) -> None:
        """Reconnect to a node now; dismissed prompts are allowed again."""
        link = self.links[node]
        for transport in self._transports.values():
            transport.forget_refused_prompts()
        link.reconnect()

    async def add_nodes(self, names: str) -> Sequence[str]:
        """Add nodes by name or range; the names added."""
        new = [node for node in more_nodes(self.config, names) if node.name not in self.links]
        for node in new:
            self.add_node(node)
        return [node.name for node in new]

    async def apply(self, config: Config) -> Changes:
        """Apply a newer configuration; the changes."""
        changes = difference(self.config, config)
        period_ms = _snapshot_period_ms(config)
        is_watch_changed = config.watch != self.config.watch
        is_period_changed = period_ms != _snapshot_period_ms(self.config)
        self.config = config
        self._clocks.follow(config.clock)
        self._digests.follow(config)
        for follow in self.followers:
            follow(config)
        removed = [name for name in changes.removed if name in self.links]
        restarted = [node for node in changes.changed if node.name in self.links]  # without nodes the user removed
        await asyncio.gather(*(self.remove_node(name) for name in removed))
        await asyncio.gather(*(self.links.pop(node.name).stop() for node in restarted))
        for node in (*changes.added, *restarted):
            if node.name not in self.links:  # the user may have added it before
                self.add_node(node)
        if is_watch_changed:
            for link in self.links.values():
                link.follow_watch(config.watch)
        if is_period_changed:
            for link in self.links.values():
                link.read_clocks_every(period_ms)
        run_command.raise_limit(len(self.links))
        return changes

    def may_have_agents(self, left: CrashedRecording) -> bool:
        """Whether an agent of a crashed console may still be lingering."""
        away_s = (time.time_ns() - left.broke_off) / 1e9
        return any(
            link.node.agent.linger_s + link.node.agent.orphan_s > away_s and left.agent_of(name) is not None
            for name, link in self.links.items()
            if link.node.agent.linger_s > 0
        )

    async def adopt_agents(self, left: CrashedRecording) -> None:
        """Take over the identity and agents of a crashed console."""
        nodes = [link.node for link in self.links.values() if link.node.agent.linger_s > 0]
        self._crashed, self._adopted = left, set()
        self.hub.adopt_identity(left.console_id, left.seq)
        await asyncio.gather(*(self.links.pop(node.name).stop() for node in nodes))
        for node in nodes:
            self.add_node(node)

    async def examine(self, nodes: Sequence[str]) -> Sequence[NodeReply]:
        """Request the doctor's checks from nodes."""
        links = [self.links[name] for name in nodes if name in self.links]
        return await asyncio.gather(*(request_reply(link, "doctor", {}, DOCTOR_S) for link in links))

    async def mark(self, text: str) -> None:
        """Publish a user's mark."""
        self.hub.publish_own(Mark(text=text))

    def refusal(self, change: Change) -> ReadOnly | None:
        """Why a change is not permitted, or None."""
        return refusal(self._console, change, explicit=self._allow_run)

    async def capture(self, request: CaptureRequest) -> CaptureResult:
        """Capture on all nodes; failures of connected nodes are also published as warnings."""
        if request.flight_pipe:
            self._permit(Change.FLIGHT_PIPE)
        self._clocks.want_window("capture")  # for the best clock alignment
        who = f"capture {request.id}"
        self.want(who, Want(None, DIGESTED, EVERY_SAMPLE))  # verdicts compare GPUs at one instant
        try:
            result = await capture.capture(self.links.values(), self.staging, request, self.config.hang)
        finally:
            self.want(who)
        for node, failure in result.failures.items():
            if node in self.links and self.links[node].state != "ok":
                continue  # its state is an event already, and captures repeat while a job stands still
            text = f"capture failed on {node}: {failure.text}"
            self.hub.publish_own(Log(node=node, source="console", severity="warning", text=text, try_=failure.try_))
        return result

    async def profile(self, blocks: int) -> Sequence[NodeReply]:
        """Sample the stacks of all ranks, on all nodes that have py-spy."""
        links = list(self.links.values())
        await asyncio.gather(*(link.wait_for_sample() for link in links), return_exceptions=True)
        await asyncio.gather(*(self.staging.settle(link, capture.STAGING_S) for link in links))
        deadline_s = blocks * PROFILE_BLOCK_S + PROFILE_GRACE_S
        return await asyncio.gather(*(request_reply(link, "profile", {"blocks": blocks}, deadline_s) for link in links))

    def want(self, who: str, *wants: Want) -> None:
        """Replace what a requester wants of nodes; digests may come of anything else."""
        self._digests.wants.put(who, wants)

    def measure_traffic(self, ranks: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Have nodes send the traffic of these ranks, (pid, start_ticks) by node, and of no others."""
        for name, link in self.links.items():
            link.measure_traffic(ranks.get(name, ()))

    def in_background(self, is_hidden: bool) -> None:
        """Whether the screen shows another cluster."""
        self._digests.in_background(is_hidden)
        self._clocks.in_background(is_hidden)

    def request_clock_probes(self, who: str, wanted: bool) -> None:
        """Request or release continuous clock probes."""
        self._clocks.want(who, wanted)

    async def probe_job(self, nodes: Sequence[str], request: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
        """Check whether nodes are ready for a job."""
        return await job_requests.probe(self.links, nodes, request)

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        """Copy a folder to nodes. Raises ReadOnly."""
        self._permit(Change.START_JOB)  # precedes a job start
        return await folder_sync.sync(self.links, nodes, folder, workdir)

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        """Start a job on nodes; failures by node. Raises ReadOnly."""
        self._permit(Change.START_JOB)
        now = time.time_ns()  # the plan may have waited for a confirmation, which is no runtime
        orders = {node: msgspec.structs.replace(order, created=now) for node, order in orders.items()}
        return await job_requests.start(self.links, orders)

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        """Stop a job on nodes. Raises ReadOnly."""
        self._permit(Change.STOP_JOB)
        return await job_requests.stop(self.links, job, nodes, grace_s)

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        """Fetch or follow a job's output."""
        return await job_requests.follow(self.links, job, nodes, tail, follow)

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        """Start or stop watching a job's output."""
        return await job_requests.watch(self.links, job, nodes, wanted)

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """List a folder of a job."""
        return await job_requests.list_files(self.links, job, node, path)

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        """Read a file of a job from `offset`; (data, whether it is the end)."""
        return await job_requests.read_file(self.links, job, node, path, offset)

    async def stop(self) -> None:
        """Disconnect from every node. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self._sweep.close()
        await self._pod_events.stop()
        await self._digests.stop()
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
            elif kind == "pod":
                self._transports[kind] = PodTransport(self._login_limiter)
            elif kind == "step":
                self._transports[kind] = self._step_transport()
            elif kind == "gateway":
                self._transports[kind] = self._gateway_transport()
            elif kind == "openssh":
                self._transports[kind] = OpensshTransport(self._login_limiter)
            else:
                from ..transport.ssh import AsyncsshTransport  # lazy: imports asyncssh, 0.1 s of CPU

                self._transports[kind] = AsyncsshTransport(self._login_limiter, self._prompt_user)
        return self._transports[kind]

    def _gateway_transport(self) -> GatewayTransport:
        return GatewayTransport(
            self._login_limiter, lambda host: self._transport(host.ssh.transport),
            lambda host: GatewayLaunch(host, self.config.agent, self.hub.console_id, self._report_kept),
            gateway_share, self._report_gateway,
        )  # fmt: skip

    def _step_transport(self) -> StepTransport:
        return StepTransport(
            self._login_limiter, lambda node: StepLaunch(node, self.config.agent, self.hub.console_id), gateway_share,
            self._report_gateway,
        )  # fmt: skip

    def _gateway_of(self, node: NodeConfig) -> Callable[[], str]:
        """Returns the gateway through which a node is reached, "" for none."""
        transport = self._transport(_transport_of(node))
        return (lambda: transport.via(node)) if isinstance(transport, GatewayTransport) else (lambda: "")

    def _report_gateway(self, gateway: str, error: FleetError | None) -> None:
        """Publish once that a gateway is lost, or there again: not for each of its nodes."""
        text = error.text if error is not None else f"{gateway}: connected again"
        self.hub.publish_own(Log(
            source="console", fault="gateway_lost", subject=gateway, is_over=error is None, text=text,
            severity="warning" if error is not None else "info", try_=error.try_ if error is not None else "",
        ))  # fmt: skip

    def _report_kept(self, gateway: str, kept: Kept) -> None:
        """Publish what a gateway has kept while no console was connected."""
        text = kept_text(gateway, kept)
        is_bad = bool(kept.error or kept.killed)
        self.hub.publish_own(Log(source="console", severity="warning" if is_bad else "info", text=text))

    def _sampled_links(self) -> dict[str, NodeLink]:
        """Links that can take part in clock probes: connected and past their first tick."""
        return {name: link for name, link in self.links.items() if link.state == "ok" and link.has_sampled}

    def _watch(self, records: Sequence[Published]) -> None:
        """Offer py-spy and order digests after an agent's first full tick; collect garbage after a loss."""
        for record in records:
            if isinstance(record, NodeState):
                if record.state != "ok":
                    self._digests.forget(record.node)
                if record.retry_at is not None:
                    self._sweep.soon()
            elif isinstance(record, GpuInfo):
                self._digests.add_info(record)
            elif isinstance(record, Rank):
                self._digests.add_rank(record)
            elif isinstance(record, AgentCost):
                link = self.links.get(record.node)
                if link:
                    if not link.has_sampled:
                        self._digests.soon()
                    link.mark_sampled(record.sample_interval_ms / 1e3)
                    if self._sends_py_spy:
                        self.staging.stage_py_spy(link)


def _no_digests(config: Config) -> DigestRules:
    return DigestRules(lambda infos: {}, (), 0.0)


def gateways_of(config: Config) -> Config | None:
    """The configuration with the gateways of its nodes as nodes, reached directly; None without one."""
    names = {node.name for node in config.nodes}
    hosts = {host.name: host for node in config.nodes for host in gateway_hosts(node) if host.name not in names}
    nodes = tuple(msgspec.structs.replace(host, agent=config.agent) for host in hosts.values())
    return msgspec.structs.replace(config, nodes=nodes) if nodes else None


def _build_payload() -> None:
    with contextlib.suppress(Exception):  # raised again where a link uses the payload
        agent_payload.build()


def _transport_of(node: NodeConfig) -> str:
    if node.engine is not None:
        return "pod" if isinstance(node.engine, PodExec) else "step"
    return "gateway" if node.ssh.gateway is not None else node.ssh.transport


def _snapshot_period_ms(config: Config) -> int:
    """Milliseconds between two clock snapshots of a node; 0: none."""
    return config.clock.snapshot_period_ms if config.clock.enabled else 0
