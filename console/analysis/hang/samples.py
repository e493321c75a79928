"""The stack samples of every process, in order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from ...records import Stack
from ..stacks.frames import main_of
from .verdict import ProcessKey

#: Seconds. Samples older than the newest by more than this are ignored: they describe an earlier situation.
HORIZON_S = 120.0


class StackSample(msgspec.Struct, frozen=True):
    """One sample of one process. Without a readable stack `threads` holds one record with the reason."""

    at_s: float  # CLOCK_REALTIME of the node
    main: Stack
    threads: tuple[Stack, ...]
    switches: int | None  # context switches of the main thread since some instant before the first sample

    @property
    def is_read(self) -> bool:
        """Whether the main thread's stack could be read."""
        return self.main.status == "ok"


def samples_by_process(stacks: Iterable[Stack]) -> Mapping[ProcessKey, list[StackSample]]:
    """The recent samples of every process, oldest first."""
    threads: dict[ProcessKey, dict[tuple[str, int], list[Stack]]] = defaultdict(lambda: defaultdict(list))
    for stack in stacks:
        if not stack.native:
            threads[stack.node, stack.pid, stack.start_ticks][stack.capture, stack.sample].append(stack)
    return {
        key: _with_total_switches(_recent(sorted(map(_sample, threads[key].values()), key=_order)))
        for key in sorted(threads)
    }


def _sample(threads: list[Stack]) -> StackSample:
    main = main_of(threads)
    instant = main.looked or main.began or main.at or main.t or main.rx
    return StackSample(instant / 1e9, main, tuple(sorted(threads, key=_thread_order)), main.ctx_switches)


def _with_total_switches(samples: list[StackSample]) -> list[StackSample]:
    """Sums per-sample context switch deltas, where records of one capture hold no totals."""
    if any(sample.switches is not None for sample in samples) or len({sample.main.capture for sample in samples}) > 1:
        return samples
    total = 0
    summed: list[StackSample] = []
    for sample in samples:
        total += sample.main.ctx_switches_delta or 0
        has_delta = sample.main.ctx_switches_delta is not None or not summed
        summed.append(replace(sample, switches=total if has_delta else None))
    return summed


def _thread_order(stack: Stack) -> tuple[int, int, str]:
    return (stack.os_thread_id or 0, stack.thread_id or 0, stack.thread_name or "")


def _order(sample: StackSample) -> tuple[float, str, int]:
    return (sample.at_s, sample.main.capture, sample.main.sample)


def _recent(samples: list[StackSample]) -> list[StackSample]:
    return [sample for sample in samples if samples[-1].at_s - sample.at_s <= HORIZON_S]
