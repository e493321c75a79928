"""Captures until the verdict on every job stands: the part of a diagnosis that acts. Batch and the screen do the same.

Looking once proves nothing. So it samples on until what stands still has stood still for long enough, then asks for
what would make the verdict surer: variables that tell who waits for whom, and the native calls of one process of each
place whose Python calls say nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..analysis.hang import Judgement, diagnose_job
from ..core.control import CaptureOrder, Control, new_capture
from ..core.store import Store
from .hang import evidences

#: The first look is quick: where a job was watched before, it is enough.
FIRST_SAMPLES, FIRST_EVERY_S = 3, 0.3
#: Then so often, and so many samples a capture, so that one that can be ended early is.
EVERY_S, MOST_SAMPLES = 0.5, 6
#: A job that stops and goes on is not watched for ever: so many times the time that a hang takes.
PATIENCE: Final = 3.0
#: What tells whom a rank waits for. The wrapper is torch's: its arguments show a process group.
VARIABLES: Final = ("src", "dst", "peer", "wrapper:kwargs")


@dataclass(frozen=True)
class Diagnosis:
    """What was asked for: samples and the time between them, None for as many as it takes; whether to read natively.

    `native`: None reads the native calls of what stands still, True of any place that needs it, False of none.
    """

    samples: int | None = None
    every_s: float | None = None
    native: bool | None = None
    locals: tuple[str, ...] = ()
    flight_pipe: bool = False  # in the first capture: a dump of a job that stands still does not change


async def diagnose(
    store: Store, control: Control, asked: Diagnosis, capturing: Callable[[CaptureOrder], object] | None = None
) -> list[Judgement]:
    """Capture, judge, and capture again while that would change the verdict. `capturing` hears of every order."""

    async def take(order: CaptureOrder) -> list[Judgement]:
        if capturing is not None:
            capturing(order)
        await control.capture(order)
        known = evidences(store)
        return await asyncio.to_thread(
            lambda: [diagnose_job(evidence) for evidence in known]
        )  # the loop has nodes to hear

    found = await take(CaptureOrder(
        new_capture(), samples=asked.samples or FIRST_SAMPLES,
        every_s=FIRST_EVERY_S if asked.every_s is None else asked.every_s, locals=asked.locals,
        flight_pipe=asked.flight_pipe,
    ))  # fmt: skip
    least = store.console.min_frozen_s if store.console else 5.0
    spent_s = 0.0
    while (more_s := _more_s(found)) > 0 and spent_s < PATIENCE * least:
        order = _longer(asked, more_s)
        spent_s += order.samples * order.every_s
        found = await take(order)
    asks = _closer(found, asked)
    return found if asks is None else await take(asks)


def _more_s(found: Sequence[Judgement]) -> float:
    return max((one.missing.more_s for one in found), default=0.0)


def _longer(asked: Diagnosis, more_s: float) -> CaptureOrder:
    every_s = EVERY_S if asked.every_s is None else max(asked.every_s, 0.05)
    samples = asked.samples or min(MOST_SAMPLES, max(2, math.ceil(more_s / every_s) + 1))
    return CaptureOrder(new_capture(), samples=samples, every_s=every_s, locals=asked.locals)


def _closer(found: Sequence[Judgement], asked: Diagnosis) -> CaptureOrder | None:
    """The last look, at those processes alone whose variables or native calls would tell more."""
    variables = {(node, pid) for one in found if one.missing.is_stuck for node, pid, _ in one.missing.variables}
    native = {
        (node, pid)
        for one in found
        if asked.native is not False and (one.missing.is_stuck or asked.native)
        for node, pid, _ in one.missing.native
    }
    if not variables and not native:
        return None
    return CaptureOrder(
        new_capture(), only=tuple(sorted(variables | native)), locals=(*VARIABLES, *asked.locals),
        native=tuple(sorted(native)),
    )  # fmt: skip
