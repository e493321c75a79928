"""Start of the tasks of a step: the agent's bundle with another verb, whose bytes all tasks receive."""

from __future__ import annotations

import logging

import msgspec

from ...config.model import NodeConfig
from ...config.sections import AgentConfig
from ...transport import errors
from ..agent_connection import LastWords, explain
from ..wire import MalformedFrame, read_hello, read_node, split_greeting
from . import agent_payload

_log = logging.getLogger(__name__)


class StepLaunch:
    """What starts the tasks; they have the agent's settings, without GPUs, rights and lingering."""

    def __init__(self, node: NodeConfig, agent: AgentConfig, console_id: str) -> None:
        """`node`: one of those that the step reaches, for its Python; `agent`: the settings of all nodes."""
        self._agent = msgspec.structs.replace(agent, run_as="self", linger_s=0, python=node.agent.python)
        self.command = agent_payload.command(self._agent.python)
        host = msgspec.structs.replace(node, agent=self._agent)
        start = {**agent_payload.start(host, console_id, "", 0), "verb": "step"}
        self.first = agent_payload.step_preamble() + msgspec.json.encode({"start": start}) + b"\n"

    def greeting(self) -> TaskGreeting:
        """The greeting of one more task."""
        return TaskGreeting(self._agent)


class TaskGreeting:
    """The start of one task."""

    def __init__(self, agent: AgentConfig) -> None:
        self._agent = agent
        self._words = LastWords()

    def read(self, line: bytes) -> str | None:
        """The name of the node once the line is the hello. Raises FleetError."""
        noise, greeting = split_greeting(line)
        self._words.add_noise(noise)
        if not greeting:
            return None
        try:
            hello, node = read_hello(greeting), read_node(greeting)
        except MalformedFrame as error:
            raise errors.AgentCrashed(str(error), "use one version on both sides") from error
        _log.info("task of a step on %s: %s, %s", node, hello.agent, hello.arch)
        return node

    def add_error(self, data: bytes) -> None:
        """Keep standard error for the failure."""
        self._words.add_error(data)

    def failure(self, exit_status: int | None) -> errors.FleetError:
        """Why the program ended before its hello."""
        return explain(exit_status, None, self._words, self._agent, greeted=False)
