"""Stacks of a process in the order in which they were read, whichever captures they are from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...records import Stack
from ..stacks.threads import main_of
from .evidence import ProcessKey

#: Looks that are older than the newest by more than this tell of another time, seconds.
HORIZON_S = 120.0


@dataclass(frozen=True, slots=True)
class StackSample:
    """One sample of one process. Without a readable stack `threads` has one record, which says why."""

    at_s: float  # CLOCK_REALTIME of the node
    main: Stack
    threads: tuple[Stack, ...]
    switches: int | None  # context switches of the main thread, counted from some instant before the first look

    @property
    def is_read(self) -> bool:
        return self.main.status == "ok"


def samples_by_process(stacks: Iterable[Stack]) -> Mapping[ProcessKey, list[StackSample]]:
    """The looks at every process, oldest first."""
    samples: dict[ProcessKey, dict[tuple[str, int], list[Stack]]] = defaultdict(lambda: defaultdict(list))
    for stack in stacks:
        if not stack.native:
            key = (stack.node, stack.pid, stack.start_ticks)
            samples[key][stack.capture, stack.sample].append(stack)
    found = {key: _recent(sorted(map(_look, samples[key].values()), key=_order)) for key in sorted(samples)}
    return {key: _counted(looks) for key, looks in found.items()}


def _look(threads: list[Stack]) -> StackSample:
    main = main_of(threads)
    instant = main.looked or main.began or main.at or main.t or main.rx
    return StackSample(instant / 1e9, main, tuple(sorted(threads, key=_thread_order)), main.ctx_switches)


def _counted(looks: list[StackSample]) -> list[StackSample]:
    """With the switches added up where records have only what was added since the previous sample of a capture."""
    if any(look.switches is not None for look in looks) or len({look.main.capture for look in looks}) > 1:
        return looks
    total = 0
    found: list[StackSample] = []
    for look in looks:
        total += look.main.ctx_switches_delta or 0
        is_known = look.main.ctx_switches_delta is not None or not found
        found.append(replace(look, switches=total if is_known else None))
    return found


def _thread_order(stack: Stack) -> tuple[int, int, str]:
    return (stack.os_thread_id or 0, stack.thread_id or 0, stack.thread_name or "")


def _order(look: StackSample) -> tuple[float, str, int]:
    return (look.at_s, look.main.capture, look.main.sample)


def _recent(looks: list[StackSample]) -> list[StackSample]:
    return [look for look in looks if looks[-1].at_s - look.at_s <= HORIZON_S]
