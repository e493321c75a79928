"""Why a node cannot be had: one type a reason, each with a short stable name and a thing to try.

Code matches on the type; people read `text` and `try_`; reports carry `name`.
"""

from __future__ import annotations

from typing import ClassVar

from ..records import Failure


class FleetError(Exception):
    """A node, or a way to it, failed. `retry` says whether trying again by itself makes sense.

    `was_away`: nothing at all answered there, or on that connection. So if something does now, trying again need not
    wait.
    """

    name: ClassVar[str] = "error"
    retry: ClassVar[bool] = True

    def __init__(self, text: str, try_: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.try_ = try_
        self.was_away = False

    def as_failure(self) -> Failure:
        return Failure(self.name, self.text, self.try_)


class Dns(FleetError):
    name = "dns"


class ConnectionRefused(FleetError):
    name = "refused"


class Timeout(FleetError):
    name = "timeout"


class Throttled(FleetError):
    """The server closed the connection before it said who it is: MaxStartups or PerSourcePenalties."""

    name = "throttled"


class HostKeyUnknown(FleetError):
    name = "host_key_unknown"
    retry = False


class HostKeyChanged(FleetError):
    name = "host_key_changed"
    retry = False


class Auth(FleetError):
    name = "auth"
    retry = False


class AuthInteractive(FleetError):
    """Somebody would have to type something, and nobody is there."""

    name = "auth_interactive"
    retry = False


class NoPython(FleetError):
    name = "no_python"
    retry = False


class PythonTooOld(FleetError):
    name = "python_too_old"
    retry = False


class BundleRejected(FleetError):
    name = "bundle_rejected"


class AgentCrashed(FleetError):
    name = "agent_crashed"


class NoPermission(FleetError):
    name = "no_permission"
    retry = False


class Lost(FleetError):
    """The connection was there and is gone."""

    name = "lost"


class SshConfigInvalid(FleetError):
    """The user's ssh configuration, or a setting of ours for it, does not work."""

    name = "ssh_config"
    retry = False


class SiteCommand(FleetError):
    """The site's own command that leads to the node cannot be run here."""

    name = "site_command"
    retry = False


class JobEnded(FleetError):
    """The site's job or pod through which a node is reached is gone, or has that node no more."""

    name = "job_ended"
    retry = False


class AgentRefused(FleetError):
    """The agent could not do what it was asked; its own stable word for why is `reason`."""

    name = "agent_refused"

    def __init__(self, reason: str, text: str, try_: str = "") -> None:
        super().__init__(f"{reason}: {text}", try_)
        self.reason = reason


class NoDescriptors(FleetError):
    """The console's own process may open nothing more."""

    name = "no_descriptors"


class Internal(FleetError):
    """A fault of the console's own; shown at the node where it happened."""

    name = "internal"
