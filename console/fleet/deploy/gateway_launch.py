"""Start of the gateway: the agent's bundle with another verb, on a host from which the nodes are reached."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ...config.model import NodeConfig
from ...config.sections import AgentConfig
from ...text.format import date_time, plural, size
from ...text.sanitize import printable
from ...transport import errors
from .. import quotas
from ..agent_connection import LastWords, explain
from ..wire import Kept, MalformedFrame, read_hello, read_lacking, split_greeting
from . import agent_payload

_log = logging.getLogger(__name__)

#: Share of the event loop for decoding what one gateway sends, and burst in seconds: the nodes behind it have theirs.
GATEWAY_SHARE: Final = 0.3
GATEWAY_BURST_S: Final = 0.5


def kept_text(gateway: str, kept: Kept) -> str:
    """What a gateway says that it has kept."""
    if kept.error:
        return f"{gateway}: keeps nothing while no console is connected: {printable(kept.error)}"
    killed = "; its program was killed: what came later was not written" if kept.killed else ""
    what = f"{size(kept.bytes)} of {plural(kept.nodes, 'node')}"
    return f"{gateway}: {what} were kept without a console, until {date_time(kept.until * 10**9)}{killed}"


def _keep(host: NodeConfig) -> dict[str, Any]:
    """How long and how much a gateway keeps; `key` tells the connections of one console to one host apart."""
    same = msgspec.structs.replace(host.ssh, record_for_s=10.0, record_mib=16)
    key = hashlib.sha256(msgspec.json.encode([host.name, same])).hexdigest()[:12]
    return {"key": key, "for_s": host.ssh.record_for_s, "bytes": host.ssh.record_mib << 20}


def gateway_share() -> quotas.TokenBucket:
    """Event-loop seconds that the decoding of one gateway may use."""
    return quotas.TokenBucket(GATEWAY_SHARE, GATEWAY_BURST_S)


class GatewayLaunch:
    """What starts the gateway on its host; it has the agent's settings, without GPUs, rights and lingering."""

    def __init__(
        self, host: NodeConfig, agent: AgentConfig, console_id: str, on_kept: Callable[[str, Kept], None]
    ) -> None:
        """`agent`: the settings of all nodes; what one node has of its own does not hold for a gateway.

        `on_kept` is called with the gateway's name and what it has kept without a console.
        """
        self._name, self._on_kept = host.name, on_kept
        self._payload = agent_payload.build()
        self._is_sent = False  # the archive
        self._words = LastWords()
        self._agent = msgspec.structs.replace(agent, run_as="self", linger_s=0)
        self.command = agent_payload.command(self._agent.python)
        host = msgspec.structs.replace(host, agent=self._agent)
        start = {**agent_payload.start(host, console_id, "", 0), "verb": "gateway"}
        if host.ssh.record_on:
            start["keep"] = _keep(host)
        self.first = self._payload.preamble + msgspec.json.encode({"start": start}) + b"\n"

    def reply(self, line: bytes) -> bytes | None:
        """What to send after a line, as the agent's modules; None if it was the hello. Raises FleetError."""
        noise, greeting = split_greeting(line)
        self._words.add_noise(noise)
        if not greeting:
            return b""
        try:
            lacking = read_lacking(greeting)
            if lacking is None:
                hello = read_hello(greeting)
                _log.info("gateway %s, %s", hello.agent, hello.arch)
                if hello.kept is not None:
                    self._on_kept(self._name, hello.kept)
                return None
        except MalformedFrame as error:
            raise errors.AgentCrashed(str(error), "use one version on both sides") from error
        if self._is_sent or lacking != self._payload.archive_digest:
            raise errors.AgentCrashed(f"unexpected request for the agent's modules {printable(lacking[:12])}")
        self._is_sent = True
        return self._payload.archive

    def add_error(self, data: bytes) -> None:
        """Keep standard error for the failure."""
        self._words.add_error(data)

    def failure(self, exit_status: int | None, error: Exception | None) -> errors.FleetError:
        """Why the program ended before its hello."""
        return explain(exit_status, error, self._words, self._agent, greeted=False)
