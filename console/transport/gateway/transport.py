"""The transport through gateways: chooses one per node, opens its connection once, and runs the inner command there."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from ...config.model import NodeConfig
from ...config.nodeset import NodeAddress, expand
from ...config.sections import SshConfig
from .. import errors, openssh, site_exec
from ..login_limiter import LoginLimiter
from ..openssh import LoginReceiver
from ..transport import Channel, Receiver, Transport
from .connection import GatewayConnection, GatewayQuota, Launch
from .shared import OnEnd, Report, SharedConnection

_log = logging.getLogger(__name__)

Gateway = SharedConnection[GatewayConnection]


class GatewayTransport:
    """Reaches nodes through the gateways of their `[ssh] gateway`; several share their nodes."""

    def __init__(
        self, limiter: LoginLimiter, outer: Callable[[NodeConfig], Transport],
        launch: Callable[[NodeConfig], Launch], share: Callable[[], GatewayQuota], report: Report,
    ) -> None:  # fmt: skip
        """`outer`: the transport that reaches a gateway; `launch` starts the program there; `share`: its quota."""
        self._limiter, self._outer, self._launch, self._share, self._report = limiter, outer, launch, share, report
        self._gateways: dict[tuple[str, SshConfig], Gateway] = {}
        self._chosen: dict[str, Gateway] = {}  # by node

    async def open(self, node: NodeConfig, command: str, receiver: Receiver) -> Channel:
        """Run the command on a node, from a gateway. Raises FleetError."""
        gateways = [self._gateway(config) for config in gateway_hosts(node)]
        gateway, connection = await self._connect(node, gateways)
        argv = inner_argv(node, command)
        _log.debug("%s: through %s: %s", node.name, gateway.name, " ".join(argv[:-1]))
        limited = self._limiter.enter()
        await limited.__aenter__()
        by_hand = f"ssh {gateway.name} {shlex.join(inner_words(node))} true"

        def explain(exit_status: int | None, stderr: str) -> errors.FleetError | None:
            failure = _inner_failure(argv, exit_status, stderr)
            if failure is None:
                return None
            return type(failure)(
                f"via {gateway.name}: {failure.text}", f"on {gateway.name}: {failure.try_}; by hand: {by_hand}"
            )

        login = LoginReceiver(_Explained(receiver, gateway.name, by_hand), limited, explain)
        if not connection.is_open:  # lost while this waited for its turn
            await limited.__aexit__(None, None, None)
            raise gateway.failure or errors.GatewayLost(f"gateway {gateway.name}: connection closed")
        return connection.open_stream(argv, login, keeps=node.name if node.ssh.record_on else "")

    async def _connect(self, node: NodeConfig, gateways: list[Gateway]) -> tuple[Gateway, GatewayConnection]:
        """The node's gateway, or another one that can be reached. Raises the FleetError of the last one."""
        failure: errors.FleetError = errors.GatewayLost("no gateway")
        for _ in gateways:
            gateway = self._choose(node.name, gateways)
            if gateway.failure is not None:  # as all others: a retry is under way, or it is final
                raise gateway.failure
            try:
                return gateway, await gateway.connection()
            except errors.FleetError as error:
                failure = error
        raise failure

    def _choose(self, node: str, gateways: list[Gateway]) -> Gateway:
        """The gateway of a node: the same as before while it is there, else the one with the fewest nodes."""
        before = self._chosen.get(node)
        if before in gateways and before is not None and before.failure is None:
            return before
        self._chosen.pop(node, None)
        usable = [gateway for gateway in gateways if gateway.failure is None] or gateways
        counts = dict.fromkeys(usable, 0)
        for gateway in self._chosen.values():
            if gateway in counts:
                counts[gateway] += 1
        chosen = self._chosen[node] = min(usable, key=counts.__getitem__)
        return chosen

    def via(self, node: NodeConfig) -> str:
        """Name of the gateway through which a node is reached; "" before the first attempt."""
        chosen = self._chosen.get(node.name)
        return chosen.name if chosen is not None else ""

    def _gateway(self, config: NodeConfig) -> Gateway:
        key = (config.name, config.ssh)
        if key not in self._gateways:
            self._gateways[key] = SharedConnection(
                config.name, f"gateway {config.name}", lambda on_end: self._start(config, on_end), self._report
            )
        return self._gateways[key]

    async def _start(self, host: NodeConfig, on_end: OnEnd) -> GatewayConnection:
        """Open the connection to a gateway and start its program. Raises FleetError."""
        launch = self._launch(host)
        connection = GatewayConnection(host.name, launch, self._share(), on_end)
        channel = await self._outer(host).open(host, launch.command, connection)
        await connection.start(channel)
        return connection

    async def answers(self, node: NodeConfig) -> bool | None:
        """Whether a gateway of the node is there; whether the node answers, only the gateway could find out."""
        return any(self._gateway(config).failure is None for config in gateway_hosts(node))

    def forget_refused_prompts(self) -> None:
        """Try gateways with a final failure again."""
        for gateway in self._gateways.values():
            gateway.forget_final_failure()

    async def close(self) -> None:
        """Close the connections to the gateways."""
        await asyncio.gather(*(gateway.close() for gateway in self._gateways.values()))


class _Explained:
    """Passes on to another receiver, and names the gateway in a failure to start the inner command."""

    def __init__(self, receiver: Receiver, gateway: str, by_hand: str) -> None:
        self._receiver, self._gateway, self._by_hand = receiver, gateway, by_hand
        self.on_bytes, self.on_error_bytes = receiver.on_bytes, receiver.on_error_bytes

    def on_end(self, exit_status: int | None, error: Exception | None) -> None:
        if isinstance(error, errors.SiteCommand) and not error.try_:
            error = errors.SiteCommand(
                f"via {self._gateway}: {error.text}", f"run {self._by_hand}, or set gateway_command"
            )
        self._receiver.on_end(exit_status, error)


def gateway_hosts(node: NodeConfig) -> tuple[NodeConfig, ...]:
    """How each gateway of a node is itself reached; () for a node without one."""
    if node.ssh.gateway is None or node.engine is not None:
        return ()
    return tuple(_gateway_host(node, address) for address in expand(node.ssh.gateway))


def _gateway_host(node: NodeConfig, address: NodeAddress) -> NodeConfig:
    """`[ssh]` applies to it, but for the port, which is that of the nodes; its agent's settings are the defaults."""
    ssh = msgspec.structs.replace(
        node.ssh, gateway=None, gateway_command="", user=address.user or node.ssh.user, port=address.port
    )
    return NodeConfig(name=address.name, ssh=ssh)


def inner_words(node: NodeConfig) -> list[str]:
    """`gateway_command` as words, with the node's name or address in it; no shell reads them."""
    words = shlex.split(node.ssh.gateway_command)
    return [word.replace("{node}", node.address or node.host) for word in words]


def inner_argv(node: NodeConfig, command: str) -> list[str]:
    """The command line on the gateway that runs shell text on a node."""
    program, *rest = inner_words(node)
    kind = PurePosixPath(program).name
    if kind == "srun":
        return [program, *rest, "/bin/sh", "-c", command]
    return [program, *(_ssh_options(node) if kind == "ssh" else []), *rest, command]


def _ssh_options(node: NodeConfig) -> list[str]:
    """Options before the user's own: OpenSSH takes the first value of each."""
    ssh = node.ssh
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(ssh.connect_timeout_s))),
        "StrictHostKeyChecking": "accept-new" if ssh.host_key_policy == "accept-new" else "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "ControlMaster": "no",  # a master of its own would outlive the gateway
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        "User": ssh.user,
        "Port": str(ssh.port) if ssh.port else None,
    }
    return ["-T", "-x", *(word for key, value in options.items() if value for word in ("-o", f"{key}={value}"))]


def _inner_failure(argv: list[str], exit_status: int | None, stderr: str) -> errors.FleetError | None:
    """The failure of the inner command itself, or None if the agent ended."""
    if PurePosixPath(argv[0]).name == "srun":
        return site_exec.failure_of(exit_status, stderr)
    return openssh.failure_of(exit_status, stderr)
