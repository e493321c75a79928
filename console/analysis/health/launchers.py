"""Launchers that start no rank: their job waits for other nodes before it begins, and has no rank to be judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ... import records
from ...config.sections import HealthConfig
from ...text.format import seconds
from ..finding import FindingDraft
from .rank_lives import SECOND_NS, TICKS_S
from .state import HealthState

#: Seconds that a launcher may need before it starts a rank: to import torch from a slow file system, and for the other
#: nodes of its job, which start one by one.
LEAST_S: Final = 60.0
#: Options of torchrun and accelerate, as they are compared: without dashes at the front, with `-` for `_`.
_ENDPOINTS: Final = ("rdzv-endpoint", "master-addr", "main-process-ip")
_PORTS: Final = ("master-port", "main-process-port")
_NODES: Final = ("nnodes", "num-machines")


def launcher_waits(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Launchers that have run for a minute or longer without a process below them."""
    for name, node in facts.nodes.items():
        waiting = [(process, _age_s(process, facts.newest)) for process in node.waiting_launchers.values()]
        waiting = [(process, age_s) for process, age_s in waiting if age_s >= LEAST_S]
        if not waiting:
            continue
        process, age_s = max(waiting, key=lambda entry: entry[1])
        more = f" ({len(waiting) - 1} more on this node)" if len(waiting) > 1 else ""
        text = (
            f"{name}: the launcher with pid {process.pid} has run for {seconds(age_s)} and has started no process"
            f"{_awaited((process.cmdline or '').split())}{more}"
        )
        evidence = tuple(f"process.has_children {name} pid {process.pid} false" for process, _ in waiting[:4])
        yield FindingDraft("launcher_waits", "warning", "likely", (name,), text, evidence)


def _age_s(process: records.Process, now: int) -> float:
    """Seconds since its start, from the node's monotonic clock."""
    return (process.mono + max(0, now - process.rx) - process.start_ticks * SECOND_NS // TICKS_S) / SECOND_NS


def _awaited(words: Sequence[str]) -> str:
    """What it waits for by its arguments: `: its job needs 2 nodes, which meet at 10.0.0.1:29500`; else empty."""
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            options.setdefault(option.replace("_", "-"), value if equals else following)
    nodes = next((options[option] for option in _NODES if option in options), "")
    least = nodes.partition(":")[0]
    if not least.isascii() or not least.isdigit() or len(least) > 6 or int(least) < 2:
        return ""
    endpoint = next((options[option] for option in _ENDPOINTS if option in options), "")
    port = next((options[option] for option in _PORTS if option in options), "")
    place = f"{endpoint}:{port}" if endpoint and port else endpoint
    return f": its job needs {nodes} nodes" + (f", which meet at {place}" if place else "")
