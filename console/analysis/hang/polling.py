"""Ranks that poll: they sleep again and again in a loop that ends on a condition, and do not leave that loop.

A loop in which ranks communicate passes the steps of a job, as in `while goes_on: goes_on = train_step()`: it does not
poll, even if a rank was never seen outside of the pause between two steps.

Such a rank wakes up, runs, and may ask a server each time, so that neither its switches nor its calls show whether it
makes progress. Its place does: the same loop, called from the same line. The node reads from the source which loops
wait for a condition (`StackFrame.loop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ...records import Stack, StackFrame
from ..stacks.frame_models import FrameClass
from ..stacks.frames import Reader, is_library

#: Share of the samples that must be in the loop itself, and not in a call of its condition.
LEAST_IN_LOOP: Final = 0.25
#: Share of the samples in which a rank that polls may run.
MOST_RUNNING: Final = 0.3
#: Seconds between two samples of one diagnosis, at most; those of an earlier one show an earlier situation.
LONGEST_GAP_S: Final = 5.0
#: Calls that sleep for a time.
_SLEEPS: Final = frozenset({"nanosleep", "clock_nanosleep"})
#: Samples below which nothing is known.
MIN_SAMPLES: Final = 2
#: Classes of calls that all ranks make in each step.
_COMMUNICATES: Final[frozenset[FrameClass | None]] = frozenset({"collective", "p2p"})


class PollLoop(msgspec.Struct, frozen=True):
    """The loop in which a thread polls, and since when."""

    frame: StackFrame  # the call that contains the loop, at its newest sample
    seconds: float  # from the first sample of the unbroken run to the last
    is_new: bool  # it was seen to come there: the sample before is not of an earlier situation

    @property
    def place(self) -> tuple[str, str]:
        """What two ranks in the same loop have in common."""
        return (self.frame.function, self.frame.file)


class LoopPlace(NamedTuple):
    """A loop in the source of a job."""

    function: str
    file: str
    head: str


def step_loops(stacks: Iterable[Stack], reader: Reader) -> frozenset[LoopPlace]:
    """The loops in which processes communicate: what looks like a condition there is the end of the training."""
    paths = {stack.frames for stack in stacks if stack.frames and any(frame.loop for frame in stack.frames)}
    return frozenset(
        place
        for frames in paths
        if reader.trace(frames).cls in _COMMUNICATES
        for frame in frames
        if (place := _loop_place(frame)) is not None
    )


def poll_loop(
    stacks: Sequence[Stack], instants_s: Sequence[float], reader: Reader, steps: frozenset[LoopPlace] = frozenset()
) -> PollLoop | None:
    """The loop that a thread polls in at its newest samples; None if it does not poll, or its loop is unknown.

    `stacks` are the samples of one thread, oldest first, and `instants_s` their times; `steps` are loops of the job in
    which ranks communicate.
    """
    anchor = next((index for index in reversed(range(len(stacks))) if _loop_index(stacks[index]) is not None), None)
    if anchor is None:
        return None
    depth = _loop_index(stacks[anchor]) or 0
    frames = stacks[anchor].frames or ()
    frame, callers = frames[depth], _callers(frames, depth)
    if _loop_place(frame) in steps:
        return None
    first = len(stacks)
    while first > 0 and _is_within(stacks[first - 1], depth, frame, callers):
        if reader.trace(stacks[first - 1].frames or ()).cls in _COMMUNICATES:
            break  # in the same function, but not in this loop
        first -= 1
    run = stacks[first:]
    if len(run) < MIN_SAMPLES or anchor < first:
        return None
    in_loop = sum(_loop_index(stack) == depth and _sleeps(stack) for stack in run)
    running = sum((stack.thread_state or stack.proc_state) == "R" for stack in run)
    if in_loop < LEAST_IN_LOOP * len(run) or running > MOST_RUNNING * len(run):
        return None
    is_new = first > 0 and instants_s[first] - instants_s[first - 1] <= LONGEST_GAP_S
    return PollLoop(frame, instants_s[-1] - instants_s[first], is_new)


def _sleeps(stack: Stack) -> bool:
    """Whether a thread is in a sleep, or in a wait that ends by itself: one without a limit is woken by others."""
    if stack.thread_wakes_in_s is not None:
        return True
    return stack.thread_syscall is None and stack.syscall in _SLEEPS  # its own state was not read


def _loop_index(stack: Stack) -> int | None:
    """The index of the innermost call, or of the innermost one of the job's own code, in a loop for a condition."""
    frames = stack.frames or ()
    own = next((index for index in reversed(range(len(frames))) if _is_own(frames[index])), None)
    candidates = {len(frames) - 1, own} if frames else ()
    return max((index for index in candidates if index is not None and frames[index].loop is not None), default=None)


def _is_own(frame: StackFrame) -> bool:
    return not frame.native and not is_library(frame.file)


def _loop_place(frame: StackFrame) -> LoopPlace | None:
    return None if frame.loop is None else LoopPlace(frame.function, frame.file, frame.loop)


def _is_within(stack: Stack, depth: int, frame: StackFrame, callers: tuple[tuple[str, str, int], ...]) -> bool:
    frames = stack.frames or ()
    if len(frames) <= depth or _callers(frames, depth) != callers:
        return False
    other = frames[depth]
    is_same = (other.function, other.file) == (frame.function, frame.file)
    return is_same and (other.loop in (None, frame.loop))


def _callers(frames: Sequence[StackFrame], depth: int) -> tuple[tuple[str, str, int], ...]:
    """The lines from which a call was made: another pass of an outer loop may differ in them."""
    return tuple((frame.function, frame.file, frame.line) for frame in frames[:depth])
