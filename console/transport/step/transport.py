"""The transport by steps of a Slurm job: one srun for all nodes that ask at about the same time.

A node whose task has ended, or is silent, gets a step of its own: a step takes no more tasks. The others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...config.model import NodeConfig, SlurmStep
from .. import errors, site_exec
from ..gateway.connection import GatewayQuota
from ..gateway.shared import OnEnd, Report, SharedConnection
from ..login_limiter import LoginLimiter
from ..openssh import LoginReceiver, start_limited
from ..transport import Channel, Receiver
from .connection import StepConnection, TaskLaunch

#: Seconds in which nodes ask for one step: all nodes of a job ask at once.
GATHER_S = 0.3
#: Nodes of one step: what is for one of them is sent to all.
MAX_NODES = 256


class Step:
    """A step and its connection; `nodes` are those that it reaches, also once it is started again."""

    def __init__(self, job: str, name: str, launch: TaskLaunch, nodes: list[str]) -> None:
        self.job, self.name, self.launch, self.nodes = job, name, launch, nodes
        self.is_gathering = True
        self.is_lost = False  # by the last report


class StepTransport:
    """Reaches the nodes of Slurm jobs."""

    def __init__(
        self, limiter: LoginLimiter, launch: Callable[[NodeConfig], TaskLaunch], share: Callable[[], GatewayQuota],
        report: Report,
    ) -> None:  # fmt: skip
        """`launch` starts the program in the tasks; nodes with the same command share steps. `share`: a quota."""
        self._limiter, self._launch, self._share, self._report = limiter, launch, share, report
        self._step_of: dict[str, Step] = {}  # by node
        self._connections: dict[Step, SharedConnection[StepConnection]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Run the command on a node of a job. Raises FleetError."""
        connection = await self._connect(node)
        limited = self._limiter.enter()
        await limited.__aenter__()
        login = LoginReceiver(receiver, limited, lambda exit_status, stderr: None)
        try:
            return await connection.open_stream(node.name, ["/bin/sh", "-c", command], login)
        except BaseException:
            await limited.__aexit__(None, None, None)
            raise

    async def _connect(self, node: NodeConfig) -> StepConnection:
        """The connection of the node's step. Raises FleetError."""
        while True:
            step = self._choose(node)
            shared = self._connections[step]
            if shared.failure is not None:  # it is being started again, or it never works
                raise shared.failure
            try:
                connection = await shared.connection()
            except errors.FleetError:
                if self._step_of[node.name] is step:
                    raise
            else:
                if self._step_of[node.name] is step:
                    return connection

    def _choose(self, node: NodeConfig) -> Step:
        """The step that reaches a node: the one of before, unless the node's task there has ended."""
        assert isinstance(node.engine, SlurmStep)
        step = self._step_of.get(node.name)
        if step is not None:
            current = self._connections[step].current
            if current is None or not current.is_gone(node.name):
                return step
            self._leave(step, node.name)
        launch = self._launch(node)
        for step in self._connections:
            is_alike = (step.job, step.launch.command) == (node.engine.job, launch.command)
            if is_alike and step.is_gathering and len(step.nodes) < MAX_NODES:
                step.nodes.append(node.name)
                self._step_of[node.name] = step
                return step
        return self._add(node.engine.job, launch, [node.name])

    def _leave(self, step: Step, node: str) -> None:
        """Take a node from a step, which ends if it has no other one."""
        step.nodes.remove(node)
        if not step.nodes:
            closing = asyncio.create_task(self._connections.pop(step).close(), name=f"end of {step.name}")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _add(self, job: str, launch: TaskLaunch, nodes: list[str]) -> Step:
        is_first = not any(step.job == job for step in self._connections)
        step = Step(job, f"slurm:{job}" if is_first else f"slurm:{job} {nodes[0]}", launch, nodes)
        self._connections[step] = SharedConnection(
            step.name, f"step of {step.name}", lambda on_end: self._start(step, on_end),
            lambda name, error: self._report_step(step, error),
        )  # fmt: skip
        self._step_of.update(dict.fromkeys(nodes, step))
        return step

    def _report_step(self, step: Step, error: errors.FleetError | None) -> None:
        """Report the loss of a step, or its return; that of a single node is the node's own failure."""
        is_loss = error is not None and len(step.nodes) > 1
        if is_loss or (error is None and step.is_lost):
            step.is_lost = is_loss
            self._report(step.name, error)

    async def _start(self, step: Step, on_end: OnEnd) -> StepConnection:
        """Start a step. Raises FleetError."""
        if step.is_gathering:
            await asyncio.sleep(GATHER_S)
            step.is_gathering = False
        while True:
            try:
                return await self._run(step, on_end)
            except (errors.NodeNotInJob, errors.TaskNotLaunched) as error:
                if len(step.nodes) == 1:
                    raise
                self._split(step, error)

    def _split(self, step: Step, error: errors.FleetError) -> None:
        """Give the node that prevents a step, or the half of the nodes in which it may be, a step of its own."""
        named = site_exec.node_of(error) if isinstance(error, errors.TaskNotLaunched) else ""
        others = [named] if named in step.nodes else step.nodes[len(step.nodes) // 2 :]
        step.nodes = [node for node in step.nodes if node not in others]
        self._add(step.job, step.launch, others).is_gathering = False

    async def _run(self, step: Step, on_end: OnEnd) -> StepConnection:
        connection = StepConnection(step.name, step.nodes, step.launch, self._share(), on_end)
        argv = site_exec.step_argv(step.job, step.nodes, step.launch.command)
        try:
            channel = await start_limited(self._limiter, None, argv, connection, lambda status, words: None)
        except FileNotFoundError as error:
            raise site_exec.not_installed(argv[0]) from error
        await connection.start(channel)
        return connection

    async def answers(self, node: NodeConfig) -> bool | None:
        """Whether the node's step is there, or will never be; whether the node answers, only Slurm could find out."""
        step = self._step_of.get(node.name)
        failure = self._connections[step].failure if step is not None else None
        return failure is None or not failure.retry

    def forget_refused_prompts(self) -> None:
        """Try steps with a final failure again."""
        for shared in self._connections.values():
            shared.forget_final_failure()

    async def close(self) -> None:
        """End all steps."""
        await asyncio.gather(*(shared.close() for shared in self._connections.values()), *self._closing)
