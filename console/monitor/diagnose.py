"""Diagnosis of the running jobs: captures stacks until the verdict on every job is final.

One sample proves nothing. Sampling goes on until a stall has lasted long enough; a last capture then reads what raises
the confidence: variables that name peers, and native frames of one process per ambiguous place.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..analysis.hang.diagnosis import Judgement
from ..core.control import CaptureRequest, Control, new_capture
from ..core.store import Store
from .hang import evaluation

#: The first capture is short: it suffices where the job was monitored before.
FIRST_SAMPLES, FIRST_EVERY_S = 3, 0.3
#: Later captures: interval in s, and at most this many samples each, so that sampling can end early.
EVERY_S, MOST_SAMPLES = 0.5, 6
#: Sampling ends after this many times `min_frozen_s`, for jobs that stall and resume.
MAX_SAMPLING: Final = 3.0
#: Variables that name the peer of a rank. The wrapper is torch's: its arguments contain the process group.
VARIABLES: Final = ("src", "dst", "peer", "wrapper:kwargs")


@dataclass(frozen=True)
class Diagnosis:
    """Options of a diagnosis: samples and their interval in s, None for automatic.

    `native`: native frames of stalled processes only (None), of any ambiguous place (True), or of none (False).
    """

    samples: int | None = None
    every_s: float | None = None
    native: bool | None = None
    locals: tuple[str, ...] = ()
    flight_pipe: bool = False  # in the first capture: the dump of a stalled job does not change


async def diagnose(
    store: Store, control: Control, options: Diagnosis, on_capture: Callable[[CaptureRequest], object] | None = None
) -> Sequence[Judgement]:
    """Capture and evaluate until more captures would not change the verdicts; `on_capture` is called for each order.

    The verdicts are those that `monitor.hang.judgements` returns afterwards, without another evaluation.
    """

    async def capture(order: CaptureRequest) -> Sequence[Judgement]:
        if on_capture is not None:
            on_capture(order)
        await control.capture(order)
        return await asyncio.to_thread(evaluation(store).judgements)

    judgements = await capture(CaptureRequest(
        new_capture(), samples=options.samples or FIRST_SAMPLES,
        every_s=FIRST_EVERY_S if options.every_s is None else options.every_s, locals=options.locals,
        flight_pipe=options.flight_pipe,
    ))  # fmt: skip
    least = store.console.min_frozen_s if store.console else 5.0
    spent_s = 0.0
    while (more_s := _more_s(judgements)) > 0 and spent_s < MAX_SAMPLING * least:
        order = _longer(options, more_s)
        spent_s += order.samples * order.every_s
        judgements = await capture(order)
    last = _detailed(judgements, options)
    return judgements if last is None else await capture(last)


def _more_s(judgements: Sequence[Judgement]) -> float:
    return max((judgement.missing.more_s for judgement in judgements), default=0.0)


def _longer(options: Diagnosis, more_s: float) -> CaptureRequest:
    every_s = EVERY_S if options.every_s is None else max(options.every_s, 0.05)
    samples = options.samples or min(MOST_SAMPLES, max(2, math.ceil(more_s / every_s) + 1))
    return CaptureRequest(new_capture(), samples=samples, every_s=every_s, locals=options.locals)


def _detailed(judgements: Sequence[Judgement], options: Diagnosis) -> CaptureRequest | None:
    """The last capture, of the processes whose variables or native frames raise the confidence; None without any."""
    missing = [judgement.missing for judgement in judgements]
    variables = {(node, pid) for evidence in missing if evidence.is_stuck for node, pid, _ in evidence.variables}
    native = {
        (node, pid)
        for evidence in missing
        if options.native is not False and (evidence.is_stuck or options.native)
        for node, pid, _ in evidence.native
    }
    if not variables and not native:
        return None
    return CaptureRequest(
        new_capture(), only=tuple(sorted(variables | native)), locals=(*VARIABLES, *options.locals),
        native=tuple(sorted(native)),
    )  # fmt: skip
