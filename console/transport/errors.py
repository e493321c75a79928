"""Connection errors: one type per cause, each with a stable name and what to try.

Code matches on the type; users read `text` and `try_`; reports carry `name`.
"""

from __future__ import annotations

from typing import ClassVar


class FleetError(Exception):
    """A node or the path to it failed. `retry`: whether automatic reconnects make sense.

    `was_away`: the node did not respond at all, so reconnect as soon as it does, without back-off.
    """

    name: ClassVar[str] = "error"
    retry: ClassVar[bool] = True

    def __init__(self, text: str, try_: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.try_ = try_
        self.was_away = False


class Dns(FleetError):
    """The host name does not resolve."""

    name = "dns"


class ConnectionRefused(FleetError):
    """The host refused the connection or is unreachable."""

    name = "refused"


class Timeout(FleetError):
    """No response within the time limit."""

    name = "timeout"


class Throttled(FleetError):
    """The server closed the connection before its banner: MaxStartups or PerSourcePenalties."""

    name = "throttled"


class HostKeyUnknown(FleetError):
    """The host key is not in known_hosts."""

    name = "host_key_unknown"
    retry = False


class HostKeyChanged(FleetError):
    """The host key differs from known_hosts, is revoked, or its certificate is not trusted."""

    name = "host_key_changed"
    retry = False


class Auth(FleetError):
    """Authentication failed."""

    name = "auth"
    retry = False


class AuthInteractive(FleetError):
    """Authentication needs typed input that is not available."""

    name = "auth_interactive"
    retry = False


class NoPython(FleetError):
    """The node has no usable Python interpreter."""

    name = "no_python"
    retry = False


class PythonTooOld(FleetError):
    """The node's Python is older than the agent supports."""

    name = "python_too_old"
    retry = False


class BundleRejected(FleetError):
    """The agent's code arrived damaged."""

    name = "bundle_rejected"


class AgentCrashed(FleetError):
    """The agent exited unexpectedly, stopped sampling or violated the protocol."""

    name = "agent_crashed"


class NoPermission(FleetError):
    """Permission denied by sudo or the site's scheduler."""

    name = "no_permission"
    retry = False


class Lost(FleetError):
    """An established connection was lost."""

    name = "lost"


class ConsoleLate(FleetError):
    """An agent ended because it received nothing from a console that was late; the node itself may be well."""

    name = "console_late"


class GatewayLost(FleetError):
    """The connection to the gateway of a node was lost; the node itself may be well."""

    name = "gateway_lost"


class SshConfigInvalid(FleetError):
    """Invalid ssh configuration, the user's or in hosts.toml."""

    name = "ssh_config"
    retry = False


class SiteCommand(FleetError):
    """The site's command that reaches the node (srun, kubectl) is not available here."""

    name = "site_command"
    retry = False


class JobEnded(FleetError):
    """The job or pod through which the node is reached has ended or no longer includes it."""

    name = "job_ended"
    retry = False


class NodeNotInJob(JobEnded):
    """A node of a step does not belong to the job, or is down."""


class TaskNotLaunched(ConnectionRefused):
    """slurmd on one node of a step does not respond; the step does not start."""


class AgentRefused(FleetError):
    """The agent refused a request; `reason` is its stable error name."""

    name = "agent_refused"

    def __init__(self, reason: str, text: str, try_: str = "") -> None:
        super().__init__(f"{reason}: {text}", try_)
        self.reason = reason


class NoDescriptors(FleetError):
    """The console has no free file descriptors."""

    name = "no_descriptors"


class Internal(FleetError):
    """A bug in the console; shown at the affected node."""

    name = "internal"
